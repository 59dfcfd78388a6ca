"""variant="released" against the package afor-optimizer 0.1.0, bit for bit."""

import copy

import pytest
import torch

from afor import AFOR
from afor.control import FIELDS

released = pytest.importorskip("AFOR", reason="the package afor-optimizer is not installed")
SHAPES = [(), (1,), (2,), (8,), (41, 53)]


def twins(options=None, theirs=None):
    """Return both optimizers on equal parameters."""
    start = [torch.linspace(-1, 1, max(1, torch.Size(s).numel())).reshape(s) for s in SHAPES]
    a = [torch.nn.Parameter(p.clone()) for p in start]
    b = [torch.nn.Parameter(p.clone()) for p in start]
    options = options or {}
    ours = AFOR(a, lr=3e-3, variant="released", **options)
    return a, b, ours, released.afor(b, lr=3e-3, **(theirs if theirs is not None else options))


def feed(a, b, step, scale=1.0):
    generator = torch.Generator().manual_seed(step)
    for p, q in zip(a, b, strict=True):
        p.grad = torch.randn(p.shape, generator=generator) * scale + 0.1 * scale
        q.grad = p.grad.clone()


def assert_same_bits(a, b):
    for p, q in zip(a, b, strict=True):
        assert torch.equal(p.detach().view(torch.int32), q.detach().view(torch.int32))


@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        ({}, None),
        ({"weight_decay": 0.1}, None),
        ({"betas": (0.8, 0.99), "beta2_min": 0.9, "eps": 1e-6}, None),
        ({"direction_weight": 0.0}, {"dir_weight": 0.0}),
        ({"direction_weight": 2.0}, {"dir_weight": 2.0}),
        ({"fast_channel": False}, {"fast_ref": False}),
        ({"beta2_min": 0.999}, None),
    ],
    ids=["defaults", "weight decay", "other decays", "w/o DC", "w=2", "w/o FC", "fixed"],
)
def test_every_step_equals_the_package(options, theirs):
    a, b, ours, package = twins(options, theirs)
    for step in range(120):  # crosses the warm-up of 100
        feed(a, b, step)
        ours.step()
        package.step()
        assert_same_bits(a, b)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-12, 1e-8, 1e-5, 1e5, 1e15])
def test_zero_tiny_and_huge_gradients_equal_the_package(scale):
    a, b, ours, package = twins({"weight_decay": 0.01})
    for step in range(110):
        feed(a, b, step, scale)
        ours.step()
        package.step()
        assert_same_bits(a, b)


def test_the_controller_of_the_package_is_in_the_control_vector():
    a, b, ours, package = twins()
    names = {
        "noise_fast": "noise_fast",
        "noise_slow": "noise_slow",
        "agreement": "dir_ema",
        "score_mean": "snr_ema",
        "score_var": "snr_var_ema",
        "score": "snr_t",
        "zscore": "z_t",
        "correction": "beta2_cumprod",
    }
    for step in range(120):
        feed(a, b, step)
        ours.step()
        package.step()
    for p, q in zip(a, b, strict=True):
        control = dict(zip(FIELDS, ours.state[p]["control"].tolist(), strict=True))
        for mine, name in names.items():
            assert control[mine] == package.state[q][name].item(), mine


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
    ours = AFOR(a, variant="released")
    with pytest.warns(UserWarning, match="afor-optimizer"):
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
    a, b, _, package = twins({"direction_weight": 0.5}, {"dir_weight": 0.5, "fast_ref": False})
    feed(a, b, 0)
    package.step()
    ours = AFOR(a, variant="released")
    with pytest.warns(UserWarning, match="afor-optimizer"):
        ours.load_state_dict(package.state_dict())
    group = ours.param_groups[0]
    assert (group["direction_weight"], group["fast_channel"]) == (0.5, False)
    assert "dir_weight" not in group
    assert "fast_ref" not in group


@pytest.mark.parametrize("choice", ["foreach", "fused"])
def test_the_variant_has_a_for_loop_only(choice):
    with pytest.raises(RuntimeError, match="for-loop only"):
        AFOR([torch.nn.Parameter(torch.ones(1))], variant="released", **{choice: True})


def test_a_run_of_the_variant_resumes_to_the_last_bit():
    a, b, ours, _ = twins()
    for step in range(5):
        feed(a, b, step)
        ours.step()
    saved = copy.deepcopy(ours.state_dict())
    c = [torch.nn.Parameter(p.detach().clone()) for p in a]
    resumed = AFOR(c, variant="released")
    resumed.load_state_dict(saved)
    for step in range(5, 25):
        feed(a, c, step)
        ours.step()
        resumed.step()
        assert_same_bits(a, c)
