"""Every implementation against the reference, step by step and number by number."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

from afor import AFOR
from afor.control import FIELDS, ControlSettings, initial_control
from afor.reference import ReferenceState, reference_step

SHAPES = [(), (0,), (1,), (2,), (8,), (37, 61)]
STEPS = 210  # crosses the warm-up of 100 and leaves as many steps again
SHORT = 115  # crosses it too, where there are many cases
ABLATIONS = {
    "w/o DC": {"direction_weight": 0.0},
    "w/o FC": {"fast_channel": False},
    "w/o SRN": {"normalization": "fixed"},
    "w/o TSG": {"warmup_steps": 0},
    "w/o EC": {"correction": "fixed"},
    "fixed": {"beta2_min": 0.999},
    "calibrated": {"statistics": "calibrated"},
    "strong discount": {"direction_weight": 3.0},
    "all at once": {
        "direction_weight": 0.3,
        "fast_channel": False,
        "normalization": "fixed",
        "fixed_mean": 0.2,
        "fixed_scale": 0.5,
        "warmup_steps": 7,
        "correction": "fixed",
        "direction_decay": 0.5,
    },
    "other settings": {
        "betas": (0.8, 0.99),
        "beta2_min": 0.5,
        "eps": 1e-4,
        "weight_decay": 0.1,
        "zscore_clip": 0.25,
        "warmup_steps": 30,
        "direction_decay": 0.0,
    },
    "no momentum": {"betas": (0.0, 0.9), "beta2_min": 0.0},
}


@cache  # 30 MB; every implementation asks for the same
def gradients(pattern: str, step: int, shape: tuple[int, ...]) -> Tensor:
    """Return the gradient of one step in float64, the same whenever it is asked for."""
    generator = torch.Generator().manual_seed(7919 * step + math.prod(shape))
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    drift = math.sin(step / 25)
    if pattern == "noise":
        return noise + drift
    if pattern == "constant":
        return torch.linspace(0.5, 1.5, math.prod(shape), dtype=torch.float64).reshape(shape)
    if pattern == "flip":
        return (-1.0) ** step * (noise.abs() + 1.0)
    if pattern == "zeros":
        return torch.zeros(shape, dtype=torch.float64)
    if pattern == "late":
        return (noise + drift) * (step > 30)
    assert pattern == "spikes"
    return noise * (1000.0 if step % 50 == 0 else 0.1)


@dataclass(frozen=True)
class Path:
    """The numbers after every step: one row a step, the tensors one after another."""

    params: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor
    control: Tensor  # (step, tensor, field)


@dataclass(frozen=True)
class Stream:
    """The gradients of a training, one tensor per shape."""

    dtype: torch.dtype
    pattern: str
    steps: int
    factor: float = 1.0

    def parameters(self) -> list[Tensor]:
        return [torch.linspace(-1, 1, math.prod(s)).reshape(s).to(self.dtype) for s in SHAPES]

    def gradients(self) -> Iterator[list[Tensor]]:
        for step in range(1, self.steps + 1):
            grads = (gradients(self.pattern, step, s) * self.factor for s in SHAPES)
            yield [g.to(self.dtype) for g in grads]


def actual_and_expected(stream: Stream, **options) -> tuple[Path, Path]:
    """Train with AFOR and with the reference."""
    options = {"lr": 1e-2, **options}
    forced = ("foreach", "fused")
    equations = tuple((k, v) for k, v in options.items() if k not in forced)
    return actual(stream, options), expected(stream, equations)


def actual(stream: Stream, options: dict) -> Path:
    params = [torch.nn.Parameter(p) for p in stream.parameters()]
    optimizer = AFOR(params, **{"weight_decay": 0.0, **options})
    rows = []
    for grads in stream.gradients():
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        optimizer.step()
        states = [optimizer.state[p] for p in params]
        moments = (flat(s[name] for s in states) for name in ("exp_avg", "exp_avg_sq"))
        control = torch.stack([s["control"] for s in states]).double()
        rows.append((flat(params), *moments, control))
    return Path(*map(torch.stack, zip(*rows, strict=True)))


@lru_cache(maxsize=12)  # every implementation asks for the same
def expected(stream: Stream, equations: tuple[tuple[str, Any], ...]) -> Path:
    options = dict(equations)
    sign = -1.0 if options.pop("maximize", False) else 1.0
    theta = [p.double() for p in stream.parameters()]
    statistics = options.get("statistics", "paper")
    states = [ReferenceState.start(p, statistics=statistics) for p in theta]
    rows = []
    for grads in stream.gradients():
        control = []
        for i, (state, grad) in enumerate(zip(states, grads, strict=True)):
            theta[i], seen = reference_step(theta[i], sign * grad, state, **options)
            control.append(
                [
                    state.noise_fast,
                    state.noise_slow,
                    state.agreement,
                    state.score_mean,
                    state.score_var,
                    seen.score,
                    seen.zscore,
                    1.0 - seen.beta2,
                    1.0 - state.decay_product,
                ]
            )
        moments = (flat(getattr(s, name) for s in states) for name in ("exp_avg", "exp_avg_sq"))
        rows.append((flat(theta), *moments, torch.tensor(control, dtype=torch.float64)))
    return Path(*map(torch.stack, zip(*rows, strict=True)))


def check_control(paths: tuple[Path, Path], *, rtol: float, atol: float, noise_atol: float) -> None:
    floor = torch.full((len(FIELDS),), atol, dtype=torch.float64)
    floor[:2] = noise_atol  # noise has the unit of the gradient, the rest has none
    held, wanted = (path.control for path in paths)
    close(held, wanted, rtol, floor, "(step, tensor, field)")


def check_moments(paths: tuple[Path, Path], *, rtol: float) -> None:
    for name in ("exp_avg", "exp_avg_sq"):
        held, wanted = (getattr(path, name) for path in paths)
        close(held, wanted, rtol, rtol * wanted.abs().amax(1, keepdim=True), f"{name} (step, ...)")


def check_params(paths: tuple[Path, Path], *, rtol: float, atol: float) -> None:
    close(paths[0].params, paths[1].params, rtol, atol, "parameters (step, ...)")


def flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors]).double()


def close(actual: Tensor, expected: Tensor, rtol: float, atol: float | Tensor, what: str) -> None:
    """Compare as torch.testing does, ten times faster where all is well."""
    assert actual.shape == expected.shape
    bad = ~((actual - expected).abs() <= atol + rtol * expected.abs())
    if bad.any():
        where = bad.nonzero()[:5].tolist()
        pytest.fail(f"{what} at {where}: {actual[bad][:5]} instead of {expected[bad][:5]}")


@pytest.mark.parametrize("pattern", ["noise", "constant", "flip", "zeros", "late", "spikes"])
def test_float64_is_the_reference_at_every_step(implementation, pattern):
    stream = Stream(torch.float64, pattern, STEPS)
    paths = actual_and_expected(stream, weight_decay=0.05, **implementation)
    check_control(paths, rtol=1e-10, atol=1e-12, noise_atol=1e-14)
    check_moments(paths, rtol=1e-12)
    check_params(paths, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", list(ABLATIONS))
def test_each_ablation_is_the_reference_at_every_step(implementation, name):
    stream = Stream(torch.float64, "noise", SHORT)
    paths = actual_and_expected(stream, **ABLATIONS[name], **implementation)
    if name == "fixed":  # no score is computed where it has no effect
        held, wanted = (path.control for path in paths)
        initial = torch.tensor(initial_control(ControlSettings())[:7], dtype=torch.float64)
        assert (held[..., :7] == initial).all()
        close(held[..., 7:], wanted[..., 7:], 1e-9, 1e-12, "forgetting and correction")
    else:
        check_control(paths, rtol=1e-9, atol=1e-12, noise_atol=1e-14)
    check_moments(paths, rtol=1e-12)
    check_params(paths, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("exponent", [-30, -20, -10, -4, 4, 10, 20, 30])
def test_float64_is_the_reference_at_every_magnitude(implementation, exponent):
    stream = Stream(torch.float64, "noise", SHORT, factor=10.0**exponent)
    paths = actual_and_expected(stream, **implementation)
    unit = min(1.0, 10.0**exponent)
    check_control(paths, rtol=1e-10, atol=1e-12 * unit, noise_atol=1e-14 * unit)
    check_params(paths, rtol=1e-11, atol=1e-12 * min(1.0, unit / 1e-8))


@pytest.mark.parametrize("exponent", [-30, -19, -10, -4, 0, 4, 10, 18, 30])
def test_float32_control_is_the_reference_at_every_magnitude(implementation, exponent):
    # Stated tolerance: 2e-5 of the value, 2e-6 for what lies near zero; beta2 itself to 2e-8.
    stream = Stream(torch.float32, "noise", SHORT, factor=10.0**exponent)
    paths = actual_and_expected(stream, **implementation)
    check_control(paths, rtol=2e-5, atol=2e-6, noise_atol=1e-7 * 10.0**exponent)
    held, wanted = (1.0 - path.control[..., FIELDS.index("forgetting")] for path in paths)
    close(held, wanted, 0.0, 2e-8, "beta2")
    if exponent <= 18:  # beyond, the squares leave float32: see the next test
        check_params(paths, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pattern", ["flip", "zeros", "late", "spikes"])
def test_float32_follows_the_reference_on_hard_streams(implementation, pattern):
    stream = Stream(torch.float32, pattern, STEPS)
    paths = actual_and_expected(stream, weight_decay=0.05, **implementation)
    check_control(paths, rtol=2e-5, atol=2e-6, noise_atol=1e-7)
    check_params(paths, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("exponent", [-30, 30])
def test_outside_the_range_of_float32_squares_the_parameter_does_what_adamw_does(
    implementation, exponent
):
    ours = torch.nn.Parameter(torch.linspace(-1, 1, 64))
    theirs = torch.nn.Parameter(ours.detach().clone())
    a = AFOR([ours], lr=1e-2, weight_decay=0.1, **implementation)
    b = torch.optim.AdamW([theirs], lr=1e-2, weight_decay=0.1)
    for step in range(1, 151):
        ours.grad = (gradients("noise", step, (64,)) * 10.0**exponent).float()
        theirs.grad = ours.grad.clone()
        a.step()
        b.step()
        close(flat([ours]), flat([theirs]), 1e-6, 1e-7, f"step {step}")
    assert ours.isfinite().all()


def test_zero_gradients_for_ever_leave_the_parameter_and_decay_the_agreement(implementation):
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = AFOR([p], weight_decay=0.0, **implementation)
    for step in range(1, 301):
        p.grad = torch.zeros(2)
        optimizer.step()
        control = dict(zip(FIELDS, optimizer.state[p]["control"].tolist(), strict=True))
        assert control["agreement"] == pytest.approx(0.9**step, rel=1e-4, abs=1e-12)
        assert control["score"] == 0.0
    assert p.tolist() == [1.0, -2.0]


def test_maximize_is_the_reference_on_the_negated_gradient(implementation):
    stream = Stream(torch.float64, "noise", 120)
    paths = actual_and_expected(stream, maximize=True, weight_decay=0.1, **implementation)
    check_control(paths, rtol=1e-10, atol=1e-12, noise_atol=1e-14)
    check_params(paths, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_equal_bounds_are_adamw_over_a_thousand_steps(implementation, dtype):
    start = torch.linspace(-1, 1, 50, dtype=dtype)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    common = {"lr": 1e-2, "betas": (0.9, 0.995), "eps": 1e-8, "weight_decay": 0.1}
    a = AFOR([ours], beta2_min=0.995, **common, **implementation)
    b = torch.optim.AdamW([theirs], foreach=False, **common)
    rounding = 1e-13 if dtype == torch.float64 else 3e-6
    paths = torch.empty(2, 1000, 50, dtype=torch.float64)
    for step in range(1000):
        ours.grad = gradients("noise", step + 1, (50,)).to(dtype, copy=True)
        theirs.grad = ours.grad.clone()
        a.step()
        b.step()
        paths[0, step], paths[1, step] = ours.detach(), theirs.detach()
    close(paths[0], paths[1], rounding, rounding, "parameters (step, ...)")
    assert (ours.detach() - start).abs().min() > 1e-3  # both went somewhere
