"""Prepared trials: the checksums of their source files, and a cache on disk.

The cache has one pair of files per subject, shared by all processes: ``<key>.f32`` contains the
samples, ``<key>.json`` the description, with the SHA-256 of the samples. The key is a hash of the
source files' checksums and the settings. The description is written after the samples, so its
presence shows that both are complete. Missing, truncated or altered files are built again.

A source file is hashed again only if its size or modification time changed, so later uses cost one
``stat`` per file. Files that a publisher's list names must have its checksums.
"""

import hashlib
import json
import mmap
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.common.files import sha256_of, write_atomically
from afor.bench.common.text import shorten
from afor.bench.data.fetching import PUBLISHED_LIST, listed_checksums
from afor.bench.data.recording import Recording, trial_hashes

FORMAT_VERSION = 1
STALE_AGE_S = 3600


@dataclass(frozen=True)
class PreparedSubject:
    """One subject in the cache: all but the samples, which `map_samples` opens."""

    key: str
    dataset: str
    subject: str
    shape: tuple[int, int, int]
    labels: tuple[int, ...]
    trial_ids: tuple[int, ...]
    trial_hashes: tuple[str, ...]
    channel_names: tuple[str, ...]
    rate_hz: float
    class_names: tuple[str, ...]
    notes: tuple[str, ...]
    sources: Mapping[str, str]  # path under the root → SHA-256
    channel_sum: tuple[float, ...]  # over all trials and samples, for the z-score
    channel_square_sum: tuple[float, ...]
    data_sha256: str
    data_mtime_ns: int

    def class_counts(self) -> tuple[int, ...]:
        """Return the number of trials of each class."""
        return tuple(np.bincount(self.labels, minlength=len(self.class_names)).tolist())


def open_cache(cache_dir: str | Path | None) -> Path:
    """Return the cache folder, created if missing; raise ConfigError if it cannot be used."""
    folder = Path(cache_dir) if cache_dir is not None else default_cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
        reason = "it cannot be written"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    raise ConfigError(
        f"The cache folder {shorten(folder)} cannot be used ({reason}). Name a folder that can be "
        f"made and written with $AFOR_CACHE."
    )


def default_cache_dir() -> Path:
    """Return ``$AFOR_CACHE``, else ``afor`` in the user's cache folder."""
    if folder := os.environ.get("AFOR_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "afor"


class Checksums:
    """The checksums of the source files of one root, kept in the cache by size and time."""

    def __init__(self, cache_dir: Path, root: Path) -> None:
        self.root = root
        digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
        self.path = cache_dir / "checksums" / f"{digest}.json"
        self.known: dict[str, list[Any]] = self._read()  # name → [size, mtime_ns, SHA-256]

    @cached_property
    def published(self) -> dict[str, str]:
        """The publisher's checksums, read when they are first needed."""
        return listed_checksums(self.root, PUBLISHED_LIST)

    def _read(self) -> dict[str, list[Any]]:
        try:
            known = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}  # missing or damaged: every file is hashed
        return known if isinstance(known, dict) else {}

    def of(self, paths: Iterable[Path], *, rehash: bool = False) -> dict[str, str]:
        """Return the checksum of each file by its path under the root.

        ``rehash`` hashes files whose size and modification time are unchanged, too. Raises
        DataError for a file that cannot be read or is not the published one.
        """
        checksums = {}
        for path in paths:
            name = path.relative_to(self.root).as_posix()
            try:
                stat = path.stat()
                entry = self.known.get(name)
                if rehash or not entry or entry[:2] != [stat.st_size, stat.st_mtime_ns]:
                    entry = [stat.st_size, stat.st_mtime_ns, sha256_of(path)]
                    self.known[name] = entry
            except OSError as error:
                raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
            digest = checksums[name] = str(entry[2])
            expected = self.published.get(name, digest)
            if expected != digest:
                raise DataError(
                    f"{path}: the bytes are not the published ones (SHA-256 is {digest[:12]}…, "
                    f"{PUBLISHED_LIST} says {expected[:12]}…). Fetch the file again."
                )
        return checksums

    def save(self) -> None:
        """Write new checksums to the cache, if there are any."""
        # If two processes save at once, lost entries are hashed again at the next use.
        stored = self._read()
        if (merged := {**stored, **self.known}) != stored:
            write_atomically(self.path, json.dumps(merged, indent=1, sort_keys=True).encode())


def subject_key(
    dataset: str, version: int, subject: str, settings: dict[str, Any], sources: Mapping[str, str]
) -> str:
    """Return the SHA-256 of everything that determines a subject's prepared trials."""
    content = {"format": FORMAT_VERSION, "dataset": dataset, "version": version}
    return _digest({**content, "subject": subject, "settings": settings, "sources": sources})


def samples_path(folder: Path, key: str) -> Path:
    """Return the path of the samples of a key."""
    return folder / f"{key[:32]}.f32"


def write_subject(
    folder: Path, key: str, recording: Recording, sources: Mapping[str, str]
) -> PreparedSubject:
    """Store a recording: first the samples, then the description that makes them valid."""
    trials = np.ascontiguousarray(recording.trials, dtype="<f4")
    target = samples_path(folder, key)
    _delete_stale_temp_files(folder, target.name)
    write_atomically(target, trials.data)
    sums, squares = np.zeros((2, trials.shape[1]))
    for trial in trials:  # trial by trial: a float64 copy of a whole night takes 260 MB
        wide = trial.astype(np.float64)
        sums += wide.sum(axis=1)
        squares += np.square(wide).sum(axis=1)
    copied = ("dataset", "subject", "channel_names", "rate_hz", "class_names", "notes")
    prepared = PreparedSubject(
        **{name: getattr(recording, name) for name in copied},
        key=key,
        shape=trials.shape,
        labels=tuple(recording.labels.tolist()),
        trial_ids=tuple(recording.trial_ids.tolist()),
        trial_hashes=trial_hashes(trials),
        sources=sources,
        channel_sum=tuple(sums.tolist()),
        channel_square_sum=tuple(squares.tolist()),
        data_sha256=hashlib.sha256(trials.data).hexdigest(),
        data_mtime_ns=target.stat().st_mtime_ns,
    )
    _write_description(folder, prepared)
    return prepared


def read_subject(folder: Path, key: str, *, verify: bool = False) -> PreparedSubject | None:
    """Return the cached subject with a key, or None if it has to be built.

    The samples are hashed if their file was modified since it was written, or if ``verify`` is set.
    """
    target = samples_path(folder, key)
    try:
        prepared = _from_json(json.loads((folder / f"{key[:32]}.json").read_text("utf-8")))
        stat = target.stat()
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if prepared.key != key or stat.st_size != 4 * int(np.prod(prepared.shape)):
        return None
    if verify or stat.st_mtime_ns != prepared.data_mtime_ns:
        if sha256_of(target) != prepared.data_sha256:
            return None
        prepared = replace(prepared, data_mtime_ns=stat.st_mtime_ns)
        _write_description(folder, prepared)
    return prepared


def map_samples(folder: Path, prepared: PreparedSubject) -> tuple[NDArray[np.float32], mmap.mmap]:
    """Return the trials as a read-only view of the file, and the memory map behind it."""
    with samples_path(folder, prepared.key).open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, dtype="<f4").reshape(prepared.shape), mapped


def _delete_stale_temp_files(folder: Path, name: str) -> None:
    """Delete temporary files older than an hour, left by crashed writers."""
    for path in folder.glob(f"{name}.*.tmp"):
        with suppress(OSError):  # another process may have deleted it
            if time.time() - path.stat().st_mtime > STALE_AGE_S:
                path.unlink()


def _write_description(folder: Path, prepared: PreparedSubject) -> None:
    body = asdict(prepared)
    content = {"checksum": _digest(body), **body}
    write_atomically(folder / f"{prepared.key[:32]}.json", json.dumps(content).encode())


def _from_json(content: dict[str, Any]) -> PreparedSubject:
    checksum = content.pop("checksum")
    if checksum != _digest(content):
        raise ValueError("the description was altered")
    lists = {name: tuple(value) for name, value in content.items() if isinstance(value, list)}
    return PreparedSubject(**{**content, **lists})


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
