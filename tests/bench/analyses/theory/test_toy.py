import numpy as np
import pytest

from afor.bench.analyses.theory.toy import (
    BATCH,
    FEATURES,
    WINDOWS,
    Toy,
    judge_toy,
    make_toy,
    run_toy,
)
from afor.bench.common.errors import ConfigError


@pytest.fixture(scope="module")
def toy():
    return make_toy()


def test_the_smoothness_is_the_curvature_at_zero(toy):
    step = 1e-5
    columns = [
        (toy.gradient(step * axis) - toy.gradient(-step * axis)) / (2 * step)
        for axis in np.eye(FEATURES)
    ]
    assert np.linalg.eigvalsh(np.array(columns))[-1] == pytest.approx(toy.smoothness, rel=1e-6)


def test_no_curvature_exceeds_the_smoothness(toy):
    draw = np.random.default_rng(0)
    for _ in range(20):
        a, b = draw.standard_normal((2, FEATURES))
        change = toy.gradient(a) - toy.gradient(b)
        assert np.linalg.norm(change) <= toy.smoothness * np.linalg.norm(a - b)


def test_gradients_and_noise_keep_to_their_bounds(toy):
    draw = np.random.default_rng(0)
    for scale in (0.0, 1.0, 100.0):
        weights = scale * draw.standard_normal(FEATURES)
        true = toy.gradient(weights)
        grads = np.array(
            [toy.gradient(weights, draw.integers(WINDOWS, size=BATCH)) for _ in range(200)]
        )
        assert np.abs(grads).max() <= toy.gradient_bound <= 1.0
        assert np.square(grads - true).sum(axis=1).mean() <= toy.noise_sq


def test_the_drift_is_the_papers_sum(toy, monkeypatch):
    true = []
    gradient = Toy.gradient

    def noted(self, weights, rows=None):
        found = gradient(self, weights, rows)
        if rows is None:
            true.append(found)
        return found

    monkeypatch.setattr(Toy, "gradient", noted)
    steps, beta1 = 25, 0.9
    run = run_toy(toy, 0.1, eps=1e-8, weight_decay=0.0, steps=steps)
    for t in (1, 2, steps):  # Eqs. (afor_momentum_weights) and (afor_gradient_drift)
        weights = (1 - beta1) * beta1 ** np.arange(t)[::-1] / (1 - beta1**t)
        drift = sum(w * (u - true[t - 1]) for w, u in zip(weights, true[:t], strict=True))
        assert run.drift_sq[t - 1] == pytest.approx(drift @ drift, abs=1e-15)
    assert run.drift_sq[-1] > 1e-6
    assert run.grad_sq == pytest.approx([u @ u for u in true])


@pytest.mark.parametrize("weight_decay", [0.0, 1e-4])
@pytest.mark.parametrize("eps", [1e-8, 1e-2, 1.0])
def test_at_the_largest_learning_rate_the_theorem_holds(toy, eps, weight_decay):
    judged = judge_toy(toy, eps=eps, weight_decay=weight_decay, steps=150)
    assert judged.lr <= judged.constants.largest_lr
    assert judged.run.grad_sq.mean() <= judged.bound.total
    assert judged.run.grad_sq.max() <= judged.assumptions.trivial_bound


def test_at_the_default_eps_the_bound_says_nothing_and_at_a_large_one_it_does(toy):
    default = judge_toy(toy, eps=1e-8, weight_decay=0.0, steps=100)
    large = judge_toy(toy, eps=1.0, weight_decay=0.0, steps=100)
    assert default.bound.total > 1e14 * default.assumptions.trivial_bound
    assert large.bound.total < large.assumptions.trivial_bound


def test_a_usual_learning_rate_is_far_from_permitted(toy):
    judged = judge_toy(toy, eps=1e-8, weight_decay=1e-4, steps=20, lr=1e-3)
    assert judged.lr == 1e-3
    assert judged.lr / judged.constants.largest_lr > 1e13


def test_settings_that_mean_nothing_are_refused(toy):
    with pytest.raises(ConfigError, match="must be above 0"):
        run_toy(toy, 0.0, eps=1e-8, weight_decay=0.0, steps=5)
