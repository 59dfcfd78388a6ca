import hashlib
import os

import pytest

from afor.bench.common.errors import DataError
from afor.bench.common.files import sha256_of, write_atomically
from afor.bench.data.fetching import PUBLISHED_LIST, listed_checksums
from afor.bench.data.prepared import Checksums


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    (folder / "S001").mkdir(parents=True)
    (folder / "S001" / "a.edf").write_bytes(b"first")
    return folder


def use(root, cache_dir, **options):
    checksums = Checksums(cache_dir, root)
    try:
        ((name, checksum),) = checksums.of([root / "S001" / "a.edf"], **options).items()
        assert name == "S001/a.edf"
        return checksum
    finally:
        checksums.save()


def test_the_checksum_is_sha256_and_the_name_is_relative_to_the_root(root, cache_dir):
    assert use(root, cache_dir) == hashlib.sha256(b"first").hexdigest()


def test_a_changed_file_has_another_checksum(root, cache_dir):
    use(root, cache_dir)
    (root / "S001" / "a.edf").write_bytes(b"others")
    assert use(root, cache_dir) == hashlib.sha256(b"others").hexdigest()


def test_a_touched_file_with_the_same_bytes_is_accepted(root, cache_dir):
    first = use(root, cache_dir)
    os.utime(root / "S001" / "a.edf", ns=(1, 1))
    assert use(root, cache_dir) == first


def test_an_unchanged_file_is_not_hashed_again(root, cache_dir, monkeypatch):
    first = use(root, cache_dir)
    monkeypatch.setattr(
        "afor.bench.data.prepared.sha256_of", lambda _path: pytest.fail("hashed again")
    )
    assert use(root, cache_dir) == first
    with pytest.raises(pytest.fail.Exception, match="hashed again"):
        use(root, cache_dir, rehash=True)


def test_a_change_that_keeps_size_and_time_is_found_by_hashing_again(root, cache_dir):
    use(root, cache_dir)
    path = root / "S001" / "a.edf"
    stat = path.stat()
    path.write_bytes(b"First")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert use(root, cache_dir) == hashlib.sha256(b"first").hexdigest()
    assert use(root, cache_dir, rehash=True) == hashlib.sha256(b"First").hexdigest()


def test_a_file_that_is_not_the_published_one_is_refused(root, cache_dir):
    (root / "SHA256SUMS.txt").write_text(f"{'0' * 64} S001/a.edf\n")
    with pytest.raises(DataError, match="not the published ones"):
        use(root, cache_dir)
    digest = sha256_of(root / "S001" / "a.edf")
    (root / "SHA256SUMS.txt").write_text(f"\n{digest.upper()} *./S001/a.edf\n")
    assert use(root, cache_dir) == digest


def test_a_malformed_list_is_refused_with_its_line(root):
    (root / "SHA256SUMS.txt").write_text("hello world\n")
    with pytest.raises(DataError, match="line 1"):
        listed_checksums(root, PUBLISHED_LIST)


def test_a_missing_file_is_a_data_error(root, cache_dir):
    (root / "S001" / "a.edf").unlink()
    with pytest.raises(DataError, match="cannot be read"):
        use(root, cache_dir)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe"])
def test_a_broken_list_of_checksums_starts_anew(root, cache_dir, content):
    use(root, cache_dir)
    path = Checksums(cache_dir, root).path
    path.write_bytes(content)
    assert use(root, cache_dir) == hashlib.sha256(b"first").hexdigest()


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    target = tmp_path / "x.json"
    write_atomically(target, b"old")

    def fail(_fd):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert target.read_bytes() == b"old"
