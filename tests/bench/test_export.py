import csv
import io
import json
import sys

import pytest

from afor.bench.errors import ConfigError
from afor.bench.export import export_rows, kind_of, to_csv, write_export
from afor.bench.results_files import load_results
from afor.bench.store import open_store


@pytest.fixture
def store(tiny):
    tiny.write(optimizers=("a", "diverger"), subjects=3, draws=1)
    tiny.run_here()
    with open_store(tiny.store) as opened:
        yield opened


def test_there_is_a_row_per_planned_run_with_every_bit(store):
    rows = list(csv.DictReader(io.StringIO(to_csv(export_rows(store)))))
    assert [row["status"] for row in rows] == ["done", "diverged"] * 3
    run = store.run(rows[0]["key"])
    assert float(rows[0]["accuracy"]) == run.record.test.accuracy
    assert float(rows[0]["best_validation_accuracy"]) == run.record.history[0].validation_accuracy
    assert rows[1]["accuracy"] == ""
    assert "nan in epoch 1" in rows[1]["reason"]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_what_is_exported_is_what_the_tables_read(store, tmp_path, kind):
    target = tmp_path / "deep" / f"runs.{kind}"
    assert write_export(store, target, kind_of(target)) == 6
    results, expected = load_results([target])
    assert [(r.key, r.metrics["accuracy"]) for r in results] == [
        (r.key, r.metrics["accuracy"]) for r in store.results()
    ]
    assert results[0].test_subjects == store.results()[0].test_subjects
    if kind == "json":
        assert expected == store.expected()
        assert results == store.results()
        assert "NaN" not in target.read_text()
        assert len(json.loads(target.read_text())["runs"]) == 6


def test_parquet_without_pyarrow_says_what_to_install(store, tmp_path, monkeypatch):
    target = tmp_path / "runs.parquet"
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "fastparquet", None)
    with pytest.raises(ConfigError, match="pip install pyarrow"):
        write_export(store, target, "parquet")


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"\.csv, \.json or \.parquet"):
        kind_of(tmp_path / "runs.xlsx")
