"""The linear model beside the networks: on the same splits, stored, shown, never compared."""

import re
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info

from afor.bench import compare
from afor.bench.common.errors import StoreError
from afor.bench.execution import linear_reference
from afor.bench.report.registry import build_table
from afor.bench.stats.results import Results
from afor.bench.store.database import open_or_create, open_store
from afor.bench.store.files import export_rows, write_export
from afor.bench.store.repair import repair

RATE, PEOPLE, TRIALS = 64, 6, 12


def task(seed=0, strength=0.8):
    """Return trials whose second channel is louder in one class."""
    rng = np.random.default_rng(seed)
    labels = np.tile([0, 1], PEOPLE * TRIALS // 2)
    data = rng.normal(0, 10, (PEOPLE * TRIALS, 3, RATE)).astype(np.float32)
    data[labels == 1, 1] *= 1 + strength
    return data, labels, np.repeat([f"p{i}" for i in range(PEOPLE)], TRIALS)


@pytest.fixture
def run(tmp_path, train_here):
    def call(data, **changes):
        options = {
            "rate_hz": RATE, "lr": 1e-5, "max_epochs": 1, "batch_size": 8, "progress": False,
            "store": tmp_path / "x.db", "cache_dir": tmp_path / "cache",
        }  # fmt: skip
        return compare(*data, **{**options, **changes})

    return call


def test_it_is_log_variance_and_logistic_regression_on_the_same_splits(run):
    data, labels, people = task()
    results = run((data, labels, people))
    features = np.log(data.astype(np.float64).var(axis=2) + 1e-12)
    splits = {r.fold: r for r in results.results.runs if r.method == "afor"}
    scores = []
    for run_ in splits.values():
        trained = re.match(r"\[\[(.*?)\]", run_.protocol["split"])[1].split(",")
        train, test = np.isin(people, trained), people == run_.test_subjects[0]
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        model.fit(features[train], labels[train])
        scores.append(model.score(features[test], labels[test]))
    mean, _, folds = results.results.linear("notebook", "eegnet", "accuracy")
    assert (mean, folds) == (pytest.approx(np.mean(scores)), PEOPLE)
    assert mean > 0.8


def test_the_row_and_the_advice_are_shown_and_it_is_not_compared(run):
    results = run(task())
    table = build_table("main", results.results)
    labels = [row.label for row in table.rows]
    assert labels.index("Linear model") == labels.index("Majority class") - 1
    notes = " ".join(table.notes)
    assert "a linear model gets" in notes
    assert "raise the learning rate or the number of epochs" in notes
    assert {r["method"] for r in table.records} == {"adamw", "afor"}
    assert {c.method for c in results.results.comparisons} == {"afor"}


def test_it_is_fitted_once_and_belongs_to_its_own_data(run, monkeypatch):
    easy = run(task())
    before = easy.results.linear("notebook", "eegnet", "accuracy")
    hard = run(task(seed=1, strength=0.0))  # the same name and store
    assert hard.results.linear("notebook", "eegnet", "accuracy")[0] < 0.7
    monkeypatch.setattr(linear_reference, "_fit", lambda *_: pytest.fail("fitted again"))
    again = run(task())
    assert again.results.linear("notebook", "eegnet", "accuracy") == before
    assert easy.results.linear("notebook", "eegnet", "accuracy") == before


def test_nothing_to_learn_gives_another_advice(run):
    notes = " ".join(run(task(strength=0.0)).table().content.notes)
    assert "raise the learning rate" not in notes
    assert re.search(r"neither a linear model \([\d.]+ %\) nor this network \([\d.]+ %\)", notes)


def test_it_can_be_switched_off_and_is_left_out_where_it_is_not_cheap(run, tmp_path, monkeypatch):
    results = run(task(), reference=False)
    assert results.results.linear("notebook", "eegnet", "accuracy") is None
    assert "Linear model" not in str(results.table())
    monkeypatch.setattr(linear_reference, "MAX_FIT_VALUES", 1)
    assert run(task()).results.linear("notebook", "eegnet", "accuracy") is None
    with open_store(tmp_path / "x.db") as store:
        assert store.linear_fits() == {}


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_it_goes_with_the_runs_into_exports_merged_and_repaired_stores(run, tmp_path, kind):
    known = run(task()).results.linear("notebook", "eegnet", "nll")
    source, exported, merged = (tmp_path / name for name in ("x.db", f"runs.{kind}", "merged.db"))
    with open_store(source) as store, open_or_create(merged) as target:
        write_export(export_rows(store), exported)
        target.merge(store)
    repair(source, tmp_path / "repaired.db")
    for path in (exported, merged, tmp_path / "repaired.db"):
        assert Results.open([path], baseline=None).linear("notebook", "eegnet", "nll") == known


def test_an_altered_fit_is_noticed(run, tmp_path):
    run(task())
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as connection:
        connection.execute("UPDATE linear SET metrics = replace(metrics, '0.', '1.')")
    with open_store(tmp_path / "x.db") as store, pytest.raises(StoreError, match="linear fit"):
        store.results()


def test_it_is_fitted_on_one_thread(run, monkeypatch):
    used = []

    class Watched(LogisticRegression):
        def fit(self, *arguments, **options):
            used.extend(p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas")
            return super().fit(*arguments, **options)

    monkeypatch.setattr("sklearn.linear_model.LogisticRegression", Watched)
    run(task())
    assert set(used) == {1}
