"""The networks of the AFOR authors against values that their own files give.

`authors_oracles.json` holds those values: logits, intermediates as [sum, sum of squares], and one
training pass as [loss, L2 norm, L1 norm of all gradients], for weights and inputs made from a
formula, so that nothing depends on a random generator.
"""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from afor.bench.common.errors import ConfigError
from afor.bench.models.authors import NSALDGATAuthors, PublishedAdjacency
from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import build_backbone

ORACLES = json.loads(Path(__file__).with_name("authors_oracles.json").read_text())
# NSAL-DGAT on ISRUC has no numbers: every one is NaN.
CASES = [
    (name, dataset)
    for name, datasets in ORACLES.items()
    for dataset, oracle in datasets.items()
    if oracle
]
FORMS = ("plain", "fast")
LONG = {
    "22 x 1000": InputShape.unnamed(22, samples=1000, rate_hz=250, classes=4),
    "6 x 6000": InputShape.unnamed(6, samples=6000, rate_hz=200, classes=5),
}
SIZES = {
    "eegnet_authors": ((1746, 12), (2396, 12), (4533, 12), (6932, 12), (39_653, 12)),
    "acrnn_authors": (
        (1_481_049, 23),
        (2_691_749, 23),
        (6_213_878, 23),
        (10_371_749, 23),
        (61_509_878, 23),
    ),
    "nsal_dgat_authors": (
        (883_045, 24),
        (1_347_987, 24),
        (2_325_400, 24),
        (8_747_487, 24),
        (169_012_600, 24),
    ),
    "hslt_authors": (
        (382_186, 368),
        (390_924, 372),
        (291_237, 254),
        (444_924, 372),
        (550_437, 254),
    ),
}


def hashed(count, j):
    """Return u(i, j), i = 1 … count: uniform numbers from a formula."""
    i = torch.arange(1, count + 1, dtype=torch.float64)
    values = 43758.5453 * torch.sin(12.9898 * i + 78.233 * j)
    return values - values.floor()


def in_the_authors_order(model):
    """Return (name, parameter) in the order in which the authors' files register them."""
    named = list(model.named_parameters())
    if not hasattr(model, "regions"):
        return named

    def encoder(prefix, embed, blocks):
        first = [f"{prefix}class_token", f"{embed}.weight", f"{embed}.bias", f"{prefix}position"]
        return first + [key for key, _ in named if key.startswith(blocks)]

    order = []
    for r in range(len(model.regions)):
        order += encoder(f"regions.{r}.", f"regions.{r}.embed", f"regions.{r}.blocks.")
        order += [key for key, _ in named if key.startswith(f"regions.{r}.shrink.")]
    order += [*encoder("", "merge", "blocks."), "classifier.weight", "classifier.bias"]
    parameters = dict(named)
    assert sorted(order) == sorted(parameters)
    return [(key, parameters[key]) for key in order]


def fill(model):
    """Give every parameter the values of the formula."""
    norms = {
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm | nn.LayerNorm)
    }
    with torch.no_grad():
        for j, (key, parameter) in enumerate(in_the_authors_order(model), start=1):
            signs = 2 * hashed(parameter.numel(), j).view_as(parameter) - 1
            if parameter.dim() >= 2:
                fan = parameter.numel() / parameter.shape[0]
                parameter.copy_(signs * (3 / fan) ** 0.5)
            else:
                parameter.copy_(0.2 * signs + (1 if key in norms else 0))
        if hasattr(model, "adjacency"):
            vector = model.adjacency.seed_vector
            vector.copy_(hashed(vector.numel(), 0.25))


def filled(name, shape, form, **settings):
    if "eegnet" in name or "hslt" in name:
        settings["form"] = form
    model = build_backbone(name, shape, **settings).double()
    fill(model)
    signal = 3**0.5 * (2 * hashed(3 * shape.channels * shape.samples, 0.5) - 1)
    return model, signal.view(3, shape.channels, shape.samples)


def sums(tensor):
    return [tensor.sum().item(), tensor.square().sum().item()]


class PublishedNSALDGAT(NSALDGATAuthors):
    """The released network also where all its outputs are NaN."""

    working_channels = 3


def number_of(model):
    parameters = list(model.parameters())
    assert all(p.requires_grad for p in parameters)
    return sum(p.numel() for p in parameters), len(parameters)


@pytest.mark.parametrize("name", SIZES)
def test_parameters_and_tensors_are_those_of_the_authors_files(name):
    shapes = [DATASET_SHAPES[key] for key in ("DEAP", "BCI IV 2a", "ISRUC")] + list(LONG.values())
    with torch.device("meta"):
        built = [
            # Only the class behind the name builds the form that gives NaN.
            PublishedNSALDGAT(shape) if name.startswith("nsal") else build_backbone(name, shape)
            for shape in shapes
        ]
    assert tuple(number_of(model) for model in built) == SIZES[name]


@pytest.mark.parametrize("channels", [12, 22, 32, 62])
@pytest.mark.parametrize("samples", [128, 131])
def test_parameters_follow_the_closed_forms(channels, samples):
    c, t, k = channels, samples, 3
    shape = InputShape.unnamed(c, samples=t, rate_hz=128, classes=k)
    with torch.device("meta"):
        counted = {
            name: number_of(build_backbone(name, shape))[0]
            for name in ("eegnet_authors", "acrnn_authors", "nsal_dgat_authors")
        }
    assert counted == {
        "eegnet_authors": 8 * (t // 2) + 16 + 16 * c + 32 + 512 + 32 + 16 * (t // 32) * k + k,
        "acrnn_authors": (15 * c + 15)
        + (15 * c + c)
        + (40 * 32 * c * 3 + 40)
        + (256 * 40 * (t - 2) + 256 * 64 + 512)
        + (2 * 256 * 64 + 512)
        + (4096 + 4096 + 64 + 4160 + 4160)
        + 64 * k
        + k,
        "nsal_dgat_authors": 2 * c**2 * (c**2 // 128)
        + 2 * 8 * t
        + 2 * 3 * t * (3 * t // 4)
        + 2 * 7**2
        + 1
        + (3 * t * c * 64 + 64)
        + 4160
        + 65 * k,
    }


def test_the_formula_gives_the_numbers_of_the_recipe():
    expected = [0.740084824199, 0.564395127669, 0.454749260833]
    assert hashed(3, 1).tolist() == pytest.approx(expected, abs=1e-9)
    assert hashed(1024, 0.25).sum().item() == pytest.approx(500.964788256, abs=1e-7)


@pytest.mark.parametrize(("name", "dataset"), CASES)
def test_the_weights_are_filled_in_the_authors_order(name, dataset):
    model, _ = filled(name, DATASET_SHAPES[dataset], "plain")
    total = torch.tensor([sums(p) for p in model.parameters()]).sum(dim=0)
    assert total.tolist() == pytest.approx(ORACLES[name][dataset]["weights"], rel=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "dataset"), CASES)
def test_logits_are_those_of_the_authors_files(name, dataset, form):
    model, signal = filled(name, DATASET_SHAPES[dataset], form)
    expected = torch.tensor(ORACLES[name][dataset]["logits"], dtype=torch.float64)
    torch.testing.assert_close(model.eval()(signal), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("name", "dataset"), CASES)
def test_small_weights_in_a_line_give_the_authors_logits(name, dataset):
    shape = DATASET_SHAPES[dataset]
    torch.manual_seed(0)
    model = build_backbone(name, shape).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            values = torch.linspace(-0.05, 0.05, parameter.numel(), dtype=torch.float64)
            parameter.copy_(values.view_as(parameter))
    signal = torch.linspace(-1, 1, 2 * shape.channels * shape.samples, dtype=torch.float64)
    logits = model(signal.view(2, shape.channels, shape.samples))
    expected = torch.tensor(ORACLES[name][dataset]["linspace_logits"], dtype=torch.float64)
    # The expected ones come from weights rounded to float32, in a way that differs by processor.
    torch.testing.assert_close(logits, expected, rtol=5e-7, atol=3e-8)


def eegnet_intermediates(model, signal, seen):
    maps = model.spatial_norm(seen["spatial"])
    seen["elu2"] = F.elu(maps)
    seen["pool1"] = F.avg_pool2d(seen["elu2"], (1, 4))
    seen["elu3"] = F.elu(seen["separable_norm"])
    seen["pool2"] = F.avg_pool2d(seen["elu3"], (1, 8))


def acrnn_intermediates(model, signal, seen):
    weights = seen["excite"].softmax(dim=-1)
    seen["channel_weights"] = weights.expand(32, -1, -1)
    planes = (signal * weights.unsqueeze(-1)).unsqueeze(1).expand(-1, 32, -1, -1)
    seen["convolution"] = model.convolution(planes)
    seen["elu"] = F.elu(seen["convolution"])
    seen["hidden"] = hidden = seen["lstm"]
    attention = model.attention
    first = attention.first(hidden) @ attention.through
    seen["y"] = hidden @ attention.direct + first + attention.bias
    seen["z"] = seen["attention.second"]
    seen["attended"] = seen["attention"]


def nsal_dgat_intermediates(model, signal, seen):
    vector, adjacency = model.adjacency.seed_vector, model.adjacency
    for name in ("first", "second"):
        hidden = F.elu(seen[f"{name}.neighbour_norm"])
        seen[f"{name}.scale"] = model.get_submodule(name).scale(hidden)
    seen["adjacency"] = torch.tanh(adjacency.widen(F.elu(adjacency.narrow(vector)))).relu()
    seen["map_weights"] = seen["attention.excite"].sum(dim=0).sigmoid()
    seen["electrode_weights"] = seen["attention.spatial"].sigmoid()
    seen["cbam"] = seen["head.0"]


def hslt_intermediates(model, signal, seen):
    region, class_token = model.regions[0], model.regions[0].class_token.expand(3, 1, -1)
    seen["embedding"] = torch.cat([class_token, seen["regions.0.embed"]], 1) + region.position
    if region.shrink is not None:
        seen["shrink"] = seen["regions.0.shrink"]
    tokens = torch.cat([model.class_token.expand(3, 1, -1), seen["merge"]], dim=1)
    seen["merged"] = tokens + model.position


DERIVE = {
    "eegnet_authors": eegnet_intermediates,
    "acrnn_authors": acrnn_intermediates,
    "nsal_dgat_authors": nsal_dgat_intermediates,
    "hslt_authors": hslt_intermediates,
}


@pytest.mark.parametrize(("name", "dataset"), CASES)
def test_every_intermediate_is_that_of_the_authors_files(name, dataset):
    model, signal = filled(name, DATASET_SHAPES[dataset], "plain")
    model.eval()
    seen = {}

    def keep(key):
        def hook(module, inputs, output):
            seen[key] = output[0] if isinstance(output, tuple) else output

        return hook

    for key, module in model.named_modules():
        if key:
            module.register_forward_hook(keep(key))
    with torch.no_grad():
        model(signal)
        DERIVE[name](model, signal, dict_of := dict(seen))
    expected = ORACLES[name][dataset]["intermediates"]
    found = {key: sums(dict_of[key]) for key in expected}
    for key, values in expected.items():
        assert found[key] == pytest.approx(values, rel=2e-8), key


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "dataset"), CASES)
def test_a_training_pass_gives_the_authors_loss_gradients_and_statistics(name, dataset, form):
    shape, oracle = DATASET_SHAPES[dataset], ORACLES[name][dataset]
    model, signal = filled(name, shape, form, dropout=0.0)
    for module in model.modules():  # HSLT's 0.1 among regions is no setting
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    loss = F.cross_entropy(model.train()(signal), torch.arange(3) % shape.classes)
    loss.backward()
    grads = torch.cat([p.grad.flatten() for p in model.parameters()])
    found = [loss.item(), grads.norm().item(), grads.abs().sum().item()]
    assert found == pytest.approx(oracle["training"], rel=1e-9)
    for key, (mean, variance) in oracle.get("running", {}).items():
        norm = model.get_submodule(key)
        assert norm.running_mean.sum().item() == pytest.approx(mean, rel=1e-8, abs=1e-11), key
        assert norm.running_var.sum().item() == pytest.approx(variance, rel=1e-8), key
    for key, size in oracle.get("gradients", {}).items():
        assert model.get_parameter(key).grad.norm().item() == pytest.approx(size, rel=1e-6), key


@pytest.mark.parametrize(("name", "dataset"), CASES)
def test_the_fast_form_has_the_logits_and_gradients_of_the_plain_one(name, dataset):
    shape = DATASET_SHAPES[dataset]
    results = []
    for form in FORMS:
        model, signal = filled(name, shape, form, dropout=0.0)
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        logits = model(signal)
        F.cross_entropy(logits, torch.arange(3) % shape.classes).backward()
        results.append([logits.detach(), *(p.grad for p in model.parameters())])
    for plain, fast in zip(*results, strict=True):
        scale = max(plain.abs().max().item(), 1e-3)
        torch.testing.assert_close(fast, plain, rtol=0, atol=1e-12 * scale)


def test_all_32_planes_of_acrnn_have_the_same_gradient():
    for form in FORMS:
        model, signal = filled("acrnn_authors", DATASET_SHAPES["BCI IV 2a"], form, dropout=0.0)
        F.cross_entropy(model(signal), torch.arange(3)).backward()
        grad = model.convolution.weight.grad
        torch.testing.assert_close(grad, grad[:, :1].expand_as(grad), rtol=0, atol=1e-15)
        assert grad.any()


@pytest.mark.parametrize("form", FORMS)
def test_spatial_weights_of_eegnet_are_cut_at_one_from_above_alone(form):
    model, signal = filled("eegnet_authors", DATASET_SHAPES["DEAP"], form)
    weight = model.eval().spatial.weight
    with torch.no_grad():
        weight.mul_(10)
        assert ((weight > 1).sum().item(), (weight < -1).sum().item()) == (178, 169)
        assert weight.sum().item() == pytest.approx(-0.944543986, abs=1e-8)
    logits = model(signal)
    assert weight.max().item() == 1
    assert weight.min().item() == pytest.approx(-3.06079063, abs=1e-8)
    assert weight.sum().item() == pytest.approx(-179.646764, abs=1e-6)
    assert weight.flatten(1).norm(dim=1).max().item() == pytest.approx(8.51886, abs=1e-5)
    expected = [
        [3.66078194645, 1.19994286379],
        [2.58821741037, 2.49744279484],
        [2.90714268988, 1.63092756803],
    ]
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-9)


def test_the_cut_of_eegnet_lets_two_forward_passes_precede_one_backward_pass():
    model, signal = filled("eegnet_authors", DATASET_SHAPES["DEAP"], "plain")
    with torch.no_grad():
        model.spatial.weight.mul_(10)
    (model(signal).sum() + model(signal).sum()).backward()
    assert model.spatial.weight.grad[model.spatial.weight == 1].any()  # not cut by the gradient


def spread(tensor):
    return tensor.detach().double().std().item()


def test_eegnets_initial_weights_are_kaiming_and_xavier_normal():
    shape = DATASET_SHAPES["ISRUC"]
    models = [build_backbone("eegnet_authors", shape) for _ in range(40)]

    def together(name):
        return torch.cat([m.get_parameter(name).detach().flatten() for m in models])

    for name, sd in {
        "temporal.weight": (2 / 300) ** 0.5,
        "spatial.weight": (2 / 6) ** 0.5,
        "depthwise.weight": (2 / 16) ** 0.5,
        "pointwise.weight": (2 / 16) ** 0.5,
        "classifier.weight": (2 / (16 * 18 + 5)) ** 0.5,
    }.items():
        below = together(name)[together(name) < 0]  # above, spatial weights are cut at one
        assert below.square().mean().sqrt().item() == pytest.approx(sd, rel=0.07), name
        assert below.min() < -3 * sd, name  # a normal distribution has tails
    assert together("spatial.weight").max() == 1
    assert not together("classifier.bias").any()


def test_acrnns_attention_starts_standard_normal_and_the_rest_with_torchs_defaults():
    model = build_backbone("acrnn_authors", DATASET_SHAPES["DEAP"])
    for weight in (model.attention.direct, model.attention.through):
        assert spread(weight) == pytest.approx(1, rel=0.05)
        assert weight.abs().max() > 3
    for weight, bound in [
        (model.lstm.weight_ih_l0, 1 / 8),
        (model.convolution.weight, (32 * 32 * 3) ** -0.5),
        (model.squeeze.weight, 32**-0.5),
        (model.attention.first.weight, 1 / 8),
    ]:
        assert 0.97 * bound < weight.abs().max() <= bound
        assert spread(weight) == pytest.approx(bound / 3**0.5, rel=0.06)
    assert not model.attention.bias.any()


def test_nsal_dgat_starts_with_torchs_defaults_and_a_vector_from_the_global_generator():
    torch.manual_seed(0)
    model = build_backbone("nsal_dgat_authors", DATASET_SHAPES["DEAP"])
    vector = model.adjacency.seed_vector
    assert vector[:2].tolist() == pytest.approx([0.496256589890, 0.768221795559], abs=1e-9)
    assert vector.sum().item() == pytest.approx(511.787423, abs=1e-3)
    assert "adjacency.seed_vector" in model.state_dict()
    for weight, fan in [
        (model.adjacency.narrow.weight, 1024),
        (model.adjacency.widen.weight, 8),
        (model.first.neighbours.weight, 3),
        (model.first.scale.weight, 1),
        (model.attention.squeeze.weight, 384),
        (model.attention.spatial.weight, 98),
        (model.head[1].weight, 384 * 32),
    ]:
        assert 0.9 * fan**-0.5 < weight.abs().max() <= fan**-0.5
        assert spread(weight) == pytest.approx((3 * fan) ** -0.5, rel=0.12)


def test_hslts_tokens_and_positions_start_standard_normal():
    model = build_backbone("hslt_authors", DATASET_SHAPES["DEAP"])
    tokens = torch.cat(
        [p.flatten() for key, p in model.named_parameters() if key.endswith(("token", "position"))]
    )
    assert spread(tokens) == pytest.approx(1, rel=0.1)
    assert tokens.abs().max() > 2.5


# ------------------------------------------------------------------------------- six channels


@pytest.mark.parametrize("channels", [6, 11])
def test_the_published_nsal_dgat_refuses_few_channels_with_a_sentence(channels):
    shape = InputShape.unnamed(channels, samples=128, rate_hz=128, classes=2)
    with pytest.raises(ConfigError, match=r"NaN for every input .* 0 units\. Set repair = true"):
        build_backbone("nsal_dgat_authors", shape)


def test_the_published_nsal_dgat_is_nan_at_six_channels_whatever_the_seed_and_input():
    shape = InputShape.unnamed(6, samples=64, rate_hz=64, classes=5)
    for seed in range(20):
        torch.manual_seed(seed)
        model = PublishedNSALDGAT(shape)
        for signal in (torch.zeros(2, 6, 64), torch.randn(2, 6, 64)):
            assert model.eval()(signal).isnan().all()
    loss = F.cross_entropy(model.train()(signal), torch.tensor([0, 1]))
    loss.backward()
    assert loss.isnan()
    # The two empty tensors aside, nothing before the last bias has a finite gradient.
    assert all(p.grad.isnan().any() for p in model.parameters() if p.numel())


def test_with_a_positive_width_about_nine_percent_of_the_adjacencies_at_six_channels_are_nan():
    found = 0
    for seed in range(1000):
        torch.manual_seed(seed)
        adjacency = PublishedAdjacency(6, repair=True)
        adjacency.repair = False  # the width alone
        found += bool(adjacency().isnan().any())
    assert 60 < found < 120  # 1 - (1 - 2^-6)^6 = 9.0 %


@pytest.mark.parametrize("form", FORMS)
def test_the_repaired_width_gives_the_authors_layers_the_expected_logits(form):
    model, signal = filled("nsal_dgat_authors", DATASET_SHAPES["ISRUC"], form, repair=True)
    assert number_of(model) == (2_325_472, 24)
    assert torch.isfinite(model.adjacency()).all()
    expected = [0.424633671275, 0.243321343204, -0.216503948852, 0.576302414339, -0.286650605086]
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(model.eval()(signal)[0], expected, rtol=0, atol=1e-9)


def test_repair_changes_nothing_where_the_published_form_gives_numbers():
    shape = DATASET_SHAPES["BCI IV 2a"]
    logits = []
    for repair in (False, True):
        torch.manual_seed(3)
        model = build_backbone("nsal_dgat_authors", shape, repair=repair).eval()
        logits.append(model(torch.ones(2, 22, 250)))
    assert torch.equal(*logits)


def test_an_empty_column_of_a_repaired_adjacency_becomes_a_self_loop():
    adjacency = PublishedAdjacency(6, repair=True)
    with torch.no_grad():
        adjacency.widen.weight.view(6, 6)[:, 2] = -1.0
        adjacency.narrow.weight.fill_(1.0)
    column = adjacency()[:, 2]
    assert column.tolist() == [0, 0, 1, 0, 0, 0]


def test_hslt_refuses_a_montage_the_authors_have_no_regions_for():
    with pytest.raises(ConfigError, match=r"regions for 6, 22, 32, 62 channels, found 64"):
        build_backbone("hslt_authors", DATASET_SHAPES["PhysioNet MI"])


def test_hslts_regions_are_runs_of_channels_whatever_their_names():
    model = build_backbone("hslt_authors", DATASET_SHAPES["DEAP"])
    assert [len(region) for region in model.indices] == [4, 5, 3, 5, 3, 3, 3, 3, 3]
    assert [i for region in model.indices for i in region] == list(range(32))
