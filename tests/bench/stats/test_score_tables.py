"""Tables of scores from elsewhere: what is recognised, what is refused and with which sentence."""

import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest

from afor.bench import judge
from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.results import Results
from afor.bench.stats.score_tables import read_scores
from afor.bench.store.files import results_csv

RNG = np.random.default_rng(0)
LDA = (0.6 + 0.1 * RNG.normal(size=10)).round(4).tolist()
SVM = [round(value + 0.03 + 0.02 * RNG.normal(), 4) for value in LDA]
PAIRS = list(zip(LDA, SVM, strict=True))
LONG = [
    {"pipeline": name, "subject": subject, "score": score}
    for name, scores in (("lda", LDA), ("svm", SVM))
    for subject, score in enumerate(scores)
]


def values_of(scores):
    return {
        (run.dataset, run.method, run.fold, run.repetition): dict(run.metrics)
        for run in scores.runs
    }


EXPECTED = {
    ("the table", name, i, 0): {"score": pytest.approx(score)}
    for name, scores in (("lda", LDA), ("svm", SVM))
    for i, score in enumerate(scores)
}


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        (LONG, {}),
        ([{"who": r["subject"], "how": r["pipeline"], "score": r["score"]} for r in LONG],
         {"unit": "who", "method": "how"}),
        ([{"subject": i, "lda": a, "svm": b} for i, (a, b) in enumerate(PAIRS)], {}),
        ([{"person": f"p{i}", "lda": a, "svm": b} for i, (a, b) in enumerate(PAIRS)], {}),
        ([{"lda": a, "svm": b} for a, b in PAIRS], {}),
        ({"lda": np.array(LDA), "svm": np.array(SVM)}, {}),
        ({"lda": {"fit_time": [1.0] * 10, "test_score": LDA}, "svm": {"test_score": SVM}}, {}),
    ],
)  # fmt: skip
def test_every_form_of_a_table_gives_the_same_runs(content, columns):
    assert values_of(read_scores(content, columns)) == EXPECTED


def test_frames_of_pandas_are_read_with_their_index():
    pandas = pytest.importorskip("pandas")
    assert values_of(read_scores(pandas.DataFrame(LONG))) == EXPECTED
    wide = pandas.DataFrame({"lda": LDA, "svm": SVM}, index=[f"s{i}" for i in range(10)])
    assert values_of(read_scores(wide)) == EXPECTED
    assert read_scores(wide).runs[0].test_subjects == ("s0",)


def test_several_metrics_tasks_and_repetitions():
    rows = [
        {"method": m, "fold": f, "dataset": d, "seed": s, "accuracy": 0.5 + f / 10, "nll": 1.0 + s}
        for m in "ab" for f in range(3) for d in ("x", "y") for s in (7, 11)
    ]  # fmt: skip
    runs = read_scores(rows).runs
    assert len(runs) == 2 * 3 * 2 * 2
    assert {run.repetition for run in runs} == {0, 1}
    assert runs[0].metrics == {"accuracy": 0.5, "nll": 8.0}
    assert runs[0].test_subjects == ()  # a fold is no subject
    by_metric = [
        {"method": m, "unit": f, "metric": k, "value": v}
        for m in "ab" for f in range(3) for k, v in (("roc_auc", 0.7), ("neg_log_loss", -0.4))
    ]  # fmt: skip
    assert read_scores(by_metric).runs[0].metrics == {"auroc": 0.7, "nll": 0.4}
    assert Results.of(read_scores(by_metric).runs, remarks=["x"], baseline="a").metrics == (
        "auroc",
        "nll",
    )


def test_sessions_of_a_subject_are_averaged_and_that_is_said():
    rows = [{**row, "session": s, "score": row["score"] + 0.1 * s} for row in LONG for s in (0, 1)]
    read = read_scores(rows)
    assert len(read.runs) == len(LONG)
    assert read.runs[0].metrics["score"] == pytest.approx(LDA[0] + 0.05)
    assert "Scores of several sessions are averaged per subject." in read.notes
    with pytest.raises(ConfigError, match=r"row 38: unit '9' has no score of lda in session '0'"):
        read_scores([row for i, row in enumerate(rows) if i != 18])


def test_rows_that_repeat_others_count_once_and_that_is_said():
    read = read_scores([*LONG, LONG[3], LONG[4]])
    assert values_of(read) == EXPECTED
    assert read.notes[1] == (
        "the table, row 21 repeats the table, row 4 and 1 more repeat others; such rows count once."
    )


def test_percent_is_recognised_and_said():
    read = read_scores([{**row, "score": 100 * row["score"]} for row in LONG])
    assert values_of(read) == EXPECTED
    assert "Values of score are above 1 and taken as percent." in read.notes
    kept = read_scores([{**row, "nll": 40.0} for row in LONG], {"score": "nll"})
    assert kept.runs[0].metrics == {"nll": 40.0}


def test_units_are_sorted_by_their_numbers_and_names_with_copies_are_methods():
    rows = [{**row, "subject": f"s{row['subject']}"} for row in LONG]
    rows = [{**row, "pipeline": row["pipeline"].replace("svm", "lda_seed_1")} for row in rows]
    results = judge(rows).results
    assert [pair.label for pair in results.comparisons[0].pairs][:3] == ["s0", "s1", "s2"]
    assert results.methods == ["lda", "lda_seed_1"]
    assert [run.fold for run in read_scores(rows).runs if run.test_subjects == ("s9",)] == [9, 9]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            [*LONG, {**LONG[3], "score": 0.0}],
            "row 21: a second score of 'lda' for unit '3'; the first is in the",
        ),
        ([*LONG[:4], {**LONG[4], "score": math.nan}, *LONG[5:]], "row 5, score: the score is nan"),
        (
            [*LONG[:4], {**LONG[4], "score": "nan"}, *LONG[5:]],
            "is nan, not a finite number. Remove the row",
        ),
        (
            [*LONG[:4], {**LONG[4], "score": "0,5"}, *LONG[5:]],
            "is 0,5, not a finite number. Write a decimal point",
        ),
        ([*LONG[:4], {**LONG[4], "score": "bad"}, *LONG[5:]], "row 5, score: the score is bad"),
        ([*LONG[:4], {**LONG[4], "subject": None}, *LONG[5:]], "row 5: subject is empty"),
        ([{**row, "score": None} for row in LONG], "row 1, score: the score is missing"),
        ([{"pipeline": "a", "score": 1}], "no column is recognised as the unit"),
        ([{"subject": 1, "score": 1}], "no column is recognised as the method"),
        (
            [{"algo": "a", "who": 1, "score": 0.5}, {"algo": "b", "who": 1, "score": 0.6}],
            "no column is recognised as the method",
        ),
        ([{"pipeline": "a", "subject": 1, "mine": 1}], "no column is recognised as the score"),
        ([{"pipeline": "a", "subject": 1, "rmse": 1.0}], "no column is recognised as the score"),
        ([], "has no rows"),
        (3, "expected a data frame"),
        ({"fit_time": [1], "test_score": [1]}, "the cross-validation of one method"),
        ({"lda": [0.5]}, "two or more methods"),
        ({"lda": [0.5], "svm": 3}, "'svm': expected a list of scores"),
        ({"lda": [0.5], "svm": [math.inf]}, "'svm', fold 0: the score is inf"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_the_row(content, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_scores(content)


def test_an_error_measure_is_refused_because_less_of_it_is_better():
    with pytest.raises(ConfigError, match="less of 'rmse' seems to be better"):
        read_scores([{**row, "rmse": 1.0} for row in LONG], {"score": "rmse"})


def test_the_one_metric_that_is_asked_for_names_the_score():
    rows = [{"who": r["subject"], "how": r["pipeline"], "x": r["score"]} for r in LONG]
    found = judge(rows, unit="who", method="how", score="x", metrics=["accuracy"])
    assert found.metric == "accuracy"
    assert found.results.comparisons[0].evidence.margin == 0.01
    named = judge([{**row, "score": 1.7} for row in LONG], metrics=["nll"])
    assert named.results.runs[0].metrics == {"nll": 1.7}  # not percent


def test_a_misspelt_metric_names_the_nearest():
    note = judge(LONG, metrics=["accuracyy"]).results.notes[0]
    assert "'accuracyy' is not a metric that is known here" in note
    assert "Did you mean 'accuracy'?" in note
    assert "not a metric" not in judge(LONG, metrics=["accuracy"]).results.notes[0]


def test_misspelt_columns_name_the_nearest():
    with pytest.raises(ConfigError, match=r"has no column 'pipeline1'. Did you mean 'pipeline'"):
        read_scores(LONG, {"method": "pipeline1"})
    with pytest.raises(ConfigError, match=r"cannot be 'methods'. Did you mean 'method'"):
        read_scores(LONG, {"methods": "pipeline"})


def test_unpaired_units_get_a_sentence_and_no_verdict_or_are_left_out():
    rows = LONG[:-1]
    results = judge(rows).results
    assert any("row 10: unit '9' has no score of svm" in note for note in results.notes)
    assert results.comparisons[0].decision is None
    left = judge(rows, common=True).results
    assert (left.comparisons[0].folds, left.comparisons[0].complete) == (9, True)
    assert any("1 units are left out for all methods" in note for note in left.notes)
    broken = [*LONG[:3], {**LONG[3], "score": math.nan}, *LONG[4:]]
    assert judge(broken, common=True).results.comparisons[0].folds == 9


def test_verdicts_are_those_of_our_own_format(tmp_path):
    made, _ = simulate_results({"a": 0.0, "b": 0.02, "c": 0.05}, datasets=["deap", "isruc"])
    theirs = [
        {"pipeline": r.method, "subject": r.fold, "dataset": r.dataset, "seed": r.repetition,
         "accuracy": r.metrics["accuracy"]} for r in made
    ]  # fmt: skip
    (tmp_path / "ours.csv").write_text(results_csv(made))
    ours = Results.open([tmp_path / "ours.csv"], baseline="a", metrics=["accuracy"])
    judged = judge(theirs, baseline="a").results
    keys = ("dataset", "metric", "method", "evidence", "family", "p_holm", "complete")
    assert [[getattr(c, k) for k in keys] for c in judged.comparisons] == [
        [getattr(c, k) for k in keys] for c in ours.comparisons
    ]
    assert [c.interval for c in judged.pooled] == [c.interval for c in ours.pooled]


def test_files_are_read_as_tables_in_memory(tmp_path):
    lines = ["\ufeffsubject;lda;svm", *(f"s{i};{a};{b}" for i, (a, b) in enumerate(PAIRS))]
    (tmp_path / "excel.csv").write_text("\n".join(lines), "utf-8")
    (tmp_path / "scores.json").write_text(json.dumps({"lda": LDA, "svm": SVM}))
    gains = [
        judge(tmp_path / name, metrics=["accuracy"]).results.comparisons[0].gain
        for name in ("excel.csv", "scores.json")
    ]
    assert gains == [judge({"lda": LDA, "svm": SVM}).results.comparisons[0].gain] * 2
    (tmp_path / "row.csv").write_text("subject,pipeline,score\n1,a,0.5\n2,a,\n")
    with pytest.raises(ConfigError, match=r"row.csv, line 3, score: the score is missing"):
        judge(tmp_path / "row.csv")
    (tmp_path / "no.json").write_text("{")
    with pytest.raises(StoreError, match=r"no.json"):
        judge(tmp_path / "no.json")


def test_judging_imports_neither_torch_nor_mne():
    code = (
        "import sys; from afor.bench import judge; "
        "print(judge({'a': [.1, .2, .3, .4, .5, .6], 'b': [.2, .3, .4, .5, .6, .8]}).verdict()); "
        "print([m for m in ('torch', 'mne', 'moabb', 'pandas', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    verdict, *_, modules = done.stdout.splitlines()
    assert "b is better than a" in verdict
    assert modules == "[]"
