import os
import sqlite3
import subprocess
import sys

import pytest

from afor.bench.common.errors import StoreError
from afor.bench.store.database import open_or_create, open_store
from afor.bench.store.files import export_rows
from afor.bench.study.roles import Role
from afor.bench.training.execute import failed_run
from afor.bench.training.record import decode, encode


@pytest.fixture
def store(tiny):
    tiny.write(optimizers=("a", "b"), subjects=3, repetitions=2)
    tiny.run_here()
    with open_store(tiny.store, write=True) as opened:
        yield opened


def test_results_and_expected_are_what_the_statistics_need(store):
    results = store.results()
    assert len(results) == 3 * 2 * 2
    first = results[0]
    assert (first.study, first.dataset, first.backbone, first.method) == (
        "tiny",
        "synthetic",
        "tiny",
        "a",
    )
    assert first.test_subjects == ("sub-01",)
    assert set(first.metrics) > {"accuracy", "weighted_f1"}
    run = store.run(first.key)
    truth = [sum(row) for row in run.record.test.confusion]
    assert first.majority_accuracy == truth[1] / sum(truth)  # class 1 leads in training
    assert (first.classes, first.test_windows) == (4, run.record.test.n)
    assert [(e.method, e.folds, e.repetitions) for e in store.expected()] == [
        ("a", 3, 2),
        ("b", 3, 2),
    ]


def test_a_run_is_kept_once_and_comes_back_bit_by_bit(store):
    content = next(iter(store.contents()))
    assert not store.add(content)
    run = decode(content)
    assert encode(run) == content
    assert store.run(run.key) == run
    assert store.keys_like(run.key[:10]) == [run.key]


def test_failed_runs_are_never_counted_and_can_be_forgotten(store):
    spec = next(iter(store.contents()))
    assert store.add(failed_run("f" * 64, decode(spec).spec, "no luck"))
    assert store.statuses()["f" * 64] == "failed"
    assert len(store.results()) == 12
    store.forget([key for key, status in store.statuses().items() if status == "failed"])
    assert "f" * 64 not in store.statuses()


def test_an_altered_run_is_found(store):
    store._connection.execute(
        "UPDATE runs SET content = CAST(replace(content, '0.', '1.') AS BLOB)"
    )
    with pytest.raises(StoreError, match="other bytes than were written"):
        store.check()
    with pytest.raises(StoreError, match="damaged"):
        store.results()


def test_tables_are_strict_and_every_commit_is_synced(store):
    with pytest.raises(sqlite3.IntegrityError):
        store._connection.execute("UPDATE runs SET elapsed_s = 'soon'")
    (sql,) = store._connection.execute(
        "SELECT sql FROM sqlite_master WHERE name = 'runs'"
    ).fetchone()
    assert "STRICT" in sql
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_merging_takes_what_is_new_and_a_done_run_beats_a_failed_one(store, tmp_path):
    contents = list(store.contents())
    run = decode(contents[0])
    with open_or_create(tmp_path / "other.db") as other:
        other.add(failed_run(run.key, run.spec, "no luck"))
        other.add(contents[1])
        assert other.merge(store) == (11, 1, 0)
        assert set(other.statuses().values()) == {"done"}
        assert other.runs() == store.runs()
        assert other.merge(store) == (0, 12, 0)


def test_merging_tells_of_runs_with_other_numbers(store, tmp_path):
    contents = list(store.contents())
    changed = contents[0].replace(b'"steps":1', b'"steps":2')
    with open_or_create(tmp_path / "other.db") as other:
        other.add(changed)
        assert other.merge(store) == (11, 1, 1)


def test_what_is_no_store_is_refused_with_the_reason(tmp_path):
    with pytest.raises(StoreError, match="no store"):
        open_store(tmp_path / "absent.db")
    path = tmp_path / "x.db"
    for content, message in (
        (b"", "is empty"),
        (os.urandom(4096), "damaged"),
        (b"SQLite format 3\x00" + os.urandom(4000), "damaged|cannot be used"),
    ):
        path.write_bytes(content)
        for write in (False, True):
            with pytest.raises(StoreError, match=message):
                open_store(path, write=write)
        with pytest.raises(StoreError, match=message):
            open_or_create(path)
        assert path.read_bytes() == content
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        open_store(path)


def test_a_truncated_store_is_damaged_not_half_read(store, tmp_path):
    store.close()
    whole = store.path.read_bytes()
    path = tmp_path / "half.db"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="damaged"):
        open_store(path, write=True)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")
def test_a_read_only_store_can_be_read_and_writing_is_refused(store, tmp_path):
    store.close()
    folder = tmp_path / "fixed"
    folder.mkdir()
    path = folder / "x.db"
    path.write_bytes(store.path.read_bytes())
    path.chmod(0o444)
    folder.chmod(0o555)
    script = (
        "import os, sys; from pathlib import Path\n"
        "from afor.bench.store.database import open_store; "
        "from afor.bench.common.errors import StoreError\n"
        "if os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"path = Path({str(path)!r})\n"
        "with open_store(path) as s: print(len(s.results()))\n"
        "try: open_store(path, write=True)\n"
        "except StoreError as error: print(error)\n"
    )
    for parent in path.parents:  # nobody must be able to walk there
        if "pytest-" in str(parent):
            parent.chmod(parent.stat().st_mode | 0o011)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    folder.chmod(0o755)
    if "Permission denied" in done.stderr:
        pytest.skip("an unprivileged user cannot reach the files of this test")
    assert done.stdout.startswith("12\n"), done.stderr
    assert "read-only" in done.stdout


def test_a_run_carries_what_its_optimizer_is_whatever_its_name(tiny):
    tiny.write(optimizers=("a", "b"), subjects=3, repetitions=1)
    control = '{ name = "adam_b", use = "a", seed = 1 }'
    tiny.file.write_text(tiny.file.read_text().replace('"a", "b"', f'"a", {control}, "b_seed_1"'))
    tiny.run_inline()
    with open_store(tiny.store) as opened:
        roles = {run.method: run.role for run in opened.results()}
        assert roles == {"a": Role(), "adam_b": Role("a", 1), "b_seed_1": Role()}
        assert {runs.method: runs.role for runs in opened.expected()} == roles
        rows = {row["method"]: row for row in export_rows(opened)}
    assert (rows["adam_b"]["replicate_of"], rows["adam_b"]["seed"]) == ("a", 1)
    assert rows["b_seed_1"]["replicate_of"] is None
