import numpy as np
import pytest

from afor.bench.stats.design.calibration import Share, calibrate, relabelled_differences
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.groups import collect_conditions

COPIES = {"adam": 0.0, "adam_seed_1": 0.0, "adam_seed_2": 0.0}


def conditions_of(gains, margins=None, **options):
    results, expected = simulate_results(gains, datasets=["bci2a"], draws=2, **options)
    return collect_conditions(results, expected, margins)


def test_copies_of_one_method_err_no_more_often_than_allowed():
    (made,) = calibrate(conditions_of(COPIES), ["accuracy"], relabellings=600)
    assert (made.copies, made.folds, made.draws) == (tuple(COPIES), 9, 2)
    assert made.false_positives.interval[0] <= 0.05
    assert made.false_equivalences.interval[0] <= 0.05
    assert made.run_sd == pytest.approx(0.01, rel=0.3)
    assert len(made.trained) == 3
    p = np.sort(made.p_values)
    shares = np.arange(1, 601) / 600
    assert np.max(shares - p) < 0.07  # never far above the diagonal: Kolmogorov-Smirnov at 0.5 %


def test_equivalence_is_found_where_the_noise_allows_it():
    quiet = conditions_of(COPIES, seed_noise=0.002)
    loud = conditions_of(COPIES, seed_noise=0.05)
    (found,) = calibrate(quiet, ["accuracy"], relabellings=200)
    (lost,) = calibrate(loud, ["accuracy"], relabellings=200)
    assert found.equivalences.value > 0.99
    assert lost.equivalences.value < 0.05


def test_a_wrong_test_would_be_noticed(monkeypatch):
    """A procedure that halves its p-values has about twice the false positives."""
    from afor.bench.stats.design import calibration

    exact = calibration.two_sided_p_rows
    monkeypatch.setattr(calibration, "two_sided_p_rows", lambda rows: exact(rows) / 3)
    (made,) = calibrate(conditions_of(COPIES), ["accuracy"], relabellings=400)
    assert made.false_positives.interval[0] > 0.05


def test_one_method_under_two_names_is_calibrated_too():
    gains = {"adamw": 0.0, "afor_fixed_0999": 0.0, "adam": 0.0}
    (made,) = calibrate(conditions_of(gains), ["accuracy"], relabellings=100)
    assert set(made.copies) == {"adamw", "afor_fixed_0999"}


def test_copies_with_equal_bits_count_once():
    results, expected = simulate_results(COPIES, datasets=["bci2a"], draws=2, seed_noise=0.0)
    assert calibrate(collect_conditions(results, expected), ["accuracy"]) == []


def test_a_metric_without_a_margin_has_no_equivalences():
    results, expected = simulate_results(COPIES, datasets=["bci2a"], draws=2)
    for run in results:
        run.metrics["loss"] = 1 - run.metrics["accuracy"]
    (made,) = calibrate(collect_conditions(results, expected), ["loss"], relabellings=100)
    assert made.margin is made.false_equivalences is made.equivalences is None


def test_relabelling_keeps_each_fold_and_draw():
    values = np.arange(12.0).reshape(2, 3, 2)
    (rows,) = relabelled_differences(values, 500, np.random.default_rng(0))
    assert rows.shape == (500, 2)
    steps = {round(float(row[0]), 6) for row in rows}
    assert steps == {-1.0, round(-1 / 3, 6), round(1 / 3, 6), 1.0}  # every draw differs by ±1


def test_shares_have_exact_intervals():
    low, high = Share(0, 300).interval
    assert low == 0
    assert high == pytest.approx(1 - 0.025 ** (1 / 300))
