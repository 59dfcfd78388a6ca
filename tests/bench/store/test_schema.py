import errno
import sqlite3

import pytest

from afor.bench.common.errors import StoreError
from afor.bench.store.tables import APPLICATION_ID, SCHEMA_VERSION, connect, create, explain


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "deep" / "x.db"
    create(file)
    return file


def test_a_new_store_is_whole_marked_and_alone_in_its_folder(path):
    assert [p.name for p in path.parent.iterdir()] == ["x.db"]
    connection = connect(path, write=False)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert {"runs", "studies", "plan"} <= tables
    connection.close()
    assert path.read_bytes()[68:72] == b"AFOR"


def test_what_a_killed_creation_left_behind_does_not_disturb_the_next(tmp_path):
    left = tmp_path / ".x.db.new"
    left.write_bytes(b"half of a store")
    create(tmp_path / "x.db")
    assert not left.exists()
    connect(tmp_path / "x.db", write=True).close()


def test_a_store_that_cannot_be_made_is_told_with_its_place(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"x\.db cannot be used"):
        create(tmp_path / "file" / "x.db")


def test_a_reader_cannot_write(path):
    connection = connect(path, write=False)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("INSERT INTO studies VALUES ('a', '', '', '')")
    connection.close()


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1])
@pytest.mark.parametrize("write", [False, True])
def test_another_schema_is_refused_both_ways_and_left_alone(path, version, write):
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=rf"has schema {version}, this version of afor reads"):
        connect(path, write=write)
    assert path.read_bytes() == before


def test_pages_that_are_broken_inside_are_found_before_anything_is_written(path):
    connection = sqlite3.connect(path)
    connection.executemany(
        "INSERT INTO studies VALUES (?, ?, '', '')", [(str(n), "x" * 500) for n in range(200)]
    )
    connection.commit()
    connection.close()
    content = bytearray(path.read_bytes())
    for start in range(8 * 4096, len(content) - 4096, 4096):
        content[start : start + 200] = b"\xff" * 200
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"):
        connect(path, write=True)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (sqlite3.DatabaseError("file is not a database"), "is damaged: file is not a database"),
        (sqlite3.DatabaseError("database disk image is malformed"), "Restore a copy"),
        (sqlite3.OperationalError("no such table: runs"), "is damaged"),
        (sqlite3.OperationalError("database or disk is full"), "disk is full.*runs.*are safe"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the disk is full"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "is read-only"),
        (OSError(errno.EROFS, "Read-only file system"), "is read-only"),
        (sqlite3.OperationalError("disk I/O error"), r"cannot be used \(disk I/O error\)"),
    ],
)
def test_every_error_of_the_disk_becomes_a_sentence_that_says_what_to_do(tmp_path, error, words):
    told = explain(tmp_path / "x.db", error)
    assert isinstance(told, StoreError)
    with pytest.raises(StoreError, match=words):
        raise told
    assert str(tmp_path / "x.db") in str(told)


def test_an_error_that_is_already_explained_stays_as_it_is(tmp_path):
    told = StoreError("said before")
    assert explain(tmp_path / "x.db", told) is told
