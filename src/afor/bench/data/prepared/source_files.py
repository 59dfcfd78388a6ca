"""The SHA-256 of source files, which are part of the key of prepared trials.

A file is hashed again only if its size or modification time changed, so later uses cost one
``stat`` per file. Files that a publisher's list names must have its checksums.
"""

import hashlib
import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from afor.bench.common.errors import DataError
from afor.bench.common.files import sha256_of, write_atomically
from afor.bench.data.fetching import PUBLISHED_LIST, published_checksums
from afor.bench.data.recording import SourceFile


class Checksums:
    """The checksums of the source files of one root, kept in the cache by size and time."""

    def __init__(self, cache_dir: Path, root: Path) -> None:
        self.root = root
        digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
        self.path = cache_dir / "checksums" / f"{digest}.json"
        self.known: dict[str, list[Any]] = self._read()  # name → [size, mtime_ns, SHA-256]
        self._changed = False

    @cached_property
    def published(self) -> dict[str, str]:
        """The publisher's checksums, read when they are first needed."""
        return published_checksums(self.root)

    def _read(self) -> dict[str, list[Any]]:
        try:
            known = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}  # missing or damaged: every file is hashed
        return known if isinstance(known, dict) else {}

    def of(self, paths: Iterable[Path], *, rehash: bool = False) -> list[SourceFile]:
        """Return each file under the root with its checksum.

        Args:
            paths: The files.
            rehash: Hash files whose size and modification time are unchanged, too.

        Raises:
            DataError: A file cannot be read or is not the published one.
        """
        return [self._of_one(path, rehash) for path in paths]

    def _of_one(self, path: Path, rehash: bool) -> SourceFile:
        name = path.relative_to(self.root).as_posix()
        try:
            stat = path.stat()
            entry = self.known.get(name)
            if rehash or not entry or entry[:2] != [stat.st_size, stat.st_mtime_ns]:
                entry = [stat.st_size, stat.st_mtime_ns, sha256_of(path)]
                self.known[name] = entry
                self._changed = True
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
        digest = str(entry[2])
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
            merged = {**self._read(), **self.known}
            write_atomically(self.path, json.dumps(merged, indent=1, sort_keys=True).encode())
            self._changed = False
