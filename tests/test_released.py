"""ReleasedAFOR against the package afor-optimizer 0.1.0, bit for bit."""

import copy

import pytest
import torch

from afor import AFOR
from afor.control import FIELDS
from afor.released import ReleasedAFOR

released = pytest.importorskip("AFOR", reason="the package afor-optimizer is not installed")
SHAPES = [(), (1,), (2,), (8,), (41, 53)]


def twins(options=None):
    """Return both optimizers on equal parameters."""
    start = [torch.linspace(-1, 1, max(1, torch.Size(s).numel())).reshape(s) for s in SHAPES]
    a = [torch.nn.Parameter(p.clone()) for p in start]
    b = [torch.nn.Parameter(p.clone()) for p in start]
    options = options or {}
    return a, b, ReleasedAFOR(a, lr=3e-3, **options), released.afor(b, lr=3e-3, **options)


def feed(a, b, step, scale=1.0):
    generator = torch.Generator().manual_seed(step)
    for p, q in zip(a, b, strict=True):
        p.grad = torch.randn(p.shape, generator=generator) * scale + 0.1 * scale
        q.grad = p.grad.clone()


def assert_same_bits(a, b):
    for p, q in zip(a, b, strict=True):
        assert torch.equal(p.detach().view(torch.int32), q.detach().view(torch.int32))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.1},
        {"betas": (0.8, 0.99), "beta2_min": 0.9, "eps": 1e-6},
        {"dir_weight": 0.0},
        {"dir_weight": 2.0},
        {"fast_ref": False},
        {"beta2_min": 0.999},
    ],
    ids=["defaults", "weight decay", "other decays", "w/o DC", "w=2", "w/o FC", "fixed"],
)
def test_every_step_equals_the_package(options):
    a, b, ours, package = twins(options)
    for step in range(120):  # crosses the warm-up of 100
        feed(a, b, step)
        ours.step()
        package.step()
        assert_same_bits(a, b)


@pytest.mark.parametrize(
    ("option", "value", "accepted"),
    [
        ("lr", -1.0, "at least 0"),
        ("eps", float("nan"), "at least 0"),
        ("weight_decay", -0.1, "at least 0"),
        ("betas", (0.9, 1.0), r"in \[0, 1\)"),
        ("beta2_min", 1.5, r"in \[0, 1\)"),
    ],
)
def test_a_number_outside_its_range_is_refused(option, value, accepted):
    with pytest.raises(ValueError, match=f"{option} must be {accepted}"):
        ReleasedAFOR([torch.nn.Parameter(torch.ones(1))], **{"lr": 1e-3, option: value})


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-12, 1e-8, 1e-5, 1e5, 1e15])
def test_zero_tiny_and_huge_gradients_equal_the_package(scale):
    a, b, ours, package = twins({"weight_decay": 0.01})
    for step in range(110):
        feed(a, b, step, scale)
        ours.step()
        package.step()
        assert_same_bits(a, b)


def test_the_state_has_the_names_and_numbers_of_the_package():
    a, b, ours, package = twins()
    for step in range(120):
        feed(a, b, step)
        ours.step()
        package.step()
    for p, q in zip(a, b, strict=True):
        mine, theirs = ours.state[p], package.state[q]
        assert set(theirs) - set(mine) == {"snr_mag_t"}  # it is shown and never used
        for name, value in mine.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(theirs[name])), name


@pytest.mark.parametrize("taken", [1, 2, 50, 99, 100, 101, 140])
def test_a_checkpoint_of_the_package_goes_on_to_the_last_bit(taken):
    a, b, _, package = twins({"weight_decay": 0.1})
    for step in range(taken):
        feed(a, b, step)
        package.step()
    saved = copy.deepcopy(package.state_dict())
    with torch.no_grad():
        for p, q in zip(a, b, strict=True):
            p.copy_(q)
    ours = ReleasedAFOR(a, lr=1.0)
    ours.load_state_dict(saved)
    assert ours.param_groups[0]["lr"] == 3e-3
    assert ours.param_groups[0]["weight_decay"] == 0.1
    for step in range(taken, taken + 40):
        feed(a, b, step)
        ours.step()
        package.step()
        assert_same_bits(a, b)


def test_a_checkpoint_of_the_package_also_continues_with_the_printed_rule():
    a, b, _, package = twins()
    for step in range(60):
        feed(a, b, step)
        package.step()
    ours = AFOR(a)
    with pytest.warns(UserWarning, match=r"afor-optimizer.*control included"):
        ours.load_state_dict(copy.deepcopy(package.state_dict()))
    for p, q in zip(a, b, strict=True):
        control = dict(zip(FIELDS, ours.state[p]["control"].tolist(), strict=True))
        theirs = package.state[q]
        assert ours.state[p]["step"].item() == 60
        assert torch.equal(ours.state[p]["exp_avg_sq"], theirs["exp_avg_sq"])
        assert control["score_mean"] == theirs["snr_ema"].item()
        product = theirs["beta2_cumprod"].item()
        assert control["correction"] == pytest.approx(1 - product, rel=1e-6)
    feed(a, b, 60)
    ours.step()
    assert all(p.isfinite().all() for p in a)


def test_the_options_of_the_package_are_taken_over_under_our_names():
    a, b, _, package = twins({"dir_weight": 0.5, "fast_ref": False})
    feed(a, b, 0)
    package.step()
    ours = AFOR(a)
    with pytest.warns(UserWarning, match="afor-optimizer"):
        ours.load_state_dict(package.state_dict())
    group = ours.param_groups[0]
    assert (group["direction_weight"], group["fast_channel"]) == (0.5, False)
    assert "dir_weight" not in group
    assert "fast_ref" not in group


@pytest.mark.parametrize("kind", ["sparse", "complex"])
def test_what_the_package_cannot_do_is_refused(kind):
    p = torch.nn.Parameter(torch.ones(2, 2, dtype=torch.cfloat if kind == "complex" else None))
    p.grad = torch.ones_like(p) if kind == "complex" else torch.ones(2, 2).to_sparse()
    with pytest.raises(RuntimeError, match="neither sparse nor complex"):
        ReleasedAFOR([p], lr=0.1).step()


def test_a_learning_rate_as_a_tensor_is_taken():
    a, b, ours, package = twins()
    ours.param_groups[0]["lr"] = torch.tensor(3e-3, dtype=torch.float64)
    feed(a, b, 0)
    ours.step()
    package.step()
    assert_same_bits(a, b)


def test_a_run_resumes_to_the_last_bit():
    a, b, ours, _ = twins()
    for step in range(5):
        feed(a, b, step)
        ours.step()
    saved = copy.deepcopy(ours.state_dict())
    c = [torch.nn.Parameter(p.detach().clone()) for p in a]
    resumed = ReleasedAFOR(c, lr=3e-3)
    resumed.load_state_dict(saved)
    for step in range(5, 25):
        feed(a, c, step)
        ours.step()
        resumed.step()
        assert_same_bits(a, c)
