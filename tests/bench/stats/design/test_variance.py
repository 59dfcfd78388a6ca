import numpy as np
import pytest

from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.design.variance import (
    REPETITION,
    SEED,
    SUBJECT,
    estimate_components,
    paired_differences,
)
from afor.bench.stats.groups import collect_conditions

BLOCK = ("deap", "eegnet", "accuracy")


def simulate(rng, shape, subject, repetition, seed):
    folds, repetitions, _ = shape
    return (
        subject * rng.standard_normal((folds, 1, 1))
        + repetition * rng.standard_normal((folds, repetitions, 1))
        + seed * rng.standard_normal(shape)
    )


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ((9, 3, 2), [(SUBJECT,), (REPETITION,), (SEED,)]),
        ((9, 3, 1), [(SUBJECT,), (REPETITION, SEED)]),
        ((9, 1, 2), [(SUBJECT, REPETITION), (SEED,)]),
        ((9, 1, 1), [(SUBJECT, REPETITION, SEED)]),
    ],
)
def test_sources_that_a_design_cannot_tell_apart_are_one_component(shape, names):
    found = estimate_components(simulate(np.random.default_rng(0), shape, 1, 1, 1))
    assert [c.sources for c in found.components] == names


def test_the_components_of_a_balanced_design_add_up_to_the_variance_of_its_folds():
    differences = simulate(np.random.default_rng(1), (12, 4, 1), 3, 0, 2)
    found = estimate_components(differences)
    assert found.fold_variance(4) == pytest.approx(differences.mean(axis=(1, 2)).var(ddof=1))
    subject, repetition = found.components
    assert found.fold_variance(8) == pytest.approx(subject.variance + repetition.variance / 8)


def test_a_negative_component_is_pooled_and_not_cut():
    differences = np.tile([[1.0], [-1.0]], (6, 1, 1))  # folds agree exactly, repetitions differ
    differences += 1e-3 * np.arange(6)[:, None, None]
    subject, repetition = estimate_components(differences).components
    assert subject.variance == 0
    within, between = 2.0, float(2 * np.var(1e-3 * np.arange(6), ddof=1))
    assert repetition.variance == pytest.approx((6 * within + 5 * between) / 11)


@pytest.mark.parametrize("shape", [(1, 3, 1), (0, 2, 1), (4, 2)])
def test_too_few_folds_are_refused(shape):
    with pytest.raises(ValueError, match="at least two folds"):
        estimate_components(np.zeros(shape))


def check_coverage(shape, sds, studies):
    rng = np.random.default_rng(2)
    truths = [sds[0] ** 2, sds[1] ** 2, sds[2] ** 2]
    if shape[2] == 1:
        truths = [truths[0], truths[1] + truths[2]]
    estimates, held = [], np.zeros(len(truths))
    for _ in range(studies):
        found = estimate_components(simulate(rng, shape, *sds))
        estimates.append([c.variance for c in found.components])
        ends = [np.quantile(c.samples, (0.025, 0.975)) for c in found.components]
        held += [low <= truth <= high for (low, high), truth in zip(ends, truths, strict=True)]
    error = np.std(estimates, axis=0) / np.sqrt(studies)
    assert np.all(np.abs(np.mean(estimates, axis=0) - truths) < 4 * error)
    assert np.all(held / studies > 0.95 - 4 * np.sqrt(0.05 * 0.95 / studies))


def test_estimates_and_intervals_hold_known_components():
    check_coverage((20, 3, 1), (3.0, 0.0, 2.0), 120)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(9, 5, 1), (20, 2, 2), (40, 3, 2), (100, 2, 1)])
def test_estimates_and_intervals_hold_known_components_in_many_designs(shape):
    check_coverage(shape, (4.0, 1.5, 2.0), 1000)


def test_pairs_share_fold_draw_and_seed():
    gains = {"adam": 0.0, "adam_seed_1": 0.0, "adam_seed_2": 0.0, "afor": 0.02, "afor_seed_1": 0.02}
    results, expected = simulate_results(gains, datasets=["deap"], repetitions=3)
    missing = ("afor_seed_1", 5, 1)
    kept = [r for r in results if (r.method, r.fold, r.repetition) != missing]
    conditions = collect_conditions(kept, expected)
    differences = paired_differences(conditions, *BLOCK, "afor", "adam")
    assert differences.shape == (31, 3, 2)  # without fold 5; seed 2 has no partner
    values = {o: conditions["deap", "eegnet", o] for o in gains}
    expected_value = values["afor_seed_1"].value((6, 2), "accuracy") - values["adam_seed_1"].value(
        (6, 2), "accuracy"
    )
    assert differences[5, 2, 1] == expected_value
    copy = paired_differences(conditions, *BLOCK, "adam_seed_1", "adam")
    assert copy.shape == (32, 3, 1)
    assert copy.any()  # a copy is compared with its original, not with itself
    assert paired_differences(conditions, *BLOCK, "afor", "nowhere").size == 0
