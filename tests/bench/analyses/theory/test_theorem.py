"""The constants and the bound of Theorem 1 against numbers worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from afor.bench.analyses.theory.theorem import (
    Assumptions,
    derive_constants,
    finite_bound,
    momentum_noise,
    steps_to_inform,
)

SIMPLE = Assumptions(
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
    constants = derive_constants(SIMPLE)
    assert (constants.alpha, constants.largest_factor) == (0.5, 1.0)
    # after one step all weight is on one gradient, after two it is 1/3 and 2/3: 5/9
    assert constants.tracking_sq == pytest.approx([2.0, 10 / 9])
    assert (constants.descent, constants.growth) == (0.25, 6.0)  # α/2 and 2·(1 + 2)
    assert constants.residual == pytest.approx([2.0, 10 / 9])  # κ²/(2·0.5)
    assert (constants.decay_norm, constants.descent_decayed) == (0.0, 0.125)
    assert constants.growth_decayed == 12.0
    assert constants.largest_lr == pytest.approx(0.125 / 24)


def test_the_bound_by_hand():
    constants = derive_constants(SIMPLE)
    bound = finite_bound(SIMPLE, constants, constants.largest_lr)
    assert bound.start == pytest.approx(6 / (0.125 * 2 / 192))
    assert bound.tracking == pytest.approx(2 * (14 / 9) / 0.125)
    assert bound.curvature == pytest.approx(1.0)  # at the largest learning rate, always
    assert bound.decay == 0.0
    assert bound.total == pytest.approx(bound.start + bound.tracking + 1.0)


def test_learning_rates_weigh_the_steps():
    constants = derive_constants(SIMPLE)
    bound = finite_bound(SIMPLE, constants, [0.001, 0.003])
    assert bound.start == pytest.approx(6 / (0.125 * 0.004))
    assert bound.tracking == pytest.approx(2 * (0.001 * 2 + 0.003 * 10 / 9) / (0.125 * 0.004))
    assert bound.curvature == pytest.approx(24 * 1e-5 / (0.125 * 0.004))


def test_weight_decay_by_hand():
    assumptions = replace(SIMPLE, weight_decay=0.5)
    constants = derive_constants(assumptions)
    assert constants.decay_norm == 2.0  # 0.5 · max(0.5, √4·1/1 / 0.5)
    assert constants.growth_decayed == 20.0
    assert finite_bound(assumptions, constants, 0.001).decay == pytest.approx(2 * 2.0**2 / 0.25**2)
    far = replace(assumptions, start_norm=100.0)
    assert derive_constants(far).decay_norm == 50.0


def test_drift_enters_twice():
    assumptions = replace(SIMPLE, drift_sq=np.array([0.0, 3.0]))
    assert derive_constants(assumptions).tracking_sq == pytest.approx([2.0, 6.0 + 10 / 9])
    assert derive_constants(assumptions).growth == pytest.approx(2 * (1 + 6 + 10 / 9))


def test_the_noise_of_the_first_moment_tends_to_the_papers_limit():
    assert momentum_noise(np.ones(500), 0.9)[-1] == pytest.approx(0.1 / 1.9)
    assert momentum_noise(np.ones(500), 0.9)[0] == pytest.approx(1.0)


@pytest.mark.parametrize("eps", [1e-8, 1e-3, 1.0, 1e3, 1e9])
@pytest.mark.parametrize("largest", [1e-6, 1.0, 1e4])
def test_with_weight_decay_the_bound_is_never_below_the_trivial_one(eps, largest):
    """χ is at least √N G/ε, so 2(χ/a₀)² is at least 8(1 + G/ε)² N G²."""
    assumptions = replace(
        SIMPLE, gradient_bound=largest, eps=eps, noise_sq=0.0, gap=0.0, weight_decay=1e-4
    )
    decay = finite_bound(assumptions, derive_constants(assumptions), 1e-300).decay
    assert decay >= 8 * (1 + largest / eps) ** 2 * assumptions.trivial_bound * (1 - 1e-12)
    assert steps_to_inform(assumptions, derive_constants(assumptions)) == math.inf


def test_steps_after_which_the_bound_says_something():
    assumptions = replace(SIMPLE, noise_sq=0.0)
    constants = derive_constants(assumptions)
    needed = steps_to_inform(assumptions, constants)  # 6 L b / a² over 4 − 1
    assert needed == pytest.approx(6 * 2 * constants.growth_decayed / 0.125**2 / 3)
    longer = replace(assumptions, drift_sq=np.zeros(math.ceil(needed)))
    total = finite_bound(
        longer, derive_constants(longer), derive_constants(longer).largest_lr
    ).total
    assert total == pytest.approx(assumptions.trivial_bound, rel=1e-3)
