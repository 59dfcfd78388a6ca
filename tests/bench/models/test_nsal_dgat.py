import pytest
import torch
from torch.nn import functional as F

from afor.bench.common.errors import ConfigError
from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.input_shape import InputShape
from afor.bench.models.nsal_dgat import NSALDGAT, DynamicAdjacency, GraphLayer


def test_every_column_of_the_adjacency_sums_to_one():
    adjacency = DynamicAdjacency(6, seed=0)()
    torch.testing.assert_close(adjacency.sum(0), torch.ones(6))
    assert (adjacency >= 0).all()
    assert (adjacency.diagonal() > 0).all()


def test_an_empty_graph_is_the_identity():
    layer = DynamicAdjacency(6, seed=0)
    torch.nn.init.constant_(layer.widen.weight, -1.0)
    torch.nn.init.constant_(layer.narrow.weight, 1.0)
    assert torch.equal(layer(), torch.eye(6))


def test_without_the_safeguards_about_9_percent_of_the_graphs_at_six_channels_would_give_nan():
    empty = 0
    for seed in range(1000):
        torch.manual_seed(seed)
        layer = DynamicAdjacency(6, seed)
        edges = torch.tanh(layer.widen(F.elu(layer.narrow(layer.seed_vector)))).relu().view(6, 6)
        empty += int((edges.sum(0) == 0).any())
        assert torch.isfinite(layer()).all()
    assert empty / 1000 == pytest.approx(0.09, abs=0.03)


def test_the_seed_graph_depends_on_its_seed_alone(six_channels):
    vectors = []
    for global_seed, graph_seed in ((1, 5), (2, 5), (1, 6)):
        torch.manual_seed(global_seed)
        vectors.append(NSALDGAT(six_channels, graph_seed=graph_seed).adjacency.seed_vector)
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])


def test_the_seed_graph_travels_in_the_state_dict(six_channels, batch_of):
    one, other = NSALDGAT(six_channels), NSALDGAT(six_channels, graph_seed=9)
    assert "adjacency.seed_vector" in one.state_dict()
    other.load_state_dict(one.state_dict())
    signal = batch_of(six_channels)
    assert torch.equal(other.eval()(signal), one.eval()(signal))


@pytest.mark.parametrize("channels", [6, 22, 32, 64])
def test_the_bottleneck_has_the_stated_width(channels):
    expected = max(8, channels**2 // 128)
    assert DynamicAdjacency(channels, seed=0).narrow.out_features == expected


def test_a_graph_layer_is_its_convolutions_and_norms():
    layer = GraphLayer(5).double()
    nodes, adjacency = torch.randn(8, 5, 6).double(), torch.rand(6, 6).double()
    hidden = F.elu(layer.neighbour_norm(layer.neighbours(nodes)))
    expected = F.elu(nodes + layer.scale_norm(layer.scale(hidden)) @ adjacency)
    ours = layer(nodes, adjacency)
    torch.testing.assert_close(ours, expected)
    weights = list(layer.parameters())
    grads = [torch.autograd.grad(out.sin().sum(), weights) for out in (ours, expected)]
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_nodes_may_be_raw_samples(six_channels, batch_of, gradients):
    model = NSALDGAT(six_channels, node_features="raw")
    assert model(batch_of(six_channels)).shape == (4, 2)
    assert model.head[1].in_features == 3 * 128 * 6
    assert len(gradients(model, batch_of(six_channels))) == 24


def test_the_normalisation_of_the_entropies_is_all_that_is_added_to_the_check_figure():
    model = NSALDGAT(DATASET_SHAPES["DEAP"])
    added = list(model.feature_norm.parameters())
    assert [p.numel() for p in added] == [5, 5]


def test_forward_leaves_the_training_mode_alone(six_channels, batch_of):
    model = NSALDGAT(six_channels)
    model(batch_of(six_channels))
    assert all(module.training for module in model.modules())


def test_fewer_than_three_channels_are_refused():
    with pytest.raises(ConfigError, match="at least 3 channels, found 2"):
        NSALDGAT(InputShape.unnamed(2, samples=128, rate_hz=128, classes=2))
