import csv
import io
import json
import sys
from collections import Counter

import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.store.database import open_store
from afor.bench.store.files import (
    COLUMNS,
    check_suffix,
    export_rows,
    join_subjects,
    load_results,
    split_subjects,
    to_csv,
    write_export,
)


@pytest.fixture
def store(tiny):
    tiny.write(optimizers=("a", "diverger"), subjects=3, repetitions=1)
    tiny.run_inline()
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


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_what_is_exported_is_what_the_tables_read(tiny, tmp_path, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    tiny.write(optimizers=("a", "diverger"), subjects=6, repetitions=2)
    text = tiny.file.read_text().replace("[[datasets]]", "[[datasets]]\nfolds = 3")
    tiny.file.write_text(text)
    tiny.run_inline()
    target = tmp_path / "deep" / f"runs.{kind}"
    with open_store(tiny.store) as store:
        write_export(export_rows(store), target)
        assert load_results([target]) == (store.results(), store.expected())
        assert {len(run.test_subjects) for run in store.results()} == {2}
        assert list(store.results()[0].metrics) == list(load_results([target])[0][0].metrics)
    if kind == "json":
        assert "NaN" not in target.read_text()
        assert len(json.loads(target.read_text())["runs"]) == 12


def test_a_search_beside_a_study_counts_in_a_file_as_it_does_in_the_store(tiny, tmp_path):
    tiny.write(optimizers=("a",), subjects=3, repetitions=1)
    tiny.run_inline()
    tiny.write(
        optimizers=("a",), subjects=3, repetitions=1, name="s", extra="search.grid = [0.1, 1.0]"
    )
    tiny.run_inline()
    target = tmp_path / "runs.csv"
    with open_store(tiny.store) as store:
        write_export(export_rows(store), target)
        assert store.studies().keys() == {"tiny", "s"}
        assert load_results([target]) == (store.results(), store.expected())
        assert load_results([target], ["s"]) == (store.results("s"), store.expected("s"))


@pytest.mark.parametrize("names", [("s01",), ("s01", "s02"), ("anna b", "c;d", "e\\", "f")])
def test_subjects_of_any_name_come_back(names):
    assert split_subjects(join_subjects(names)) == names


def test_parquet_without_pyarrow_names_the_extra_and_writes_nothing(store, tmp_path, monkeypatch):
    target = tmp_path / "deep" / "runs.parquet"
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'afor\[parquet\]'.*\.csv or \.json"):
        write_export(export_rows(store), target)
    assert not target.parent.exists()


def test_parquet_brings_every_row_back_bit_by_bit_with_its_types(store, tmp_path):
    reason = "pyarrow is not installed: the extra afor[parquet]"
    parquet = pytest.importorskip("pyarrow.parquet", reason=reason)
    target = tmp_path / "runs.parquet"
    write_export(export_rows(store), target)
    table = parquet.read_table(target)
    assert table.to_pylist() == export_rows(store)
    types = {field.name: str(field.type) for field in table.schema}
    assert (types["steps"], types["accuracy"], types["reason"]) == ("int64", "double", "string")
    names = {"int64": int, "double": float, "string": str}
    assert {name: names[kind] for name, kind in types.items()} == COLUMNS


def test_columns_keep_their_types_where_every_value_is_missing(tiny, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    tiny.write(optimizers=("raiser",), subjects=3, repetitions=1)
    tiny.run_inline()
    target = tmp_path / "runs.parquet"
    with open_store(tiny.store) as opened:
        write_export(export_rows(opened), target)
    table = parquet.read_table(target)
    assert str(table.schema.field("accuracy").type) == "double"
    assert table["accuracy"].null_count == 3


def test_an_export_that_fails_leaves_the_old_file(store, tmp_path, monkeypatch):
    target = tmp_path / "runs.json"
    target.write_text("old")
    monkeypatch.setattr("afor.bench.store.files.to_json", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_export(export_rows(store), target)
    assert target.read_text() == "old"


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"\.csv, \.json or \.parquet"):
        check_suffix(tmp_path / "runs.xlsx")


def test_a_run_of_two_studies_is_exported_under_both(tiny, tmp_path):
    for name, optimizers in (("first", ("a",)), ("second", ("a", "b"))):
        tiny.write(optimizers=optimizers, subjects=3, repetitions=1, name=name)
        tiny.run_inline()
    with open_store(tiny.store) as store:
        rows = export_rows(store)
    found = Counter((row["study"], row["method"]) for row in rows if row["status"] == "done")
    assert found == {("first", "a"): 3, ("second", "a"): 3, ("second", "b"): 3}
    assert len({row["key"] for row in rows}) == 6
