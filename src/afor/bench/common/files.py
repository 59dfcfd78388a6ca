"""Read and write files with checks, write them atomically, and compute SHA-256."""

import hashlib
import os
import uuid
from pathlib import Path

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.common.text import shorten


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def exists(path: Path) -> bool:
    """Return True if there is such a file or folder; a name that is not possible has none."""
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or with a NUL character
        return False


def read_limited(path: Path, max_bytes: int) -> bytes:
    """Return the content of a data file; raise DataError if it is too large or cannot be read."""
    try:
        size = path.stat().st_size
        if size <= max_bytes:
            return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    raise DataError(f"{path}: {size} bytes are more than the limit of {max_bytes}.")


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that a reader sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file atomically; create the folders above it.

    Args:
        path: The file to write; an older one is replaced.
        content: Text, written as UTF-8, or bytes.

    Raises:
        ConfigError: The file cannot be written there.
    """
    check_output(path)
    try:
        write_atomically(path, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from None


def check_output(path: Path) -> None:
    """Raise ConfigError if the file certainly cannot be written; call it before a computation."""
    try:
        if path.is_dir():
            raise _refused(path, "it is a folder")
        existing = next(folder for folder in (path.parent, *path.parent.parents) if folder.exists())
        if not existing.is_dir():
            raise _refused(path, f"{existing} is a file, not a folder")
        if not os.access(existing, os.W_OK):
            raise _refused(path, f"no permission to write into {existing}")
    except (OSError, ValueError) as error:  # a name that is too long, or holds a NUL character
        raise _refused(path, getattr(error, "strerror", None) or str(error)) from None


def _refused(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"{shorten(path)} cannot be written: {reason}. Name another file.")
