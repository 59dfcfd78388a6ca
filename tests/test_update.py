"""Every implementation against the reference, step by step and number by number."""

import math
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

from afor import AFOR
from afor.control import FIELDS
from afor.reference import ReferenceState, reference_step

SHAPES = [(), (0,), (1,), (2,), (8,), (37, 61)]
STEPS = 260  # crosses the warm-up of 100 and leaves as many steps again
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


class Pair:
    """AFOR and the reference on the same gradients, one tensor per shape."""

    def __init__(self, dtype: torch.dtype, **options):
        self.dtype, self.options = dtype, {"lr": 1e-2, **options}
        start = [torch.linspace(-1, 1, math.prod(s)).reshape(s).to(dtype) for s in SHAPES]
        self.params = [torch.nn.Parameter(p) for p in start]
        self.theta = [p.double() for p in start]
        statistics = options.get("statistics", "paper")
        self.states = [ReferenceState.start(p, statistics=statistics) for p in self.theta]
        self.optimizer = AFOR(self.params, **self.options)
        forced = ("foreach", "fused", "maximize")
        self.reference = {k: v for k, v in self.options.items() if k not in forced}

    def step(self, grads: list[Tensor]) -> None:
        sign = -1.0 if self.options.get("maximize") else 1.0
        self.seen = []
        for i, (p, g) in enumerate(zip(self.params, grads, strict=True)):
            p.grad = g.to(self.dtype)
            self.theta[i], seen = reference_step(
                self.theta[i], sign * p.grad, self.states[i], **self.reference
            )
            self.seen.append(seen)
        self.optimizer.step()

    def control(self) -> Tensor:
        return torch.stack([self.optimizer.state[p]["control"].double() for p in self.params])

    def expected_control(self) -> Tensor:
        rows = [
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
            for state, seen in zip(self.states, self.seen, strict=True)
        ]
        return torch.tensor(rows, dtype=torch.float64)

    def check_control(self, *, rtol: float, atol: float, noise_atol: float) -> None:
        floor = torch.full((len(FIELDS),), atol, dtype=torch.float64)
        floor[:2] = noise_atol  # noise has the unit of the gradient, the rest has none
        close(self.control(), self.expected_control(), rtol, floor, "(tensor, field)")

    def check_moments(self, *, rtol: float) -> None:
        for name in ("exp_avg", "exp_avg_sq"):
            held = flat(self.optimizer.state[p][name] for p in self.params)
            wanted = flat(getattr(state, name) for state in self.states)
            close(held, wanted, rtol, rtol * wanted.abs().max().item(), name)

    def check_params(self, *, rtol: float, atol: float) -> None:
        close(flat(self.params), flat(self.theta), rtol, atol, "parameters")


def flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([t.detach().double().reshape(-1) for t in tensors])


def close(actual: Tensor, expected: Tensor, rtol: float, atol: float | Tensor, what: str) -> None:
    """Compare as torch.testing does, ten times faster where all is well."""
    bad = ~((actual - expected).abs() <= atol + rtol * expected.abs())
    if bad.any():
        where = bad.nonzero()[:5].tolist()
        pytest.fail(f"{what} at {where}: {actual[bad][:5]} instead of {expected[bad][:5]}")


@pytest.mark.parametrize("pattern", ["noise", "constant", "flip", "zeros", "late", "spikes"])
def test_float64_is_the_reference_at_every_step(implementation, pattern):
    pair = Pair(torch.float64, weight_decay=0.05, **implementation)
    for step in range(1, STEPS + 1):
        pair.step([gradients(pattern, step, s) for s in SHAPES])
        pair.check_control(rtol=1e-10, atol=1e-12, noise_atol=1e-14)
        pair.check_moments(rtol=1e-12)
        pair.check_params(rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", list(ABLATIONS))
def test_each_ablation_is_the_reference_at_every_step(implementation, name):
    pair = Pair(torch.float64, **ABLATIONS[name], **implementation)
    for step in range(1, SHORT + 1):
        pair.step([gradients("noise", step, s) for s in SHAPES])
        pair.check_control(rtol=1e-9, atol=1e-12, noise_atol=1e-14)
        pair.check_params(rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("exponent", [-30, -20, -10, -4, 4, 10, 20, 30])
def test_float64_is_the_reference_at_every_magnitude(implementation, exponent):
    pair = Pair(torch.float64, **implementation)
    for step in range(1, SHORT + 1):
        pair.step([gradients("noise", step, s) * 10.0**exponent for s in SHAPES])
        unit = min(1.0, 10.0**exponent)
        pair.check_control(rtol=1e-10, atol=1e-12 * unit, noise_atol=1e-14 * unit)
        pair.check_params(rtol=1e-11, atol=1e-12 * min(1.0, unit / 1e-8))


@pytest.mark.parametrize("exponent", [-30, -19, -10, -4, 0, 4, 10, 18, 30])
def test_float32_control_is_the_reference_at_every_magnitude(implementation, exponent):
    # Stated tolerance: 2e-5 of the value, 2e-6 for what lies near zero; beta2 itself to 2e-8.
    pair = Pair(torch.float32, **implementation)
    for step in range(1, SHORT + 1):
        pair.step([gradients("noise", step, s) * 10.0**exponent for s in SHAPES])
        pair.check_control(rtol=2e-5, atol=2e-6, noise_atol=1e-7 * 10.0**exponent)
        beta2 = torch.tensor([seen.beta2 for seen in pair.seen], dtype=torch.float64)
        close(1.0 - pair.control()[:, FIELDS.index("forgetting")], beta2, 0.0, 2e-8, "beta2")
        if exponent <= 18:  # beyond, the squares leave float32: see the next test
            pair.check_params(rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pattern", ["flip", "zeros", "late", "spikes"])
def test_float32_follows_the_reference_on_hard_streams(implementation, pattern):
    pair = Pair(torch.float32, weight_decay=0.05, **implementation)
    for step in range(1, STEPS + 1):
        pair.step([gradients(pattern, step, s) for s in SHAPES])
        pair.check_control(rtol=2e-5, atol=2e-6, noise_atol=1e-7)
        pair.check_params(rtol=1e-5, atol=3e-6)


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
    optimizer = AFOR([p], **implementation)
    for step in range(1, 301):
        p.grad = torch.zeros(2)
        optimizer.step()
        control = dict(zip(FIELDS, optimizer.state[p]["control"].tolist(), strict=True))
        assert control["agreement"] == pytest.approx(0.9**step, rel=1e-4, abs=1e-12)
        assert control["score"] == 0.0
    assert p.tolist() == [1.0, -2.0]


def test_maximize_is_the_reference_on_the_negated_gradient(implementation):
    pair = Pair(torch.float64, maximize=True, weight_decay=0.1, **implementation)
    for step in range(1, 121):
        pair.step([gradients("noise", step, s) for s in SHAPES])
        pair.check_control(rtol=1e-10, atol=1e-12, noise_atol=1e-14)
        pair.check_params(rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_equal_bounds_are_adamw_over_a_thousand_steps(implementation, dtype):
    start = torch.linspace(-1, 1, 50, dtype=dtype)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    common = {"lr": 1e-2, "betas": (0.9, 0.995), "eps": 1e-8, "weight_decay": 0.1}
    a = AFOR([ours], beta2_min=0.995, **common, **implementation)
    b = torch.optim.AdamW([theirs], foreach=False, **common)
    rounding = 1e-13 if dtype == torch.float64 else 3e-6
    for step in range(1, 1001):
        ours.grad = gradients("noise", step, (50,)).to(dtype)
        theirs.grad = ours.grad.clone()
        a.step()
        b.step()
        close(flat([ours]), flat([theirs]), rounding, rounding, f"step {step}")
    assert (ours.detach() - start).abs().min() > 1e-3  # both went somewhere
