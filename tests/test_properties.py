"""What Sec. VI of the paper proves, on thousands of drawn gradient sequences."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from afor import AFOR
from afor.control import FIELDS, ControlSettings, Sums, advance, initial_control

FORGETTING, CORRECTION = FIELDS.index("forgetting"), FIELDS.index("correction")
TENSORS, STEPS = 12, 24
EXAMPLES = [10, pytest.param(250, marks=pytest.mark.slow)]  # for each implementation

decays = st.floats(0.0, 0.9999)
bounds = st.tuples(decays, decays).map(sorted)  # (beta2_min, beta2_init)
options = st.fixed_dictionaries(
    {
        "beta1": st.floats(0.0, 0.99),
        "bounds": bounds,
        "eps": st.sampled_from([0.0, 1e-12, 1e-8, 1e-2]),
        "direction_weight": st.floats(0.0, 5.0),
        "direction_decay": st.floats(0.0, 0.99),
        "warmup_steps": st.integers(0, 30),
        "fast_channel": st.booleans(),
        "normalization": st.sampled_from(["self", "fixed"]),
        "statistics": st.sampled_from(["paper", "calibrated"]),
        "zscore_clip": st.floats(0.1, 50.0),
    }
)


def settings_of(drawn: dict) -> ControlSettings:
    rest = {k: v for k, v in drawn.items() if k != "bounds"}
    return ControlSettings(beta2=drawn["bounds"][1], beta2_min=drawn["bounds"][0], **rest)


def optimizer_options(drawn: dict) -> dict:
    rest = {k: v for k, v in drawn.items() if k not in ("bounds", "beta1")}
    return {
        "betas": (drawn["beta1"], drawn["bounds"][1]),
        "beta2_min": drawn["bounds"][0],
        **rest,
    }


def streams(seed: int, shape: tuple[int, ...], decades: float) -> Tensor:
    """Draw gradients of all sizes, with zeros, repeats and sign flips among them."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    spread = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
    values = values * 10.0 ** (spread * decades)
    case = torch.randint(0, 10, shape, generator=generator)
    values[case == 0] = 0.0
    return torch.where(case == 1, values.roll(1, dims=0).neg(), values)


def run(implementation: dict, drawn: dict, seed: int, *, dtype=torch.float64, **extra):
    """Step TENSORS small tensors STEPS times; yield parameters, state and gradients so far."""
    params = [torch.nn.Parameter(torch.zeros(3, dtype=dtype)) for _ in range(TENSORS)]
    with torch.no_grad():
        for i, p in enumerate(params):
            p.add_(i - TENSORS / 2)
    optimizer = AFOR(params, **{**optimizer_options(drawn), **implementation, **extra})
    grads = streams(seed, (STEPS, TENSORS, 3), decades=3).to(dtype)
    for t in range(STEPS):
        for p, g in zip(params, grads[t], strict=True):
            p.grad = g
        optimizer.step()
        state = {
            name: torch.stack([optimizer.state[p][name] for p in params])
            for name in ("exp_avg", "exp_avg_sq", "control")
        }
        yield t, torch.stack([p.detach() for p in params]), state, grads[: t + 1]


def for_drawn(*strategies: st.SearchStrategy[Any]) -> Callable[..., Any]:
    """Make a test: a property holds for a few drawn arguments, in the long version for many."""

    def test_of(holds: Callable[..., None]) -> Callable[..., None]:
        @pytest.mark.parametrize("examples", EXAMPLES)
        def test(implementation, examples):
            @settings(max_examples=examples)
            @given(st.tuples(*strategies))
            def check(drawn):
                holds(implementation, *drawn)

            check()

        return test

    return test_of


@settings(max_examples=60, deadline=None)
@given(options, st.integers(0, 2**31), st.booleans())
def test_beta2_stays_within_its_bounds_whatever_the_sums(drawn, seed, spoil):
    s = settings_of(drawn)
    tensors = 200
    control = torch.tensor(initial_control(s), dtype=torch.float64)[:, None].repeat(1, tensors)
    grads = streams(seed, (30, 4, tensors), decades=30)
    if spoil:
        grads[7, 0, ::3], grads[11, 1, ::5] = math.nan, math.inf
    momentum = torch.zeros(4, tensors, dtype=torch.float64)
    for t, grad in enumerate(grads, start=1):
        after = s.beta1 * momentum + (1 - s.beta1) * grad
        sums = Sums(
            (grad - momentum).abs().mean(0),
            after.abs().mean(0),
            (grad * grad).sum(0),
            (momentum * momentum).sum(0),
            (grad * momentum).sum(0),
        )
        momentum = after.nan_to_num(0.0, 0.0, 0.0)
        step = torch.full((tensors,), float(t), dtype=torch.float64)
        control, coefficients = advance(control, step, sums, s)
        q = coefficients.forgetting
        assert ((q >= 1 - s.beta2 - 1e-15) & (q <= 1 - s.beta2_min + 1e-15)).all()
        assert control.isfinite().all()
        named = dict(zip(FIELDS, control, strict=True))
        assert ((named["agreement"] >= 0) & (named["agreement"] <= 1 + 1e-12)).all()
        assert (named["score"] >= 0).all()
        assert (named["correction"] > 0).all()
        if s.normalization == "self":
            assert (named["zscore"].abs() <= s.zscore_clip).all()


@for_drawn(options, st.integers(0, 2**31), st.sampled_from([torch.float32, torch.float64]))
def test_beta2_of_a_training_stays_within_its_bounds(implementation, drawn, seed, dtype):
    low, high = drawn["bounds"]
    ends = torch.tensor([1 - high, 1 - low], dtype=torch.float64).to(dtype)
    for _, _, state, _ in run(implementation, drawn, seed, dtype=dtype):
        q = state["control"][:, FORGETTING]
        assert (q >= ends[0] - 1e-15).all()
        assert (q <= ends[1] + 1e-15).all()


@for_drawn(options, st.integers(0, 2**31))
def test_the_weights_of_the_past_telescope_to_one_minus_c(implementation, drawn, seed):
    q = []
    for t, _, state, grads in run(implementation, drawn, seed):
        q.append(state["control"][:, FORGETTING])
        correction = state["control"][:, CORRECTION]
        history = torch.stack(q)  # (steps, tensors)
        keep = (1 - history).flip(0).cumprod(0).flip(0).roll(-1, 0)
        keep[-1] = 1.0  # prod over j > i of beta2_j
        weights = history * keep
        # sum_i (1 - beta2_i) prod_{j>i} beta2_j = 1 - C_t, from the first step on above zero
        torch.testing.assert_close(weights.sum(0), correction, rtol=1e-11, atol=0.0)
        assert (correction > 0).all()
        assert (correction >= 1 - drawn["bounds"][1] ** (t + 1) - 1e-12).all()
        # Lemma 1: v_hat is the convex combination of the squares with these weights
        convex = weights / correction
        assert (convex >= 0).all()
        torch.testing.assert_close(
            convex.sum(0), torch.ones(TENSORS, dtype=torch.float64), rtol=1e-11, atol=0.0
        )
        v_hat = state["exp_avg_sq"] / correction[:, None]
        mixed = (convex[..., None] * grads * grads).sum(0)
        torch.testing.assert_close(v_hat, mixed, rtol=1e-9, atol=1e-30)


@for_drawn(options, st.integers(0, 2**31))
def test_the_corrected_moments_stay_within_the_largest_gradient(implementation, drawn, seed):
    beta1 = drawn["beta1"]
    for t, _, state, grads in run(implementation, drawn, seed):
        largest = grads.abs().amax(0) * (1 + 1e-12)
        v_hat = state["exp_avg_sq"] / state["control"][:, CORRECTION, None]
        assert (v_hat >= 0).all()
        assert (v_hat <= largest**2).all()
        m_hat = state["exp_avg"] / (1 - beta1 ** (t + 1))
        assert (m_hat.abs() <= largest).all()


@for_drawn(
    options.filter(lambda o: o["eps"] > 0),
    st.integers(0, 2**31),
    st.floats(1e-3, 1.0),
    st.floats(1e-3, 1.0),
)
def test_decoupled_decay_bounds_the_norm_of_the_parameters(implementation, drawn, seed, lr, decay):
    eps = drawn["eps"]
    start = math.sqrt(sum(3 * (i - TENSORS / 2) ** 2 for i in range(TENSORS)))
    previous = None
    for _, theta, _, grads in run(implementation, drawn, seed, lr=lr, weight_decay=decay):
        largest = grads.abs().max().item()
        # |p_t| <= G / eps in every element, so |theta| <= max(|theta_0|, sqrt(N) G / (eps lambda))
        reach = math.sqrt(theta.numel()) * largest / eps / decay
        assert theta.norm().item() <= max(start, reach) * (1 + 1e-9)
        if previous is not None:
            push = (theta - (1 - lr * decay) * previous).abs().max().item() / lr
            assert push <= largest / eps * (1 + 1e-6) + 1e-9
        previous = theta


@for_drawn(options, st.integers(0, 2**31), st.integers(-60, 60))
def test_without_eps_beta2_does_not_depend_on_the_scale_of_the_gradient(
    implementation, drawn, seed, exponent
):
    drawn = {**drawn, "eps": 0.0}
    params = [torch.nn.Parameter(torch.zeros(5, dtype=torch.float64)) for _ in range(2)]
    pair = [AFOR([p], **{**optimizer_options(drawn), **implementation}) for p in params]
    for grad in streams(seed, (STEPS, 5), decades=2):
        for p, optimizer, factor in zip(params, pair, (1.0, 2.0**exponent), strict=True):
            p.grad = grad * factor
            optimizer.step()
        a, b = (o.state[p]["control"] for o, p in zip(pair, params, strict=True))
        assert torch.equal(a[2:], b[2:])  # all but the two noise averages, to the last bit
