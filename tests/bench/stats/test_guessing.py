"""Whether networks are better than guessing: levels, the exact test, what verdicts make of it."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.metrics import balanced_accuracy_score, f1_score, log_loss
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.notebook.results import StudyResults
from afor.bench.report.explore import chart_data
from afor.bench.report.page import render_report
from afor.bench.report.registry import build_table
from afor.bench.report.tables.main import main_table
from afor.bench.report.verdicts import verdict_of
from afor.bench.stats.design.power import needed_folds
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.groups import collect_conditions
from afor.bench.stats.guessing import (
    adjusted_chance,
    best_blind_f1,
    guess_level,
    learned,
    majority_value,
    reference_levels,
)
from afor.bench.stats.inference.decisions import Decision
from afor.bench.stats.results import Results
from afor.bench.store.files import load_results, write_results
from afor.bench.store.results import RunResult

TRAIN, TEST = (60, 25, 15), (10, 20, 10)


def run(fold=0, accuracy=0.5, train=TRAIN, test=TEST, method="adam", **metrics):
    return RunResult(
        *("guess", "mine", "eegnet", method, fold, 0, (f"s{fold}",)),
        metrics={"accuracy": accuracy, **metrics},
        majority_accuracy=test[train.index(max(train))] / sum(test),
        classes=len(test),
        test_windows=sum(test),
        train_counts=train,
        test_counts=test,
    )


def study(ours, theirs, metric="accuracy", **options):
    """Return results of two methods with these scores by fold."""
    runs = [
        run(fold, **{metric: value}, method=name, **options)
        for name, values in (("adam", theirs), ("afor", ours))
        for fold, value in enumerate(values)
    ]
    return Results.of(runs, metrics=[metric])


def test_levels_are_what_sklearn_gives_answers_without_a_signal():
    truth = np.repeat(np.arange(3), TEST)
    shares = np.array(TRAIN) / sum(TRAIN)
    answers = np.tile(shares, (len(truth), 1))
    assert guess_level("accuracy", run()) == 0.25
    assert guess_level("nll", run()) == pytest.approx(log_loss(truth, answers, labels=[0, 1, 2]))
    brier = np.square(answers - np.eye(3)[truth]).sum(axis=1).mean()
    assert guess_level("brier", run()) == pytest.approx(brier)
    assert guess_level("balanced_accuracy", run()) == pytest.approx(1 / 3)
    assert guess_level("kappa", run()) == 0
    assert math.isnan(guess_level("nll", run(train=(60, 40, 0))))  # a class nobody trained on
    assert math.isnan(guess_level("prequential_accuracy", run()))
    assert math.isnan(guess_level("accuracy", replace(run(), classes=0)))


@pytest.mark.parametrize("counts", [TEST, (30, 30), (90, 10), (70, 20, 10), (1, 1, 98)])
def test_no_blind_answer_has_a_higher_weighted_f1_than_the_level(counts):
    shares = np.array(counts) / sum(counts)
    steps = [q for q in itertools.product(np.linspace(0, 1, 101), repeat=len(counts) - 1)
             if sum(q) <= 1]  # fmt: skip
    blind = np.array([(*q, 1 - sum(q)) for q in steps])
    with np.errstate(invalid="ignore"):
        f1 = np.nan_to_num(2 * shares * blind / (shares + blind)) @ shares
    level = best_blind_f1(shares)
    assert f1.max() <= level + 1e-12
    assert f1.max() == pytest.approx(level, abs=1e-3)


@pytest.mark.parametrize("counts", [(70, 30), (10, 60, 30), (25, 25, 25, 25)])
def test_the_majority_row_is_what_sklearn_gives_a_constant_answer(counts):
    truth = np.repeat(np.arange(len(counts)), counts)
    answer = np.full_like(truth, int(np.argmax(counts)))
    accuracy = float((truth == answer).mean())
    value = {
        m: majority_value(m, accuracy, len(counts))
        for m in ("weighted_f1", "macro_f1", "balanced_accuracy")
    }
    options = {"zero_division": 0}
    assert value["weighted_f1"] == pytest.approx(
        f1_score(truth, answer, average="weighted", **options)
    )
    assert value["macro_f1"] == pytest.approx(f1_score(truth, answer, average="macro", **options))
    assert value["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(truth, answer))
    assert math.isnan(majority_value("loss", accuracy, 2))


def test_guessing_exceeds_the_adjusted_chance_level_in_at_most_five_percent():
    for windows, classes in [(40, 2), (288, 4), (2400, 2)]:
        level = adjusted_chance(windows, classes)
        assert level > 1 / classes
        assert binom.sf(round(level * windows), windows, 1 / classes) <= 0.05
        assert binom.sf(round(level * windows) - 1, windows, 1 / classes) > 0.05


def test_reference_levels_are_those_of_the_mean_over_folds():
    simulated = simulate_results({"adam": 0.0, "afor": 0.0}, datasets=["bci2a"])
    level = reference_levels(collect_conditions(*simulated), "bci2a", "eegnet", "accuracy")
    assert level.majority == (pytest.approx(0.3), pytest.approx(0.0), 9)
    assert (level.chance, level.source) == (level.majority[0], "majority class")
    results = [replace(r, classes=0, test_windows=0) for r in simulated[0]]
    assert reference_levels(collect_conditions(results), "bci2a", "eegnet", "accuracy") is None
    balanced = [run(fold, test=(15, 15), train=(90, 90)) for fold in range(10)]
    level = reference_levels(collect_conditions(balanced), "mine", "eegnet", "accuracy")
    assert (level.chance, level.source) == (adjusted_chance(300, 2), "300 guesses")
    assert level.chance == pytest.approx(0.5467, abs=1e-4)


def test_the_test_is_that_of_all_flips():
    scores = [0.31, 0.22, 0.35, 0.27, 0.24, 0.4]
    tested = learned(study(scores, scores).conditions["mine", "eegnet", "afor"], "accuracy")
    gains = np.array(scores) - 0.25
    flips = np.array(list(itertools.product([1, -1], repeat=6))) @ gains
    assert tested.p == pytest.approx((flips >= gains.sum() - 1e-12).mean())
    assert (tested.level, tested.folds, tested.above) == (0.25, 6, tested.p < 0.05)


GUESSING = [0.26, 0.24, 0.25, 0.27, 0.23, 0.25, 0.24, 0.26]
LEARNED = [0.55, 0.6, 0.58, 0.52, 0.61, 0.5, 0.57, 0.63]


def test_two_networks_that_guess_have_no_verdict_anywhere(tmp_path):
    balanced = {"train": (30, 30, 30, 30), "test": (10, 10, 10, 10)}
    results = study([v + 0.001 * (-1) ** i for i, v in enumerate(GUESSING)], GUESSING, **balanced)
    (c,) = results.comparisons
    assert c.evidence.decision is Decision.EQUIVALENT  # as two equal networks are
    assert c.decision is Decision.NO_VERDICT
    assert needed_folds(c) is None
    verdict = verdict_of(c)
    assert verdict.what == (
        "No verdict: neither network is better than guessing (25.0 % of 4 classes)."
    )
    path = tmp_path / "runs.json"
    write_results(path, results.runs, ())
    invoke = CliRunner().invoke
    texts = {
        "table": " ".join(build_table("main", results).lead[0]),
        "notebook": StudyResults(results).verdict(),
        "judge": invoke(app, ["judge", str(path)]).stdout.replace("\n", " "),
        "JSON": json.dumps(
            json.loads(invoke(app, ["judge", str(path), "--json"]).stdout)[0]["rows"]
        ),
        "chart": chart_data(results)["comparisons"][0]["lines"][0],
        "power": str(invoke(app, ["power", str(path)]).exception),
        "report": render_report(results),
    }
    for name, text in texts.items():
        assert verdict.what in text, name
    for name in ("table", "notebook", "chart", "power"):
        for word in ("equal", "better than Adam", "worse", "would settle"):
            assert word not in texts[name], (name, word)
    row = json.loads(texts["JSON"])[0]
    assert row["verdict"] == "no verdict"
    assert row["folds_needed_low"] is None
    assert (row["above_guessing"], row["baseline_above_guessing"]) == (False, False)
    cells = [cell for row in main_table(results).rows[1:3] for cell in row.cells]
    assert {(cell.mark, cell.best) for cell in cells} == {("°", False)}


def test_one_network_that_learned_keeps_the_verdict_and_is_named():
    (c,) = study(LEARNED, GUESSING, train=(30, 30, 30, 30), test=(10, 10, 10, 10)).comparisons
    assert c.decision is Decision.BETTER
    assert "Only AFOR is better than guessing (25.0 % of 4 classes)." in verdict_of(c).sure


def test_two_networks_that_learned_are_judged_as_before():
    (c,) = study(LEARNED, LEARNED[::-1]).comparisons
    assert c.decision is c.evidence.decision
    assert "guessing" not in " ".join(verdict_of(c).lines)


def test_nll_is_tested_against_the_class_frequencies_of_the_training_subjects():
    level = guess_level("nll", run())
    (c,) = study([level + d for d in (0.01, -0.01) * 4], [level] * 8, metric="nll").comparisons
    assert c.decision is Decision.NO_VERDICT
    assert f"(NLL {level:.3f} of the class frequencies)" in verdict_of(c).what
    (c,) = study([level - 0.1 - d / 100 for d in range(8)], [level] * 8, metric="nll").comparisons
    assert c.learned.above
    assert not c.base_learned.above


def test_few_folds_cannot_tell_unless_they_are_at_guessing():
    for ours, decision in ((LEARNED[:4], Decision.UNDECIDED), (GUESSING[:3], Decision.NO_VERDICT)):
        (c,) = study(ours, ours).comparisons
        assert c.decision is decision
        assert c.learned.above is (None if ours is not GUESSING[:3] and ours[0] > 0.3 else False)


def test_a_table_without_a_chance_level_has_no_gate_and_says_so_once():
    runs = [replace(r, classes=0, majority_accuracy=math.nan, train_counts=(), test_counts=())
            for r in study(GUESSING, GUESSING).runs]  # fmt: skip
    results = Results.of(runs, metrics=["accuracy"])
    (c,) = results.comparisons
    assert c.decision is c.evidence.decision
    notes = [n for n in build_table("main", results).notes if "guessing is not known" in n]
    assert notes == [
        "mine (Acc): the level of guessing is not known, so whether the methods are better than "
        "guessing is not tested."
    ]


@pytest.mark.parametrize(("metric", "level"), [("auroc", 0.5), ("kappa", 0.0)])
def test_a_level_that_needs_no_classes_gates_a_table_without_them(metric, level):
    def judged(gain):
        unknown = {"classes": 0, "majority_accuracy": math.nan, "train_counts": ()}
        made = study([level - 0.02] * 6, [level + gain] * 6, metric).runs
        return Results.of([replace(r, **unknown) for r in made], metrics=[metric])

    (c,) = judged(-0.1).comparisons
    assert c.decision is Decision.NO_VERDICT
    assert "neither method is better than guessing" in verdict_of(c).what
    assert "without a signal" in verdict_of(c).what
    (c,) = judged(0.2).comparisons
    assert c.decision is Decision.WORSE
    assert "Only Adam is better than guessing" in verdict_of(c).sure


def test_an_exported_file_has_the_same_levels(tmp_path):
    made = [run(fold, accuracy=0.4, nll=1.0) for fold in range(6)]
    for name in ("runs.csv", "runs.json"):
        write_results(tmp_path / name, made, ())
        read, _ = load_results([tmp_path / name])
        for metric in ("accuracy", "weighted_f1", "nll", "brier"):
            assert guess_level(metric, read[0]) == guess_level(metric, made[0])


@pytest.fixture(scope="module")
def rates(load_script):
    """Return the script that simulates the tables of docs/explanation/statistics.md."""
    return load_script("docs/figures/guessing_rates.py")


def test_guessing_passes_the_gate_in_at_most_five_percent_of_studies(rates):
    for folds in (5, 10, 20):
        for rate in rates.false_rates(folds, studies=2000).values():
            assert rate <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


def test_a_network_that_learned_passes_the_gate(rates):
    assert rates.power_rates(10, studies=500)["+20 points, 2 classes"] > 0.95
