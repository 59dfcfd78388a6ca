"""Every verdict keeps its error rate and reaches its claimed power in simulated studies."""

import numpy as np
import pytest
from scipy.stats import binom

from afor.bench.stats.inference.decisions import Decision
from afor.bench.stats.inference.error_rates import (
    SHAPES,
    equivalence_rate,
    family_rates,
    simulate_differences,
    verdict_rates,
)
from afor.bench.stats.inference.sample_size import draws_needed, folds_needed, largest_sd

SYMMETRIC = [name for name in SHAPES if name != "skewed"]  # what the sign-flip test assumes


def at_most(rate, studies):
    """Return the share that chance alone exceeds once in 10 000 times if `rate` is the truth."""
    return binom.isf(1e-4, studies, rate) / studies


def check_size(shape, folds, studies, *, margin=1.0, draws=1):
    """Check all three kinds of false verdicts for one kind of noise."""
    options = {"studies": studies, "folds": folds, "draws": draws, "draw_sd": 0.5, "seed": folds}
    limit = at_most(0.05, studies)
    equal = verdict_rates(simulate_differences(shape, **options), margin)
    assert equal[Decision.BETTER] + equal[Decision.WORSE] <= limit
    for effect in (margin, -margin, 1.5 * margin):
        made = simulate_differences(shape, effect=effect, **options)
        assert equivalence_rate(made, margin) <= limit
        rates = verdict_rates(made, margin)
        assert rates[Decision.EQUIVALENT] <= limit
        assert rates[Decision.WORSE if effect > 0 else Decision.BETTER] <= limit / 2


def check_power(sd, studies):
    """Check the claimed numbers of folds for a power of 80 %."""
    for effect, verdict in ((1.0, Decision.BETTER), (0.0, Decision.EQUIVALENT)):
        folds = folds_needed(sd, 1.0, equivalence=verdict is Decision.EQUIVALENT)
        made = simulate_differences(
            "normal", studies=studies, folds=folds, effect=effect, sd=sd, seed=folds
        )
        assert verdict_rates(made, 1.0)[verdict] >= 0.8 - 3 * np.sqrt(0.16 / studies)


@pytest.mark.parametrize("shape", SYMMETRIC)
def test_false_verdicts_stay_below_five_percent(shape):
    check_size(shape, folds=7, studies=2000)


def test_the_claimed_power_is_reached():
    check_power(0.75, studies=1500)


def test_more_draws_bring_the_power_that_they_promise():
    sd, draw_sd, folds = 1.2, 1.5, 10
    enough = largest_sd(folds, 1.5)
    draws = draws_needed(sd, draw_sd, 2, enough)
    between = np.sqrt(sd**2 - draw_sd**2 / 2)
    made = simulate_differences(
        "normal", studies=1500, folds=folds, effect=1.5, sd=between, draw_sd=draw_sd, draws=draws
    )
    assert verdict_rates(made, 1.5)[Decision.BETTER] >= 0.8 - 3 * np.sqrt(0.16 / 1500)


def test_six_comparisons_together_keep_the_rate():
    studies = 400
    for effects in ([0.0] * 6, [3.0, 0.0] * 3):
        rates = family_rates(np.array(effects), studies=studies, folds=8, margin=3.0, seed=2)
        assert rates.false_difference <= at_most(0.05, studies)
        assert rates.false_equivalence <= at_most(0.05, studies)


def test_the_simulation_would_notice_a_test_that_is_too_liberal():
    made = simulate_differences("normal", studies=2000, folds=7)
    rates = verdict_rates(made, 1.0, level=0.10)
    assert rates[Decision.BETTER] + rates[Decision.WORSE] > at_most(0.05, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SYMMETRIC)
@pytest.mark.parametrize("folds", [6, 9, 12, 20, 32])
@pytest.mark.parametrize("draws", [1, 5])
def test_false_verdicts_stay_below_five_percent_over_the_grid(shape, folds, draws):
    check_size(shape, folds, studies=20_000 if folds < 20 else 2000, draws=draws)


@pytest.mark.slow
@pytest.mark.parametrize("sd", [0.5, 0.75, 1.0, 1.4])
def test_the_claimed_power_is_reached_over_the_grid(sd):
    check_power(sd, studies=4000)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SYMMETRIC)
@pytest.mark.parametrize("effects", [[0.0] * 6, [3.0] * 6, [0.0, 3.0] * 3, [0.0, 3.0, -3.0]])
def test_several_comparisons_together_keep_the_rate_over_the_grid(shape, effects):
    rates = family_rates(np.array(effects), studies=4000, folds=9, margin=3.0, shape=shape)
    assert rates.false_difference <= at_most(0.05, 4000)
    assert rates.false_equivalence <= at_most(0.05, 4000)
