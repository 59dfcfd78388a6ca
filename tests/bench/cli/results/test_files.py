import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.store.database import open_or_create, open_store
from afor.bench.store.files import to_csv
from afor.bench.store.lock import locked
from afor.bench.store.spool import spool_folder, write_spool
from afor.bench.training.record import decode

runner = CliRunner()


@pytest.fixture
def parts(tiny, monkeypatch):
    """Two halves of a study, a store each."""
    monkeypatch.chdir(tiny.folder)
    tiny.write(subjects=3, repetitions=1)
    paths = []
    for number in (1, 2):
        paths.append(Path(f"part-{number}.db"))
        tiny.run_inline(paths[-1], part=(number, 2))
    return paths


def merge(*paths):
    return runner.invoke(app, ["store", "merge", *map(str, paths)])


def test_parts_come_together_and_stay_as_they_are(parts):
    before = [part.read_bytes() for part in parts]
    result = merge("all.db", *parts)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "part-1.db: 3 new runs, 0 already here",
        "part-2.db: 3 new runs, 0 already here",
        "all.db: 6 runs",
    ]
    assert "Next: afor status all.db" in result.stderr
    assert [part.read_bytes() for part in parts] == before
    with open_store(Path("all.db")) as store:
        assert [cell.status for cell in store.runs("tiny")] == ["done"] * 6
    assert "3 new" not in merge("all.db", *parts).stdout  # again: all is known


def test_export_prints_json(parts):
    said = merge("all.db", *parts).stdout
    assert "part-1.db: 3 new runs, 0 already here" in said
    assert said.endswith("all.db: 6 runs\n")
    printed = json.loads(runner.invoke(app, ["export", "all.db", "--json"]).stdout)
    assert len(printed["runs"]) == 6
    written = runner.invoke(app, ["export", "all.db", "-o", "runs.csv", "--json"])
    assert json.loads(written.stdout) == {"file": "runs.csv", "format": "csv", "runs": 6}
    assert Path("runs.csv").exists()


def test_runs_with_other_numbers_are_told_and_the_first_is_kept(parts):
    with open_store(parts[0]) as store:
        contents = list(store.contents())
    with open_or_create(Path("other.db")) as store:
        store.add(contents[0].replace(b'"steps":1', b'"steps":9'))
    result = merge("all.db", parts[0], "other.db")
    assert "other.db: 0 new runs, 1 already here; 1 of these with OTHER NUMBERS" in result.stdout
    with open_store(Path("all.db")) as store:
        assert store.run(decode(contents[0]).key).record.steps == 1


def test_what_a_killed_driver_left_in_the_spool_of_the_target_is_taken_first(parts):
    with open_store(parts[1]) as store:
        content = next(iter(store.contents()))
    target = Path("all.db")
    write_spool(spool_folder(target), decode(content).key, content)
    result = merge(target, parts[1])
    assert "part-2.db: 2 new runs, 1 already here" in result.stdout
    assert not list(spool_folder(target).glob("*.run"))


def test_a_missing_part_or_one_that_is_the_target_is_refused(parts):
    missing = merge("all.db", "absent.db")
    assert isinstance(missing.exception, StoreError)
    assert "no store absent.db" in str(missing.exception)
    assert not Path("all.db").exists()
    same = merge(parts[0], parts[1], parts[0].resolve())
    assert isinstance(same.exception, ConfigError)
    assert "target and as a part" in str(same.exception)


def test_a_store_that_is_being_written_takes_no_parts(parts):
    with locked(Path("all.db")):
        result = merge("all.db", *parts)
    assert isinstance(result.exception, StoreError)
    assert "another afor" in str(result.exception)


def test_export_prints_csv_or_writes_the_file_that_is_named(parts):
    merge("all.db", *parts)
    printed = runner.invoke(app, ["export", "all.db"]).stdout
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert [row["status"] for row in rows] == ["done"] * 6
    written = runner.invoke(app, ["export", "all.db", "--output", "deep/runs.csv"])
    assert written.stdout == "deep/runs.csv: 6 runs\n"
    assert "Next: afor store verify all.db" in written.stderr
    assert Path("deep/runs.csv").read_text() == printed


def test_export_refuses_an_ending_before_it_looks_for_the_store():
    result = runner.invoke(app, ["export", "absent.db", "-o", "runs.xlsx"])
    assert isinstance(result.exception, ConfigError)
    assert ".csv, .json or .parquet" in str(result.exception)


def test_only_files_of_export_are_exported_again(parts):
    text = runner.invoke(app, ["export", str(parts[0])]).stdout
    Path("runs.csv").write_text(text)
    faults = {
        "kee unknown": text.replace("key", "kee"),
        "key missing": "\n".join(line.rpartition(",")[0] for line in text.splitlines()),
    }
    rows = list(csv.DictReader(io.StringIO(text)))
    wrong = "steps = 'many': Input should be a valid integer"
    faults[wrong] = to_csv([rows[0] | {"steps": "many"}])
    for message, content in faults.items():
        Path("changed.csv").write_text(content)
        result = runner.invoke(app, ["export", "changed.csv", "-o", "again.csv"])
        assert isinstance(result.exception, StoreError), message
        assert message in str(result.exception)
    assert runner.invoke(app, ["export", "runs.csv"]).stdout == text
