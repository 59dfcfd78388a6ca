"""`afor judge` on tables of scores: of MOABB, of scikit-learn, of a store's own numbers."""

import csv
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError
from afor.bench.store.files import read_rows

ROOT = Path(__file__).resolve().parents[4]
TABLES = ("comparisons", "pooled", "ranks")


def evaluate_with_moabb(folder):
    import moabb
    from mne.decoding import CSP, Vectorizer
    from moabb.datasets.fake import FakeDataset
    from moabb.evaluations import WithinSessionEvaluation
    from moabb.paradigms import LeftRightImagery
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.dummy import DummyClassifier
    from sklearn.pipeline import make_pipeline

    moabb.set_log_level("error")
    hands = ["left_hand", "right_hand"]
    evaluation = WithinSessionEvaluation(
        paradigm=LeftRightImagery(),
        datasets=[
            FakeDataset(hands, n_sessions=2, n_runs=1, n_subjects=n, seed=n, paradigm="imagery")
            for n in (6, 7)
        ],
        hdf5_path=str(folder),
        overwrite=True,
    )
    return evaluation.process(
        {
            "CSP+LDA": make_pipeline(CSP(2), LinearDiscriminantAnalysis()),
            "Dummy": make_pipeline(Vectorizer(), DummyClassifier(strategy="prior")),
        }
    )


@pytest.fixture(scope="module")
def moabb_csv(tmp_path_factory):
    """Let MOABB evaluate two pipelines on its own fake data sets; give the frame and its CSV."""
    pytest.importorskip("moabb", reason="moabb is not installed")
    folder = tmp_path_factory.mktemp("moabb")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MOABB and MNE about each other
        frame = evaluate_with_moabb(folder)
    path = folder / "results.csv"
    frame.to_csv(path)
    return frame, path


def test_a_csv_of_moabb_is_judged_per_data_set_and_over_both(moabb_csv, call, tmp_path):
    frame, path = moabb_csv
    words = [path, "--baseline", "Dummy", "--metric", "score"]
    tables = {t["table"]: t for t in json.loads(call("judge", *words, "--json").stdout)}
    assert set(TABLES) <= set(tables)
    means = frame.groupby(["dataset", "pipeline", "subject"])["score"].mean().unstack("pipeline")
    gains = (means["CSP+LDA"] - means["Dummy"]).groupby("dataset").mean()
    shown = {row["dataset"]: row["gain"] for row in tables["comparisons"]["rows"]}
    assert shown == pytest.approx(gains.to_dict(), abs=1e-6)
    assert {row["folds"] for row in tables["comparisons"]["rows"]} == {6, 7}
    assert tables["pooled"]["rows"][0]["datasets"] == 2
    notes = tables["comparisons"]["notes"]
    assert "Scores of several sessions are averaged per subject." in notes
    text = call("judge", *words).stdout
    assert "Over 2 tasks." in text

    assert r"\toprule" in call("table", "main", *words, "--format", "latex").stdout
    for name in ("gain", "folds"):
        call("figure", name, *words, "-o", tmp_path / f"{name}.png")
    call("power", *words, "--effect", "5")
    report = tmp_path / "report.html"
    call("report", *words, "-o", report)
    page = report.read_text("utf-8")
    assert "averaged per subject" in page
    assert "see the same batches" not in page  # nothing is known of how they were trained


def test_areas_under_the_roc_curve_have_no_verdict_where_both_pipelines_guess(moabb_csv, call):
    _, path = moabb_csv  # of noise
    words = [path, "--baseline", "Dummy", "--metric", "auroc"]
    text = " ".join(call("judge", *words).stdout.split())
    assert "No verdict: neither method is better than guessing (AUROC 50.0 % without a" in text
    assert "Check the labels and what the methods are given" in text
    assert "is worse than" not in text
    assert "guessing is not known" not in text


def test_the_frame_of_moabb_gives_what_its_csv_gives(moabb_csv, call):
    from afor.bench import judge

    frame, path = moabb_csv
    rows = json.loads(call("judge", path, "--baseline", "Dummy", "--json").stdout)[0]["rows"]
    judged = judge(frame, baseline="Dummy").results.comparisons
    assert [c.gain for c in judged] == pytest.approx([row["gain"] for row in rows], abs=1e-6)


def test_scores_of_scikit_learn_are_judged(call, tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_validate

    from afor.bench import judge

    x, y = datasets.make_classification(200, random_state=0)
    scoring = ["accuracy", "roc_auc", "neg_log_loss"]
    scores = {
        "guessing": cross_validate(DummyClassifier(), x, y, cv=10, scoring=scoring),
        "logistic": cross_validate(LogisticRegression(), x, y, cv=10, scoring=scoring),
    }
    judged = judge(scores)
    assert judged.results.metrics == ("accuracy", "auroc", "nll")
    assert "logistic is better than guessing" in judged.verdict()
    assert [c.decision.value for c in judged.results.comparisons] == ["better"] * 3
    gain = scores["guessing"]["test_neg_log_loss"] - scores["logistic"]["test_neg_log_loss"]
    assert judged.results.comparisons[2].gain == pytest.approx(-gain.mean())
    path = tmp_path / "scores.json"
    listed = {m: {k: v.tolist() for k, v in found.items()} for m, found in scores.items()}
    path.write_text(json.dumps(listed))
    printed = call("judge", path)
    assert "logistic is better than guessing" in printed.stdout
    assert "folds share training data" in " ".join(printed.stdout.split())


def test_a_stores_numbers_in_other_tables_give_the_stores_evidence(
    call, train_here, small_study, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(small_study(options={"n_subjects": 7}))
    call("run", "tiny.toml")
    call("export", "tiny", "-o", "runs.csv")
    rows = read_rows(tmp_path / "runs.csv")
    methods = sorted({row["method"] for row in rows})
    by_place = {(r["method"], r["test_subjects"], r["repetition"]): r["accuracy"] for r in rows}
    places = sorted({key[1:] for key in by_place})
    with (tmp_path / "wide.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["subject", "repetition", *methods])
        writer.writerows([*place, *(by_place[m, *place] for m in methods)] for place in places)
    with (tmp_path / "long.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["how", "who", "again", "accuracy"])
        writer.writerows([m, *place, by_place[m, *place]] for m, *place in by_place)
    columns = ["--column", "method=how", "--column", "unit=who", "--column", "repetition=again",
               "--column", "score=accuracy"]  # fmt: skip
    answers = [
        json.loads(call("judge", *words, "-m", "accuracy", "--baseline", "adamw", "--json").stdout)
        for words in (["tiny"], ["wide.csv"], ["long.csv", *columns])
    ]
    first, *others = (answer[0]["rows"] for answer in answers)
    for rows in others:
        assert len(rows) == len(first) == 1
        # This short training only guesses, which the store knows and a table of scores does not.
        for name in ("gain", "p_two_sided", "p_equivalent_holm", "interval_low", "wins", "folds"):
            assert rows[0][name] == first[0][name], name
    hint = call("judge", "long.csv", *columns).stderr
    assert "--column unit=who" in hint


def test_the_page_shows_what_the_command_prints(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "howto" / "judge.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    (scores,) = re.findall(r'"""(subject,.*?)"""', page, re.DOTALL)
    (tmp_path / "scores.csv").write_text(scores)
    ((words, shown),) = re.findall(r"^\$ afor (judge .*)\n(.*?)^```", page, re.M | re.S)
    printed = CliRunner(env={"COLUMNS": "100"}).invoke(app, words.split()).stdout
    assert printed.strip() == shown.strip()


def test_bad_tables_are_refused_in_one_sentence(call, refuse, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("pipeline,subject,score\na,1,0.5\na,1,0.6\n")
    assert "x.csv, line 3: a second score of 'a' for unit '1'" in refuse("judge", path)
    path.write_text("pipeline,subject,score\na,1,0.5\nb,1,inf\n")
    assert "x.csv, line 3, score: the score is inf" in refuse("judge", path)
    path.write_text("pipeline,subject,score\na,1,0.5\na,2,0.6\n")
    assert "nothing to compare" in refuse("judge", path)
    path.write_text("pipeline,subject,score\na,1,0.5\na,2,0.6\nb,1,0.5\n")
    printed = call("judge", path)
    assert "line 3: unit '2' has no score of b. --common leaves" in " ".join(printed.stdout.split())
    assert "afor run" not in printed.stderr
    assert "expected ROLE=NAME" in refuse("judge", path, "--column", "unit", error=ConfigError)


def test_the_command_imports_neither_torch_nor_mne(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"a": [0.1] * 8, "b": (np.arange(8) / 8).tolist()}))
    code = (
        "import sys; from afor.bench.cli.app import app; "
        f"app(['judge', {str(path)!r}], standalone_mode=False); "
        "print([m for m in ('torch', 'mne', 'moabb', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
