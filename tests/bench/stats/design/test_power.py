import math

import numpy as np
import pytest
from scipy.stats import t

from afor.bench.stats.design import power
from afor.bench.stats.design.power import (
    Goal,
    cheapest_design,
    fewest_folds,
    fold_sd,
    folds_for,
    needed_folds,
    power_grid,
    power_of_difference,
    power_of_equivalence,
    smallest_effect,
    smallest_margin,
    study_seconds,
)
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.design.variance import estimate_components
from afor.bench.stats.inference.decisions import Decision
from afor.bench.stats.results import Results


def simulated_studies(rng, studies, folds, repetitions, subject, repetition, tails="normal"):
    """Draw fold differences of whole studies with known components of variance."""

    def noise(*shape):
        if tails == "normal":
            return rng.standard_normal(shape)
        if tails == "heavy":  # Student's t with 5 degrees of freedom, unit variance
            return rng.standard_t(5, shape) / math.sqrt(5 / 3)
        widths = rng.choice([0.5, 1.5], shape) / math.sqrt(1.25)  # "unequal" variances
        return widths * rng.standard_normal(shape)

    return subject * noise(studies, folds) + repetition * noise(studies, folds, repetitions).mean(
        axis=2
    )


@pytest.fixture(scope="module")
def decide_rows(load_script):
    """Return the function that decides about many simulated studies at once."""
    return load_script("docs/figures/simulated_studies.py").decide_rows


def check_claims(
    decide_rows, folds, repetitions, level, *, studies=1500, tails="normal", slack=0.0
):
    """Compare claimed powers with the decisions of simulated studies."""
    subject, repetition = 1.5, 2.0
    fold_sd = math.sqrt(subject**2 + repetition**2 / repetitions)
    rng = np.random.default_rng(folds + repetitions)
    effect = smallest_effect(fold_sd, folds, level)
    margin = smallest_margin(fold_sd, folds, level)
    fold_values = simulated_studies(rng, studies, folds, repetitions, subject, repetition, tails)
    different = decide_rows(fold_values + effect, level=level) == Decision.BETTER
    equivalent = decide_rows(fold_values, margin=margin, level=level) == Decision.EQUIVALENT
    error = math.sqrt(0.8 * 0.2 * (1 / studies + 1 / power.EXACT_REPLICATES))
    for seen, claimed in (
        (different, Goal(effect, level=level).reached(fold_sd, folds)),
        (equivalent, Goal(0.0, margin, level).reached(fold_sd, folds)),
    ):
        assert claimed == pytest.approx(0.8, abs=1e-3)
        assert abs(np.mean(seen) - claimed) < 3.5 * error + slack


@pytest.mark.parametrize(
    ("folds", "repetitions", "level"), [(6, 2, 0.05), (10, 1, 0.05 / 6), (14, 5, 0.05)]
)
def test_claimed_power_is_that_of_simulated_studies(decide_rows, folds, repetitions, level):
    check_claims(decide_rows, folds, repetitions, level)


@pytest.mark.slow
@pytest.mark.parametrize("folds", [6, 8, 10, 12, 13, 16, 20, 24, 32])
@pytest.mark.parametrize("repetitions", [1, 5])
@pytest.mark.parametrize("level", [0.05, 0.05 / 6])
def test_claimed_power_is_that_of_simulated_studies_over_a_grid(
    decide_rows, folds, repetitions, level
):
    if folds >= fewest_folds(level):
        check_claims(decide_rows, folds, repetitions, level, studies=4000 if folds <= 24 else 400)


@pytest.mark.slow
@pytest.mark.parametrize("tails", ["heavy", "unequal"])
@pytest.mark.parametrize("folds", [8, 20])
def test_power_claimed_for_normal_noise_holds_nearly_for_other_noise(decide_rows, folds, tails):
    check_claims(decide_rows, folds, 2, 0.05, studies=4000, tails=tails, slack=0.04)


def test_a_pilot_with_known_components_predicts_other_designs():
    rng = np.random.default_rng(3)
    pilot = 1.5 * rng.standard_normal((400, 1, 1)) + 2.0 * rng.standard_normal((400, 2, 1))
    found = estimate_components(pilot)
    for repetitions in (1, 5):
        truth = math.sqrt(1.5**2 + 2.0**2 / repetitions)
        assert math.sqrt(found.fold_variance(repetitions)) == pytest.approx(truth, rel=0.08)


def test_too_few_folds_decide_nothing():
    assert fewest_folds(0.05) == 6
    assert power_of_difference(100.0, 1.0, 5) == 0
    assert power_of_difference(100.0, 1.0, 6) == 1
    assert smallest_effect(1.0, 5) == math.inf
    assert power_of_equivalence(100.0, 1.0, 4) == 0
    assert power_of_equivalence(100.0, 1.0, 5) == 1  # one-sided tests need one fold less


def test_power_has_the_size_of_the_test_without_an_effect():
    for folds in (9, 30):
        assert power_of_difference(0.0, 1.0, folds) < 0.025 + 0.008
        at_margin = power_of_equivalence(1.0, 0.5, folds, effect=1.0)
        assert at_margin < 0.05 + 0.012  # equivalence is not declared above its rate


def test_power_grows_with_folds_and_draws():
    found = estimate_components(
        np.random.default_rng(4).standard_normal((20, 1, 1))
        + 3 * np.random.default_rng(5).standard_normal((20, 2, 1))
    )
    grid = power_grid(found, Goal(1.0), [8, 15, 30, 60], [1, 3, 10])
    assert np.all(np.diff(grid, axis=0) > 0)
    assert np.all(np.diff(grid, axis=1) > 0)


def test_fewest_folds_for_a_goal():
    goal = Goal(1.0)
    folds = folds_for(goal, 2.0)
    assert goal.reached(2.0, folds) >= 0.8 > goal.reached(2.0, folds - 1)
    assert folds == pytest.approx(34, abs=1)  # the paired t-test needs 34
    assert folds_for(Goal(1e-6), 2.0) is None


def test_the_cheapest_design_reaches_the_goal_in_the_least_time():
    rng = np.random.default_rng(6)
    pilot = rng.standard_normal((20, 1, 1)) + 3 * rng.standard_normal((20, 2, 1))
    found = estimate_components(pilot)
    design = cheapest_design(found, Goal(1.0), seconds=60.0)
    assert design.power >= 0.8
    low, high = design.power_range
    assert low < design.power < high
    assert design.seconds == 2 * design.folds * design.repetitions * 60.0 * design.folds / 20
    for repetitions in range(1, 11):
        folds = folds_for(Goal(1.0), math.sqrt(found.fold_variance(repetitions)))
        assert design.seconds <= study_seconds(found, folds, repetitions, 60.0)
    one_draw = estimate_components(pilot[:, :1])
    assert cheapest_design(one_draw, Goal(1.0)).repetitions == 1
    assert cheapest_design(found, Goal(0.01)) is None  # not even 2000 folds


def test_assessment_finds_the_noise_that_was_simulated():
    truth = math.sqrt(2 * 0.02**2 + 2 * 0.03**2 / 2)
    held = 0
    for seed in range(20):
        results, expected = simulate_results(
            {"adam": 0.0, "afor": 0.02, "mars": 0.0},
            datasets=["bci2a"], repetitions=2, subject_noise=0.02, seed_noise=0.03, seed=seed,
        )  # fmt: skip
        made = Results.of(results, expected, metrics=["accuracy"]).comparisons
        assert [c.method for c in made] == ["mars", "afor"]
        _, low, high = fold_sd(made[1].noise, 2)
        held += low < truth < high
    assert held >= 16  # a 95 % interval misses the truth in five or more of 20 by 0.3 % chance


def test_the_range_of_needed_folds_holds_the_number_at_the_estimate():
    made = simulate_results({"adam": 0, "afor": 0}, datasets=["deap"], seed_noise=0.03, seed=4)
    (c,) = Results.of(*made, metrics=["accuracy"]).comparisons
    sd = math.sqrt(c.noise.fold_variance(5))
    exact = max(folds_for(Goal(0.01), sd), folds_for(Goal(0.0, 0.01), sd))
    low, high = needed_folds(c)
    assert low < exact < high < 4 * low
    assert needed_folds(c, 0.02)[1] < low
    few = [r for r in made[0] if r.fold < 5]
    (c,) = Results.of(few, metrics=["accuracy"]).comparisons
    assert needed_folds(c) is None  # no number from fewer than six folds


@pytest.mark.parametrize("level", [0.05, 0.05 / 6])
@pytest.mark.parametrize("folds", [15, 20, 40])
def test_power_in_closed_form_is_that_of_simulated_t_tests(folds, level):
    rng = np.random.default_rng(folds)
    n = 40_000
    means = rng.standard_normal(n) / math.sqrt(folds)
    errors = np.sqrt(rng.chisquare(folds - 1, n) / (folds - 1) / folds)
    outer, inner = (t.isf(one_sided, folds - 1) * errors for one_sided in (level / 2, level))
    for effect in (0.3, 0.8):
        found = power_of_difference(effect, 1.0, folds, level)
        assert found == pytest.approx(np.mean(means + effect > outer), abs=0.01)
    for margin in (0.5, 1.0):
        equal = (np.abs(means) < margin - inner) & (np.abs(means) <= outer)
        found = power_of_equivalence(margin, 1.0, folds, level)
        assert found == pytest.approx(np.mean(equal), abs=0.01)
