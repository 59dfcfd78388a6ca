"""Prepared trials on disk, one pair of files per subject, shared by every process that asks.

``<key>.f32`` holds the samples, ``<key>.json`` everything else and the SHA-256 of the samples. The
key is made of the source files' checksums and the settings. The description is renamed into place
after the samples, so its presence says that both are whole. What is missing, cut short or altered
counts as absent and is built again.
"""

import hashlib
import json
import mmap
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError
from afor.bench.common.files import sha256_of, write_atomically
from afor.bench.data.recording import Recording, SourceFile, trial_hashes

FORMAT_VERSION = 1
REST_AGE_S = 3600


@dataclass(frozen=True)
class PreparedSubject:
    """One subject in the cache: all that is known about the trials, and where the samples lie."""

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
    sources: tuple[SourceFile, ...]
    channel_sum: tuple[float, ...]  # over all trials and samples, for the z-score
    channel_square_sum: tuple[float, ...]
    data_sha256: str
    data_mtime_ns: int

    @property
    def seconds(self) -> float:
        """Return how much signal the trials hold."""
        return self.shape[0] * self.shape[2] / self.rate_hz

    def class_counts(self) -> tuple[int, ...]:
        """Return the number of trials of each class."""
        return tuple(np.bincount(self.labels, minlength=len(self.class_names)).tolist())


def open_cache(given: str | Path | None) -> Path:
    """Return the cache folder, made if missing; ConfigError when it cannot be one."""
    folder = Path(given) if given is not None else default_cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        shown = str(folder)[:200]
        raise ConfigError(
            f"The cache folder {shown} cannot be used ({reason}). Name a folder that can be made "
            f"and written with --cache-dir or $AFOR_CACHE."
        ) from None
    if not os.access(folder, os.W_OK):
        raise ConfigError(
            f"The cache folder {folder} cannot be written. Name another with --cache-dir or "
            f"$AFOR_CACHE."
        )
    return folder


def default_cache_dir() -> Path:
    """Return ``$AFOR_CACHE``, else ``afor`` in the user's cache folder."""
    if given := os.environ.get("AFOR_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "afor"


def subject_key(
    dataset: str, version: int, subject: str, settings: dict[str, Any], sources: list[SourceFile]
) -> str:
    """Return the SHA-256 of all that decides a subject's prepared trials."""
    content = {
        "format": FORMAT_VERSION,
        "dataset": dataset,
        "version": version,
        "subject": subject,
        "settings": settings,
        "sources": [asdict(source) for source in sources],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def samples_path(folder: Path, key: str) -> Path:
    """Return where the samples of a key lie."""
    return folder / f"{key[:32]}.f32"


def write_subject(
    folder: Path, key: str, recording: Recording, sources: list[SourceFile]
) -> PreparedSubject:
    """Store a recording: samples first, then the description that makes them count."""
    trials = np.ascontiguousarray(recording.trials, dtype="<f4")
    target = samples_path(folder, key)
    _remove_rests(folder, target.name)
    write_atomically(target, trials.data)
    sums, squares = _moments(trials)
    prepared = PreparedSubject(
        key=key,
        dataset=recording.dataset,
        subject=recording.subject,
        shape=(trials.shape[0], trials.shape[1], trials.shape[2]),
        labels=tuple(recording.labels.tolist()),
        trial_ids=tuple(recording.trial_ids.tolist()),
        trial_hashes=trial_hashes(trials),
        channel_names=recording.channel_names,
        rate_hz=recording.rate_hz,
        class_names=recording.class_names,
        notes=recording.notes,
        sources=tuple(sources),
        channel_sum=tuple(sums.tolist()),
        channel_square_sum=tuple(squares.tolist()),
        data_sha256=hashlib.sha256(trials.data).hexdigest(),
        data_mtime_ns=target.stat().st_mtime_ns,
    )
    _write_description(folder, prepared)
    return prepared


def read_subject(folder: Path, key: str, *, verify: bool = False) -> PreparedSubject | None:
    """Return what the cache holds for a key, or None when it has to be built.

    The samples are hashed when their file was touched since it was written, or when ``verify``.
    """
    target = samples_path(folder, key)
    try:
        content = json.loads((folder / f"{key[:32]}.json").read_text("utf-8"))
        prepared = _from_json(content)
        stat = target.stat()
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if prepared.key != key or stat.st_size != 4 * int(np.prod(prepared.shape)):
        return None
    if verify or stat.st_mtime_ns != prepared.data_mtime_ns:
        if sha256_of(target) != prepared.data_sha256:
            return None
        prepared = PreparedSubject(**{**prepared.__dict__, "data_mtime_ns": stat.st_mtime_ns})
        _write_description(folder, prepared)
    return prepared


def map_samples(folder: Path, prepared: PreparedSubject) -> tuple[NDArray[np.float32], mmap.mmap]:
    """Return the trials as a read-only view of the file, and the map that backs it."""
    with samples_path(folder, prepared.key).open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, dtype="<f4").reshape(prepared.shape), mapped


def _remove_rests(folder: Path, name: str) -> None:
    """Remove what a killed process left behind; a living one is done within the hour."""
    for rest in folder.glob(f"{name}.*.tmp"):
        with suppress(OSError):  # another process may be quicker
            if time.time() - rest.stat().st_mtime > REST_AGE_S:
                rest.unlink()


def _moments(trials: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    sums, squares = np.zeros(trials.shape[1]), np.zeros(trials.shape[1])
    for trial in trials:  # a night is 130 MB: no float64 copy of all of it at once
        wide = trial.astype(np.float64)
        sums += wide.sum(axis=1)
        squares += np.square(wide).sum(axis=1)
    return sums, squares


def _write_description(folder: Path, prepared: PreparedSubject) -> None:
    body = asdict(prepared)
    content = {"checksum": _checksum(body), **body}
    write_atomically(folder / f"{prepared.key[:32]}.json", json.dumps(content).encode())


def _from_json(content: dict[str, Any]) -> PreparedSubject:
    checksum = content.pop("checksum")
    if checksum != _checksum(content):
        raise ValueError("the description was altered")
    lists = {name: tuple(value) for name, value in content.items() if isinstance(value, list)}
    sources = tuple(SourceFile(**source) for source in content["sources"])
    return PreparedSubject(**{**content, **lists, "sources": sources})


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
