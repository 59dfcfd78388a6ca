import os
import resource
import sqlite3

import pytest

from afor.bench.common.errors import StoreError
from afor.bench.execution.runner import take_leftovers
from afor.bench.store.database import open_or_create, open_store
from afor.bench.store.spool import QUARANTINE, spool_folder, wrap


def limit_files(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_full_disk_is_a_clean_error_and_the_study_goes_on_after(tiny):
    tiny.write(repetitions=4, padding=400)  # 40 runs of some 9 kB
    text = tiny.run("-j", "2", code=4, preexec_fn=limit_files(100_000))
    assert "Traceback" not in text
    assert "run the same" in text
    finished = tiny.finished()
    assert 0 < len(finished) < 40
    seen = len(tiny.trainings())
    tiny.call("-j", "2")
    begun = tiny.trainings()[seen:]
    assert not finished.intersection(begun)
    assert len(tiny.finished()) == 40


def test_a_spool_that_cannot_be_written_is_a_clean_error(tiny):
    tiny.write(padding=20_000)  # a run of 400 kB
    text = tiny.run("-j", "2", code=4, preexec_fn=limit_files(200_000))
    assert "cannot be written" in text
    assert "Traceback" not in text
    tiny.call("-j", "2")
    assert len(tiny.finished()) == 20


def test_sqlite_reporting_a_full_disk_keeps_all_rows_and_takes_more_later(tiny):
    tiny.run_inline()
    with open_store(tiny.store) as store:
        contents = list(store.contents())
    other = tiny.folder / "small.db"
    with open_or_create(other) as store:
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StoreError, match="the disk is full"):
            any(not store.add(content) for content in contents)
        added = len(store.statuses())
        assert 0 < added < len(contents)
        store._connection.execute("PRAGMA max_page_count = 100000")
        assert sum(store.add(content) for content in contents) == len(contents) - added
        store.check()


def test_a_spool_file_cut_at_any_point_is_quarantined_and_never_counted(tiny):
    tiny.write(optimizers=("a",), subjects=3, repetitions=1)
    tiny.run_inline()
    with open_store(tiny.store) as store:
        whole = wrap(next(iter(store.contents())))
    fresh = tiny.folder / "fresh" / "tiny.db"
    with open_or_create(fresh) as store:
        spool = spool_folder(fresh)
        spool.mkdir()
        for cut in range(len(whole)):
            (spool / f"{cut}.run").write_bytes(whole[:cut])
        (spool / "more.run").write_bytes(whole + b"x")
        assert take_leftovers(store) == 0
        assert store.statuses() == {}
        assert len(list((spool / QUARANTINE).iterdir())) == len(whole) + 1
        assert not list(spool.glob("*.run"))
        (spool / "whole.run").write_bytes(whole)
        (spool / ".half.tmp").write_bytes(whole[:50])
        assert take_leftovers(store) == 1
        assert not list(spool.glob(".*.tmp"))


def test_a_bad_store_is_a_clean_error_of_every_command(tiny):
    tiny.store.parent.mkdir()
    for content, word in ((b"", "is empty"), (os.urandom(5000), "damaged")):
        tiny.store.write_bytes(content)
        for command in ("run", "status", "store failures", "store verify", "export"):
            text = tiny.call(code=4, command=command)
            assert word in text
            assert "Traceback" not in text
        assert tiny.store.read_bytes() == content  # nothing is written over


def test_a_store_of_a_newer_version_is_refused(tiny):
    tiny.run_inline()
    with sqlite3.connect(tiny.store) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert "schema 99" in tiny.call(code=4)
    assert "schema 99" in tiny.call(code=4, command="status")
