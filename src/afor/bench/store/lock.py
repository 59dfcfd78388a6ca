"""Lock a store for one driver; the operating system releases the lock if the driver dies."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from afor.bench.common.errors import StoreError

WAIT_S = 0.25  # `driver_of` holds the lock for an instant


def lock_path(store: Path) -> Path:
    """Return the lock file of a store."""
    return store.with_name(f"{store.name}.lock")


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Take the exclusive write lock; raise StoreError at once if another process holds it.

    The lock belongs to the open file, not to its existence: a killed process leaves no lock.
    """
    path = lock_path(store)
    lock = FileLock(path, timeout=WAIT_S)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        holder = _holder(store)
        raise StoreError(
            f"{store} is being written by another afor{f' (process {holder})' if holder else ''}. "
            f"Wait for it and run the same command again, or watch it with `afor status`. For "
            f"several machines use --shard i/n with a store each, and `afor store merge`."
        ) from None
    except OSError as error:
        raise StoreError(
            f"{store} cannot be written: {error.strerror} at {path}. Choose a writable place with "
            f"--store."
        ) from None
    try:
        with suppress(OSError):  # on a full disk the lock holds, but its holder has no name
            _holder_path(store).write_text(f"{os.getpid()} on {platform.node()}\n", "utf-8")
        yield
    finally:
        lock.release()


def driver_of(store: Path) -> str | None:
    """Return the process that holds the write lock ("4711 on host"), or None."""
    path = lock_path(store)
    if not path.exists():
        return None
    try:
        with FileLock(path, timeout=0):
            return None
    except Timeout:
        return _holder(store) or "unknown"
    except OSError:
        return None  # no permission


def _holder_path(store: Path) -> Path:
    return lock_path(store).with_suffix(".holder")


def _holder(store: Path) -> str:
    """Return the process that took the lock last, as it wrote itself."""
    try:
        text = _holder_path(store).read_bytes()[:100].decode(errors="replace")
    except OSError:
        return ""
    return "".join(c for c in text.strip() if c.isprintable())
