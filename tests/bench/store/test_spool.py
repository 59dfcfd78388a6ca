import pytest

from afor.bench.store.spool import leftovers, read_spool, unwrap, wrap, write_spool


def test_what_was_written_is_read_back(tmp_path):
    path = write_spool(tmp_path / "spool", "abc", b"content\nof two lines")
    assert read_spool(path) == b"content\nof two lines"
    assert list(leftovers(path.parent)) == [path]
    assert [p.name for p in path.parent.iterdir()] == ["abc.run"]


def test_every_changed_byte_is_noticed():
    whole = wrap(b"content")
    for position in range(len(whole)):
        altered = bytearray(whole)
        altered[position] ^= 1
        with pytest.raises(ValueError):
            unwrap(bytes(altered))


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "no space")))
    with pytest.raises(OSError, match="no space"):
        write_spool(tmp_path, "abc", b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_nothing(tmp_path):
    assert read_spool(tmp_path / "absent.run") is None
    assert list(leftovers(tmp_path / "absent")) == []
