"""Every verdict keeps its error rate and reaches its claimed power in simulated studies."""

import numpy as np
import pytest
from scipy.stats import binom

from afor.bench.stats.design.power import Goal, folds_for
from afor.bench.stats.inference.decisions import Decision

SYMMETRIC = ["normal", "heavy tails", "unequal variances", "ties"]  # as the sign-flip test assumes


@pytest.fixture(scope="module")
def rates(load_script):
    """Return the script that simulates the tables of docs/explanation/statistics.md."""
    return load_script("docs/figures/verdict_rates.py")


def at_most(rate, studies):
    """Return the share that chance alone exceeds once in 10 000 times if `rate` is the truth."""
    return binom.isf(1e-4, studies, rate) / studies


def check_size(rates, shape, folds, studies, *, margin=1.0, repetitions=1):
    """Check all three kinds of false verdicts for one kind of noise."""
    options = {
        "studies": studies,
        "folds": folds,
        "repetitions": repetitions,
        "run_sd": 0.5,
        "seed": folds,
    }
    limit = at_most(0.05, studies)
    equal = rates.verdict_rates(rates.simulate_differences(shape, **options), margin)
    assert equal[Decision.BETTER] + equal[Decision.WORSE] <= limit
    for effect in (margin, -margin, 1.5 * margin):
        made = rates.simulate_differences(shape, effect=effect, **options)
        assert rates.equivalence_rate(made, margin) <= limit
        found = rates.verdict_rates(made, margin)
        assert found[Decision.EQUIVALENT] <= limit
        assert found[Decision.WORSE if effect > 0 else Decision.BETTER] <= limit / 2


def check_power(rates, sd, studies):
    """Check the claimed numbers of folds for a power of 80 %."""
    for effect, verdict in ((1.0, Decision.BETTER), (0.0, Decision.EQUIVALENT)):
        goal = Goal(1.0) if effect else Goal(0.0, 1.0)
        folds = folds_for(goal, sd)
        made = rates.simulate_differences(
            "normal", studies=studies, folds=folds, effect=effect, sd=sd, seed=folds
        )
        assert rates.verdict_rates(made, 1.0)[verdict] >= 0.8 - 3 * np.sqrt(0.16 / studies)


@pytest.mark.parametrize("shape", SYMMETRIC)
def test_false_verdicts_stay_below_five_percent(rates, shape):
    check_size(rates, shape, folds=7, studies=2000)


def test_the_claimed_power_is_reached(rates):
    check_power(rates, 0.75, studies=1500)


def test_six_comparisons_together_keep_the_rate(rates):
    studies = 400
    for effects in ([0.0] * 6, [3.0, 0.0] * 3):
        found = rates.family_rates(np.array(effects), studies=studies, folds=8, margin=3.0, seed=2)
        assert found.false_difference <= at_most(0.05, studies)
        assert found.false_equivalence <= at_most(0.05, studies)


def test_the_simulation_would_notice_a_test_that_is_too_liberal(rates):
    made = rates.simulate_differences("normal", studies=2000, folds=7)
    found = rates.verdict_rates(made, 1.0, level=0.10)
    assert found[Decision.BETTER] + found[Decision.WORSE] > at_most(0.05, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SYMMETRIC)
@pytest.mark.parametrize("folds", [6, 9, 12, 20, 32])
@pytest.mark.parametrize("repetitions", [1, 5])
def test_false_verdicts_stay_below_five_percent_over_the_grid(rates, shape, folds, repetitions):
    check_size(rates, shape, folds, studies=20_000 if folds < 20 else 2000, repetitions=repetitions)


@pytest.mark.slow
@pytest.mark.parametrize("sd", [0.5, 0.75, 1.0, 1.4])
def test_the_claimed_power_is_reached_over_the_grid(rates, sd):
    check_power(rates, sd, studies=4000)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SYMMETRIC)
@pytest.mark.parametrize("effects", [[0.0] * 6, [3.0] * 6, [0.0, 3.0] * 3, [0.0, 3.0, -3.0]])
def test_several_comparisons_together_keep_the_rate_over_the_grid(rates, shape, effects):
    found = rates.family_rates(np.array(effects), studies=4000, folds=9, margin=3.0, shape=shape)
    assert found.false_difference <= at_most(0.05, 4000)
    assert found.false_equivalence <= at_most(0.05, 4000)
