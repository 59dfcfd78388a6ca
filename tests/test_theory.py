"""Theorem 1 and Lemma 1 (docs/figures/theory.py) against numbers worked out by hand."""

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afor import AFOR
from afor.control import FIELDS

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "figures" / "theory.py"
spec = importlib.util.spec_from_file_location("theory", SCRIPT)
theory = importlib.util.module_from_spec(spec)
sys.modules["theory"] = theory  # dataclasses look it up
spec.loader.exec_module(theory)

SIMPLE = theory.Assumptions(
    smoothness=2.0,
    gradient_bound=1.0,
    noise_sq=1.0,
    drift_sq=np.zeros(2),
    gap=3.0,
    parameters=4,
    start_norm=0.5,
    beta1=0.5,
    eps=1.0,
    weight_decay=0.0,
)


def test_the_constants_by_hand():
    constants = theory.derive_constants(SIMPLE)
    assert (constants.alpha, constants.largest_factor) == (0.5, 1.0)
    # after one step all weight is on one gradient, after two it is 1/3 and 2/3: 5/9
    assert constants.tracking_sq == pytest.approx([2.0, 10 / 9])
    assert (constants.descent, constants.growth) == (0.25, 6.0)  # α/2 and 2·(1 + 2)
    assert constants.residual == pytest.approx([2.0, 10 / 9])  # κ²/(2·0.5)
    assert (constants.decay_norm, constants.descent_decayed) == (0.0, 0.125)
    assert constants.growth_decayed == 12.0
    assert constants.largest_lr == pytest.approx(0.125 / 24)


def test_the_bound_by_hand():
    constants = theory.derive_constants(SIMPLE)
    bound = theory.finite_bound(SIMPLE, constants, constants.largest_lr)
    assert bound.start == pytest.approx(6 / (0.125 * 2 / 192))
    assert bound.tracking == pytest.approx(2 * (14 / 9) / 0.125)
    assert bound.curvature == pytest.approx(1.0)  # at the largest learning rate, always
    assert bound.decay == 0.0
    assert bound.total == pytest.approx(bound.start + bound.tracking + 1.0)


def test_learning_rates_weigh_the_steps():
    constants = theory.derive_constants(SIMPLE)
    bound = theory.finite_bound(SIMPLE, constants, [0.001, 0.003])
    assert bound.start == pytest.approx(6 / (0.125 * 0.004))
    assert bound.tracking == pytest.approx(2 * (0.001 * 2 + 0.003 * 10 / 9) / (0.125 * 0.004))
    assert bound.curvature == pytest.approx(24 * 1e-5 / (0.125 * 0.004))


def test_weight_decay_by_hand():
    assumptions = replace(SIMPLE, weight_decay=0.5)
    constants = theory.derive_constants(assumptions)
    assert constants.decay_norm == 2.0  # 0.5 · max(0.5, √4·1/1 / 0.5)
    assert constants.growth_decayed == 20.0
    assert theory.finite_bound(assumptions, constants, 0.001).decay == pytest.approx(
        2 * 2.0**2 / 0.25**2
    )
    far = replace(assumptions, start_norm=100.0)
    assert theory.derive_constants(far).decay_norm == 50.0


def test_drift_enters_twice():
    assumptions = replace(SIMPLE, drift_sq=np.array([0.0, 3.0]))
    assert theory.derive_constants(assumptions).tracking_sq == pytest.approx([2.0, 6.0 + 10 / 9])
    assert theory.derive_constants(assumptions).growth == pytest.approx(2 * (1 + 6 + 10 / 9))


def test_the_noise_of_the_first_moment_tends_to_the_papers_limit():
    assert theory.momentum_noise(np.ones(500), 0.9)[-1] == pytest.approx(0.1 / 1.9)
    assert theory.momentum_noise(np.ones(500), 0.9)[0] == pytest.approx(1.0)


@pytest.mark.parametrize("eps", [1e-8, 1e-3, 1.0, 1e3, 1e9])
@pytest.mark.parametrize("largest", [1e-6, 1.0, 1e4])
def test_with_weight_decay_the_bound_is_never_below_the_trivial_one(eps, largest):
    """χ is at least √N G/ε, so 2(χ/a₀)² is at least 8(1 + G/ε)² N G²."""
    assumptions = replace(
        SIMPLE, gradient_bound=largest, eps=eps, noise_sq=0.0, gap=0.0, weight_decay=1e-4
    )
    decay = theory.finite_bound(assumptions, theory.derive_constants(assumptions), 1e-300).decay
    assert decay >= 8 * (1 + largest / eps) ** 2 * assumptions.trivial_bound * (1 - 1e-12)
    assert theory.steps_to_inform(assumptions, theory.derive_constants(assumptions)) == math.inf


def test_steps_after_which_the_bound_says_something():
    assumptions = replace(SIMPLE, noise_sq=0.0)
    constants = theory.derive_constants(assumptions)
    needed = theory.steps_to_inform(assumptions, constants)  # 6 L b / a² over 4 − 1
    assert needed == pytest.approx(6 * 2 * constants.growth_decayed / 0.125**2 / 3)
    longer = replace(assumptions, drift_sq=np.zeros(math.ceil(needed)))
    total = theory.finite_bound(
        longer, theory.derive_constants(longer), theory.derive_constants(longer).largest_lr
    ).total
    assert total == pytest.approx(assumptions.trivial_bound, rel=1e-3)


@pytest.fixture(scope="module")
def toy():
    return theory.make_toy()


def test_the_smoothness_is_the_curvature_at_zero(toy):
    step = 1e-5
    columns = [
        (toy.gradient(step * axis) - toy.gradient(-step * axis)) / (2 * step)
        for axis in np.eye(theory.FEATURES)
    ]
    assert np.linalg.eigvalsh(np.array(columns))[-1] == pytest.approx(toy.smoothness, rel=1e-6)


def test_no_curvature_exceeds_the_smoothness(toy):
    draw = np.random.default_rng(0)
    for _ in range(20):
        a, b = draw.standard_normal((2, theory.FEATURES))
        change = toy.gradient(a) - toy.gradient(b)
        assert np.linalg.norm(change) <= toy.smoothness * np.linalg.norm(a - b)


def test_gradients_and_noise_keep_to_their_bounds(toy):
    draw = np.random.default_rng(0)
    for scale in (0.0, 1.0, 100.0):
        weights = scale * draw.standard_normal(theory.FEATURES)
        true = toy.gradient(weights)
        grads = np.array(
            [
                toy.gradient(weights, draw.integers(theory.WINDOWS, size=theory.BATCH))
                for _ in range(200)
            ]
        )
        assert np.abs(grads).max() <= toy.gradient_bound <= 1.0
        assert np.square(grads - true).sum(axis=1).mean() <= toy.noise_sq


def test_the_drift_is_the_papers_sum(toy, monkeypatch):
    true = []
    gradient = theory.Toy.gradient

    def noted(self, weights, rows=None):
        found = gradient(self, weights, rows)
        if rows is None:
            true.append(found)
        return found

    monkeypatch.setattr(theory.Toy, "gradient", noted)
    steps, beta1 = 25, 0.9
    run = theory.run_toy(toy, 0.1, eps=1e-8, weight_decay=0.0, steps=steps)
    for t in (1, 2, steps):  # Eqs. (afor_momentum_weights) and (afor_gradient_drift)
        weights = (1 - beta1) * beta1 ** np.arange(t)[::-1] / (1 - beta1**t)
        drift = sum(w * (u - true[t - 1]) for w, u in zip(weights, true[:t], strict=True))
        assert run.drift_sq[t - 1] == pytest.approx(drift @ drift, abs=1e-15)
    assert run.drift_sq[-1] > 1e-6
    assert run.grad_sq == pytest.approx([u @ u for u in true])


@pytest.mark.parametrize("weight_decay", [0.0, 1e-4])
@pytest.mark.parametrize("eps", [1e-8, 1e-2, 1.0])
def test_at_the_largest_learning_rate_the_theorem_holds(toy, eps, weight_decay):
    judged = theory.judge_toy(toy, eps=eps, weight_decay=weight_decay, steps=150)
    assert judged.lr <= judged.constants.largest_lr
    assert judged.run.grad_sq.mean() <= judged.bound.total
    assert judged.run.grad_sq.max() <= judged.assumptions.trivial_bound


def test_at_the_default_eps_the_bound_says_nothing_and_at_a_large_one_it_does(toy):
    default = theory.judge_toy(toy, eps=1e-8, weight_decay=0.0, steps=100)
    large = theory.judge_toy(toy, eps=1.0, weight_decay=0.0, steps=100)
    assert default.bound.total > 1e14 * default.assumptions.trivial_bound
    assert large.bound.total < large.assumptions.trivial_bound


def test_a_usual_learning_rate_is_far_from_permitted(toy):
    judged = theory.judge_toy(toy, eps=1e-8, weight_decay=1e-4, steps=20, lr=1e-3)
    assert judged.lr == 1e-3
    assert judged.lr / judged.constants.largest_lr > 1e13


def test_settings_that_mean_nothing_are_refused(toy):
    with pytest.raises(ValueError, match="must be above 0"):
        theory.run_toy(toy, 0.0, eps=1e-8, weight_decay=0.0, steps=5)


TRACES = st.lists(st.floats(0.5, 0.9999), min_size=1, max_size=60)


def test_three_steps_by_hand():
    # raw weights: 0.5 · 0.8 · 0.75, 0.2 · 0.75, 0.25; the decays multiply to 0.3
    assert theory.weights([0.5, 0.8, 0.75]) == pytest.approx([0.3 / 0.7, 0.15 / 0.7, 0.25 / 0.7])


def test_the_length_is_the_mean_age_plus_one():
    expected = (3 * 0.3 + 2 * 0.15 + 1 * 0.25) / 0.7
    assert theory.memory_length([0.5, 0.8, 0.75])[-1] == pytest.approx(expected)


@pytest.mark.parametrize(("beta2", "steps"), [(0.99, 100), (0.999, 1000)])
def test_a_constant_decay_remembers_as_long_as_the_paper_says(beta2, steps):
    assert theory.memory_length(np.full(20 * steps, beta2))[-1] == pytest.approx(steps, rel=1e-4)


@given(TRACES)
def test_weights_sum_to_one_and_none_is_negative(trace):
    found = theory.weights(trace)
    assert found.sum() == pytest.approx(1.0, abs=1e-9)
    assert (found >= 0).all()
    ages = np.arange(len(trace), 0, -1)
    assert theory.memory_length(trace)[-1] == pytest.approx(found @ ages)


def test_weighted_squares_are_the_corrected_second_moment_of_afor():
    generator = torch.Generator().manual_seed(0)
    tensor = torch.nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimizer = AFOR([tensor], warmup_steps=5, statistics="calibrated")
    squares, trace = [], []
    for _ in range(40):
        tensor.grad = torch.randn(5, generator=generator, dtype=torch.float64)
        optimizer.step()
        squares.append(tensor.grad.square().numpy())
        control = optimizer.state[tensor]["control"]
        trace.append(1.0 - control[FIELDS.index("forgetting")].item())
    corrected = optimizer.state[tensor]["exp_avg_sq"] / control[FIELDS.index("correction")]
    assert np.ptp(trace[5:]) > 1e-3  # it did adapt
    np.testing.assert_allclose(
        theory.weights(trace) @ np.array(squares), corrected.numpy(), rtol=1e-10
    )


@given(TRACES, st.integers(0, 2**32 - 1))
def test_no_gradients_push_further_than_the_bound(trace, seed):
    beta1 = 0.9
    grads = np.random.default_rng(seed).standard_cauchy((len(trace), 3))
    momentum = (1 - beta1) * beta1 ** np.arange(len(trace))[::-1] / (1 - beta1 ** len(trace))
    first, second = momentum @ grads, theory.weights(trace) @ grads**2
    limit = theory.direction_bound(trace, beta1)[-1]
    assert (np.abs(first) <= limit * np.sqrt(second) * (1 + 1e-9)).all()
    assert limit >= 1 - 1e-9


def test_the_gradients_that_reach_the_bound():
    trace, beta1 = [0.99, 0.995, 0.99], 0.9
    momentum = (1 - beta1) * beta1 ** np.arange(3)[::-1] / (1 - beta1**3)
    grads = momentum / theory.weights(trace)
    reached = (momentum @ grads) / np.sqrt(theory.weights(trace) @ grads**2)
    assert theory.direction_bound(trace, beta1)[-1] == pytest.approx(reached)


def test_the_bound_of_a_long_constant_trace():
    expected = np.sqrt(0.1**2 / ((1 - 0.999) * (1 - 0.9**2 / 0.999)))
    assert theory.direction_bound(np.full(20_000, 0.999))[-1] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("trace", "words"), [([], "one number per step"), ([0.9, 1.0], "found 1.0"), ([[0.9]], "shape")]
)
def test_what_is_no_trace_is_refused(trace, words):
    with pytest.raises(ValueError, match=words):
        theory.weights(trace)


def test_the_page_shows_the_rows_that_the_script_prints(toy):
    page = (ROOT / "docs" / "analyses" / "theory.md").read_text("utf-8")
    for name, settings in theory.ROWS.items():
        assert f"| {name} | {' | '.join(theory.row(toy, *settings))} |" in page, name


def test_the_bound_and_what_happened_are_drawn_for_each_weight_decay(toy):
    eps = (1e-4, 1.0)
    sweeps = {
        decay: theory.sweep_eps(toy, weight_decay=decay, steps=20, eps=eps) for decay in (0.0, 1e-4)
    }
    rates, bounds = theory.toy_figure(sweeps).axes
    curves = {line.get_label(): line for line in bounds.lines}
    expected = [verdict.bound.total for verdict in sweeps[1e-4]]
    assert list(curves["bound, λ = 0.0001"].get_ydata()) == expected
    permitted = {line.get_label(): line for line in rates.lines}["λ = 0"]
    assert list(permitted.get_ydata()) == [verdict.lr for verdict in sweeps[0.0]]


def test_the_page_quotes_the_bound_of_a_constant_memory():
    assert round(theory.direction_bound(np.full(5000, 0.99)).max(), 2) == 2.35
    assert "2.35 for a constant β₂ of 0.99" in (ROOT / "docs/analyses/theory.md").read_text("utf-8")
