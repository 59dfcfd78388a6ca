"""Comparisons over tasks: against statsmodels, by simulation, and in every view."""

import importlib.util
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.report.page import render_report
from afor.bench.report.registry import build_table
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.inference.decisions import decide
from afor.bench.stats.inference.paired_tests import holm
from afor.bench.stats.pooling import pool_tasks, random_effects
from afor.bench.stats.results import Results
from afor.bench.store.files import write_results
from afor.bench.store.results import RunResult

ROOT = Path(__file__).resolve().parents[3]


def results_of(gains, **settings):
    """Return results whose gains over adam are given as {(data set, backbone): values by fold}."""
    runs = []
    for (dataset, backbone), values in gains.items():
        for fold, gain in enumerate(values):
            for name, value in (("adam", 0.5), ("afor", 0.5 + gain)):
                runs.append(
                    RunResult(
                        *("", dataset, backbone, name, fold, 0),
                        test_subjects=(f"s{fold}",),
                        metrics={"accuracy": value, "weighted_f1": value},
                        majority_accuracy=math.nan,
                        classes=0,
                        test_windows=0,
                    )
                )
    return Results.of(runs, metrics=["accuracy"], **settings)


@pytest.mark.parametrize("seed", range(12))
def test_the_model_agrees_with_statsmodels(seed):
    meta_analysis = pytest.importorskip("statsmodels.stats.meta_analysis")
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 12))
    variances = rng.uniform(0.2, 2.0, size=k)
    means = rng.normal(0.3, rng.choice([0.1, 1.0, 3.0]), size=k) + rng.normal(size=k)
    ours = random_effects(means, variances)
    # Nearer to the root, statsmodels may pass it by rounding, and then takes 0 instead.
    theirs = meta_analysis.combine_effects(means, variances, method_re="iterated", atol=1e-5)
    assert ours.mean == pytest.approx(theirs.mean_effect_re, rel=1e-6)
    assert ours.tau**2 == pytest.approx(max(0.0, theirs.tau2), abs=1e-6)
    assert ours.i_squared == pytest.approx(max(0.0, theirs.i2), abs=1e-9)
    # Knapp and Hartung's factor, which they restrict to at least 1 in their second proposal
    factor = max(1.0, theirs.scale_hksj_re)
    assert ours.se == pytest.approx(math.sqrt(factor) * theirs.sd_eff_w_re, rel=1e-5)


def test_the_prediction_interval_is_wider_and_needs_three_data_sets():
    three = random_effects([1.0, 2.0, 6.0], [0.5, 0.5, 0.5])
    assert three.prediction()[0] < three.interval()[0] < three.interval()[1] < three.prediction()[1]
    # by hand: t with one degree of freedom, sqrt(6.5 + 7 / 3)
    assert three.prediction()[1] - 3 == pytest.approx(12.7062 * math.sqrt(6.5 + 7 / 3), rel=1e-4)
    assert three.interval()[1] - 3 == pytest.approx(4.30265 * math.sqrt(7 / 3), rel=1e-4)
    assert random_effects([1.0, 2.0], [0.5, 0.5]).prediction() == (-math.inf, math.inf)


@pytest.mark.parametrize("datasets", [2, 3, 5, 10])
def test_the_interval_holds_the_truth_in_95_percent_of_simulated_studies(datasets):
    path = ROOT / "docs" / "figures" / "pooling_coverage.py"
    if not path.exists():
        pytest.skip("the pages are not here")
    spec = importlib.util.spec_from_file_location("pooling_coverage", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for spread in (0.0, 0.5):
        mean, _ = script.coverage(datasets, spread, studies=500, seed=1)
        assert mean >= 0.95 - 2.5 * math.sqrt(0.95 * 0.05 / 500), spread


def test_networks_on_the_same_people_do_not_count_as_more_people():
    """A gain of the subjects that all networks share must not look more certain with more of them.

    Treated as independent tasks, twelve networks on six people would find a difference in most
    studies of a null effect; the interval over folds holds its level.
    """
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(200):
        people = rng.normal(size=8)
        gains = {("mine", f"net{i}"): 0.01 * (people + 0.2 * rng.normal(size=8)) for i in range(12)}
        (pooled,) = results_of(gains).pooled
        assert pooled.datasets == 1
        wrong += pooled.evidence.p_two_sided < 0.05
    assert wrong / 200 < 0.09


def test_one_data_set_gives_the_exact_test_of_the_mean_over_networks():
    rng = np.random.default_rng(1)
    one, other = 0.02 * rng.normal(0.5, size=10), 0.02 * rng.normal(0.5, size=10)
    (pooled,) = results_of({("mine", "a"): one, ("mine", "b"): other}).pooled
    made = decide((one + other) / 2, margin=0.01)
    assert pooled.interval == pytest.approx(made.interval, abs=1e-12)
    assert (pooled.evidence.p_two_sided, pooled.datasets) == (pytest.approx(made.p_two_sided), 1)
    assert math.isnan(pooled.i_squared)
    (twice,) = results_of({("mine", "a"): one, ("mine", "b"): one}).pooled
    (alone,) = results_of({("mine", "a"): one}).comparisons
    assert twice.interval == pytest.approx(alone.interval, abs=1e-12)
    assert not results_of({("mine", "a"): one}).pooled


def test_data_sets_are_pooled_after_their_networks():
    rng = np.random.default_rng(2)
    gains = {(d, b): 0.03 * rng.normal(0.3, size=n) for d, n in (("x", 9), ("y", 12), ("z", 7))
             for b in ("a", "b")}  # fmt: skip
    (pooled,) = results_of(gains).pooled
    means = [(gains[d, "a"] + gains[d, "b"]) / 2 for d in "xyz"]
    model = random_effects([m.mean() for m in means], [m.var(ddof=1) / len(m) for m in means])
    assert (pooled.gain, pooled.datasets) == (pytest.approx(model.mean), 3)
    assert pooled.interval == pytest.approx(model.interval())
    assert len(pooled.tasks) == sum(pooled.won_tied_lost) == 6


@pytest.mark.parametrize(
    ("gains", "decision"),
    [([0.05, 0.06, 0.055, 0.05], "better"), ([0.0001, 0.0, -0.0001, 0.0], "equivalent")],
)
def test_clear_effects_are_decided(gains, decision):
    rng = np.random.default_rng(3)
    noise = {(f"d{i}", "net"): g + 0.002 * rng.normal(size=12) for i, g in enumerate(gains)}
    (pooled,) = results_of(noise).pooled
    assert pooled.decision.value == decision


def test_methods_without_any_difference_are_equal():
    (pooled,) = results_of({("a", "n"): [0.0] * 8, ("b", "n"): [0.0] * 8}).pooled
    assert (pooled.gain, pooled.interval, pooled.evidence.p_two_sided) == (0.0, (0.0, 0.0), 1.0)
    assert pooled.decision.value == "equivalent"
    (lucky,) = results_of({("a", "n"): [0.0] * 8, ("b", "n"): [0.1] * 8}).pooled
    assert lucky.decision.value == "undecided"  # two data sets that differ decide nothing


def test_holm_covers_all_methods_and_missing_runs_leave_no_verdict():
    runs, expected = simulate_results(
        {"adam": 0.0, "afor": 0.01, "mars": 0.02, "adamw": 0.0}, datasets=["deap", "bci2a"]
    )
    pooled = Results.of(runs, expected, metrics=["accuracy"]).pooled
    corrected = holm([c.evidence.p_two_sided for c in pooled], 3)
    assert [c.evidence.p_different_holm for c in pooled] == corrected
    assert len(pooled) == pooled[0].family == 3
    comparisons = Results.of(runs[1:], expected, metrics=["accuracy"]).comparisons
    assert {c.method: c.complete for c in pool_tasks(comparisons)} == dict.fromkeys(
        ("adamw", "mars", "afor"), False
    )
    assert all(c.decision is None for c in pool_tasks(comparisons))


def test_tasks_on_which_both_guess_are_left_out_and_counted():
    runs, expected = simulate_results(
        {"adam": 0.0, "afor": 0.02}, datasets=["deap", "bci2a", "isruc"], backbones=["eegnet"]
    )
    blind = [
        replace(r, metrics={**r.metrics, "accuracy": 0.5 * r.metrics["accuracy"]})
        if r.dataset == "deap" else r
        for r in runs
    ]  # fmt: skip
    results = Results.of(blind, expected, metrics=["accuracy"])
    assert [c.is_blind for c in results.comparisons] == [True, False, False]
    (pooled,) = results.pooled
    assert (pooled.blind, pooled.datasets) == (1, 2)
    lead = build_table("comparisons", results).lead[0]
    assert lead[0].startswith("Over 2 tasks (without 1 on which neither is better than guessing).")


def test_every_view_says_the_same_over_tasks(tmp_path):
    runs, expected = simulate_results(
        {"adam": 0.0, "afor": 0.03},
        datasets=["deap", "bci2a", "isruc"],
        backbones=["eegnet", "hslt"],
    )
    path = tmp_path / "runs.json"
    write_results(path, runs, expected)
    results = Results.open([path])
    (first, *_) = results.pooled
    printed = json.loads(CliRunner().invoke(app, ["judge", str(path), "--json"]).stdout)
    (table,) = [entry for entry in printed if entry["table"] == "pooled"]
    assert [row["gain"] for row in table["rows"]] == [c.gain for c in results.pooled]
    row = table["rows"][0]
    assert f"ahead on {first.won_tied_lost[0]} of 6 tasks" in row["then"]
    for name in ("main", "comparisons"):
        lead = build_table(name, results).lead[0]
        first_line = f"Over 6 tasks on 3 data sets. {row['what']}"
        assert lead[:3] == (first_line, row["sure"], row["then"])
    assert "Over 6 tasks on 3 data sets." in render_report(results)
    assert "pooled over tasks" in render_report(results)
