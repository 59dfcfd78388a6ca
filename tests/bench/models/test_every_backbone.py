"""What holds for each network: the four and the AFOR authors' versions of them."""

import copy
import io

import pytest
import torch
from torch.nn import functional as F

from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import BACKBONES
from afor.bench.models.registry import build_backbone as build_by_name

# Trainable parameters and tensors on DEAP, BCI IV 2a and ISRUC. HSLT's figures are those of five
# entropies per electrode; NSAL-DGAT's are without the normalisation of its entropies.
CHECK_FIGURES = {
    "eegnet": ((1746, 12), (2396, 12), (2933, 12)),
    "acrnn": ((135_769, 23), (250_709, 23), (579_878, 23)),
    "nsal_dgat": ((51_647, 24), (33_537, 24), (11_074, 24)),
    "hslt": ((373_330, 368), (263_140, 262), (152_645, 146)),
}
SETTINGS = {"hslt": {"tokenizer": "de"}}

# With one time step the recurrent weights multiply a state that is zero.
_RECURRENT = {"lstm.weight_hh_l0", "lstm.weight_hh_l1"}
_SHIFT = {"temporal_norm.bias"}  # which the next norm removes
ZERO_GRADIENT = {
    "eegnet": _SHIFT,
    "eegnet_authors": _SHIFT,
    "acrnn": _RECURRENT,
    "acrnn_authors": _RECURRENT,
}

FORMS = [
    (name, settings)
    for name in BACKBONES
    for settings in (
        ({"form": "plain"}, {"form": "fast"}) if "eegnet" in name or "hslt" in name else ({},)
    )
]


def build_backbone(name, shape, **settings):
    """Build a network; the authors' NSAL-DGAT in the form that also takes six channels."""
    repair = {"repair": True} if name == "nsal_dgat_authors" else {}
    return build_by_name(name, shape, **repair, **settings)


@pytest.mark.parametrize("name", CHECK_FIGURES)
def test_parameters_and_tensors_match_the_check_figures(name):
    found = []
    for dataset in ("DEAP", "BCI IV 2a", "ISRUC"):
        model = build_backbone(name, DATASET_SHAPES[dataset], **SETTINGS.get(name, {}))
        counted = [p for key, p in model.named_parameters() if not key.startswith("feature_norm")]
        assert all(p.requires_grad for p in counted)
        found.append((sum(p.numel() for p in counted), len(counted)))
    assert tuple(found) == CHECK_FIGURES[name]


def test_eegnet_has_the_optimizer_state_of_the_papers_cost_table():
    model = build_backbone("eegnet", DATASET_SHAPES["DEAP"])
    numbers, tensors = sum(p.numel() for p in model.parameters()), len(list(model.parameters()))
    assert (2 * numbers * 4 + tensors * 4) / 1024 == pytest.approx(13.69, abs=0.005)
    assert (2 * numbers * 4 + tensors * 10 * 4) / 1024 == pytest.approx(14.11, abs=0.005)


@pytest.mark.parametrize("dataset", DATASET_SHAPES)
@pytest.mark.parametrize("name", BACKBONES)
def test_a_window_becomes_finite_logits(name, dataset, batch_of):
    shape = DATASET_SHAPES[dataset]
    if (name, dataset) == ("hslt_authors", "PhysioNet MI"):
        pytest.skip("the authors' HSLT has no regions for 64 channels")
    model = build_backbone(name, shape)
    for training in (True, False):
        logits = model.train(training)(batch_of(shape, 3))
        assert logits.shape == (3, shape.classes)
        assert torch.isfinite(logits).all()


@pytest.mark.parametrize(("name", "settings"), FORMS)
def test_the_gradient_reaches_every_tensor_that_can_have_one(name, settings, batch_of, gradients):
    shape = DATASET_SHAPES["BCI IV 2a"]
    model = build_backbone(name, shape, **settings)
    grads = gradients(model, batch_of(shape, 16))
    assert grads.keys() == {key for key, _ in model.named_parameters()}
    assert all(torch.isfinite(grad).all() for grad in grads.values())
    zero = {key for key, grad in grads.items() if not grad.any()}
    assert zero == ZERO_GRADIENT.get(name, set())


def _initialisations_are_finite(name, shape, count):
    signal = torch.randn(2, shape.channels, shape.samples)
    for seed in range(count):
        torch.manual_seed(seed)
        settings = {"graph_seed": seed} if name == "nsal_dgat" else {}
        assert torch.isfinite(build_backbone(name, shape, **settings)(signal)).all(), seed


@pytest.mark.parametrize(
    ("name", "count"),
    [("eegnet", 200), ("nsal_dgat", 200), ("acrnn", 100), ("nsal_dgat_authors", 100)],
)
def test_no_initialisation_at_six_channels_gives_nan(name, count, six_channels):
    # Without the safeguards one graph in eleven gives NaN: 100 would miss that once in 10 000.
    _initialisations_are_finite(name, six_channels, count)


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKBONES)
def test_none_of_1000_initialisations_at_six_channels_gives_nan(name, six_channels):
    _initialisations_are_finite(name, six_channels, 1000)


@pytest.mark.parametrize(("name", "settings"), FORMS)
def test_evaluation_is_deterministic_and_changes_nothing(name, settings, six_channels, batch_of):
    model = build_backbone(name, six_channels, **settings).eval()
    before = copy.deepcopy(model.state_dict())
    signal = batch_of(six_channels)
    assert torch.equal(model(signal), model(signal))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", BACKBONES)
def test_evaluation_treats_every_window_by_itself(name, six_channels, batch_of):
    model = build_backbone(name, six_channels).eval()
    signal = batch_of(six_channels, 5)
    alone = torch.cat([model(window[None]) for window in signal])
    torch.testing.assert_close(model(signal), alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", BACKBONES)
def test_training_is_repeatable_from_one_seed(name, six_channels, synthetic_eeg):
    signal, labels = synthetic_eeg
    losses = []
    for _ in range(2):
        torch.manual_seed(5)
        model = build_backbone(name, six_channels)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(signal), labels)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == losses[1]


@pytest.mark.parametrize("name", BACKBONES)
def test_a_saved_model_gives_the_same_logits_when_loaded(name, six_channels, batch_of):
    model = build_backbone(name, six_channels)
    model(batch_of(six_channels, 8))  # move the running statistics
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    torch.manual_seed(99)
    settings = {"graph_seed": 99} if name == "nsal_dgat" else {}
    loaded = build_backbone(name, six_channels, **settings)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    signal = batch_of(six_channels)
    assert torch.equal(loaded.eval()(signal), model.eval()(signal))


@pytest.mark.parametrize("name", BACKBONES)
def test_each_overfits_64_windows_of_synthetic_eeg(name, six_channels, synthetic_eeg):
    signal, labels = synthetic_eeg
    model = build_backbone(name, six_channels)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    accuracy = 0.0
    for _ in range(60):
        model.train()
        for _ in range(5):
            optimizer.zero_grad()
            F.cross_entropy(model(signal), labels).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            accuracy = float((model(signal).argmax(1) == labels).float().mean())
        if accuracy == 1.0:
            break
    assert accuracy == 1.0


@pytest.mark.parametrize("name", BACKBONES)
def test_autocast_trains(name, six_channels, synthetic_eeg):
    signal, labels = synthetic_eeg
    model = build_backbone(name, six_channels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(signal), labels)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Dynamo's own, while it traces
@pytest.mark.parametrize("name", BACKBONES)
def test_each_compiles(name, six_channels, batch_of):
    model = build_backbone(name, six_channels).eval()
    signal = batch_of(six_channels)
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(signal), model(signal))


@pytest.mark.parametrize("name", [name for name in BACKBONES if name != "hslt_authors"])
def test_each_takes_an_unusual_shape(name, batch_of):
    shape = InputShape(("Fz", "C3", "C4", "Pz", "Oz"), samples=123, rate_hz=111, classes=7)
    assert build_backbone(name, shape)(batch_of(shape, 3)).shape == (3, 7)
