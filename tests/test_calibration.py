from pathlib import Path

import numpy as np
import pytest

from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.groups import collect_conditions
from afor.bench.stats.results import Results

DOCS = Path(__file__).parents[1] / "docs" / "results" / "physionet"

COPIES = {"adam": 0.0, "adam_seed_1": 0.0, "adam_seed_2": 0.0}


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("docs/figures/calibration.py")


def conditions_of(gains, margins=None, **options):
    results, expected = simulate_results(gains, datasets=["bci2a"], repetitions=2, **options)
    return collect_conditions(results, expected, margins)


def test_copies_of_one_method_err_no_more_often_than_allowed(script):
    (made,) = script.calibrate(conditions_of(COPIES), ["accuracy"], relabellings=600)
    assert (made.replicates, made.folds, made.repetitions) == (tuple(COPIES), 9, 2)
    assert made.false_positives.interval[0] <= 0.05
    assert made.false_equivalences.interval[0] <= 0.05
    assert made.run_sd == pytest.approx(0.01, rel=0.3)
    assert len(made.trained) == 3
    p = np.sort(made.p_values)
    shares = np.arange(1, 601) / 600
    assert np.max(shares - p) < 0.07  # never far above the diagonal: Kolmogorov-Smirnov at 0.5 %


def test_equivalence_is_found_where_the_noise_allows_it(script):
    quiet = conditions_of(COPIES, seed_noise=0.002)
    loud = conditions_of(COPIES, seed_noise=0.05)
    (found,) = script.calibrate(quiet, ["accuracy"], relabellings=200)
    (lost,) = script.calibrate(loud, ["accuracy"], relabellings=200)
    assert found.equivalences.value > 0.99
    assert lost.equivalences.value < 0.05


def test_a_wrong_test_would_be_noticed(script, monkeypatch):
    """A procedure that halves its p-values has about twice the false positives."""
    exact = script.two_sided_p_rows
    monkeypatch.setattr(script, "two_sided_p_rows", lambda rows: exact(rows) / 3)
    (made,) = script.calibrate(conditions_of(COPIES), ["accuracy"], relabellings=400)
    assert made.false_positives.interval[0] > 0.05


def test_one_method_under_two_names_is_calibrated_too(script):
    gains = {"adamw": 0.0, "afor_fixed_0999": 0.0, "adam": 0.0}
    (made,) = script.calibrate(conditions_of(gains), ["accuracy"], relabellings=100)
    assert set(made.replicates) == {"adamw", "afor_fixed_0999"}


def test_copies_with_equal_bits_count_once(script):
    results, expected = simulate_results(COPIES, datasets=["bci2a"], repetitions=2, seed_noise=0.0)
    assert script.calibrate(collect_conditions(results, expected), ["accuracy"]) == []


def test_a_metric_without_a_margin_has_no_equivalences(script):
    results, expected = simulate_results(COPIES, datasets=["bci2a"], repetitions=2)
    for run in results:
        run.metrics["loss"] = 1 - run.metrics["accuracy"]
    (made,) = script.calibrate(collect_conditions(results, expected), ["loss"], relabellings=100)
    assert made.margin is made.false_equivalences is made.equivalences is None


def test_relabelling_keeps_each_fold_and_draw(script):
    values = np.arange(12.0).reshape(2, 3, 2)
    (rows,) = script.relabelled_differences(values, 500, np.random.default_rng(0))
    assert rows.shape == (500, 2)
    steps = {round(float(row[0]), 6) for row in rows}
    assert steps == {-1.0, round(-1 / 3, 6), round(1 / 3, 6), 1.0}  # every repetition differs by ±1


def test_shares_have_exact_intervals(script):
    low, high = script.Share(0, 300).interval
    assert low == 0
    assert high == pytest.approx(1 - 0.025 ** (1 / 300))


@pytest.mark.slow
def test_the_committed_runs_err_no_more_often_than_allowed(script, capsys):
    pilot = DOCS / "runs.csv"
    if not pilot.exists():
        pytest.skip("the documentation is not here")
    opened = Results.open([pilot], studies=["physionet"])
    made = script.calibrate(opened.conditions, ["accuracy"])
    assert len(made) == 2  # AdamW and AFOR with beta2 at 0.999 do not differ at all
    for one in made:
        assert one.false_positives.interval[0] <= 0.05
        assert one.false_equivalences.interval[0] <= 0.05
    script.print_table(made)
    assert capsys.readouterr().out == (DOCS / "calibration.md").read_text("utf-8")
