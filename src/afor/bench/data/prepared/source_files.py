"""Verify source files by SHA-256: against the publisher's list and against their first use.

A file whose bytes changed since its first use is refused. It is hashed again only if its size or
modification time changed, so later uses cost one ``stat`` per file.
"""

import hashlib
import json
import time
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from afor.bench.common.errors import DataError
from afor.bench.common.files import sha256_of, write_atomically
from afor.bench.data.recording import SourceFile

PUBLISHED_LIST = "SHA256SUMS.txt"


def published_checksums(root: Path) -> dict[str, str]:
    """Return the publisher's checksums in ``SHA256SUMS.txt``, by path under the root."""
    path = root / PUBLISHED_LIST
    if not path.is_file():
        return {}
    checksums = {}
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), start=1):
        parts = line.split(maxsplit=1)
        if not parts:
            continue
        if len(parts) != 2 or len(parts[0]) != 64:
            raise DataError(
                f"{path}, line {number}: expected '<64 hex digits> <path>', found {line[:80]!r}. "
                "Fetch the list again."
            )
        checksums[parts[1].strip().lstrip("*").removeprefix("./")] = parts[0].lower()
    return checksums


class Ledger:
    """The checksums of all source files of one root at their first use, kept in the cache."""

    def __init__(self, cache_dir: Path, root: Path) -> None:
        self.root = root
        digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
        self.path = cache_dir / "checksums" / f"{digest}.json"
        self.seen: dict[str, dict[str, Any]] = self._read()
        self._changed = False

    @cached_property
    def published(self) -> dict[str, str]:
        """The publisher's checksums, read when they are first needed."""
        return published_checksums(self.root)

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            seen = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}  # missing or damaged: every file counts as new
        return seen if isinstance(seen, dict) else {}

    def check(
        self, paths: Iterable[Path], *, accept_changed: bool = False, rehash: bool = False
    ) -> list[SourceFile]:
        """Return each file under the root with its checksum.

        ``rehash`` hashes files whose size and modification time are unchanged, too.

        Raises:
            DataError: A file cannot be read, has changed or is not the published one.
        """
        return [self._check_one(path, accept_changed, rehash) for path in paths]

    def _check_one(self, path: Path, accept_changed: bool, rehash: bool) -> SourceFile:
        name = path.relative_to(self.root).as_posix()
        try:
            stat = path.stat()
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
        entry = self.seen.get(name)
        stamp = (stat.st_size, stat.st_mtime_ns)
        if entry and not rehash and (entry.get("size"), entry.get("mtime_ns")) == stamp:
            digest = str(entry["sha256"])
        else:
            digest = sha256_of(path)
            if entry and entry["sha256"] != digest and not accept_changed:
                raise DataError(
                    f"{path}: the file has changed since its first use on {entry.get('first_use')} "
                    f"(SHA-256 was {entry['sha256'][:12]}…, is {digest[:12]}…). Restore it, or "
                    "accept the change: `afor data prepare … --accept-changed`."
                )
            self.seen[name] = {
                "sha256": digest,
                "size": stat.st_size,
                "mtime_ns": stat.st_mtime_ns,
                "first_use": time.strftime("%Y-%m-%d"),
            }
            self._changed = True
        expected = self.published.get(name)
        if expected and expected != digest:
            raise DataError(
                f"{path}: the bytes are not the published ones (SHA-256 is {digest[:12]}…, "
                f"{PUBLISHED_LIST} says {expected[:12]}…). Fetch the file again."
            )
        return SourceFile(name, digest)

    def save(self) -> None:
        """Write new checksums to the cache, if there are any."""
        if self._changed:
            # If two processes save at once, lost entries are hashed again at the next use.
            merged = {**self._read(), **self.seen}
            write_atomically(self.path, json.dumps(merged, indent=1, sort_keys=True).encode())
            self._changed = False
