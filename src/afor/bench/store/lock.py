"""Lock a store for one driver; the operating system releases the lock if the driver dies."""

import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from afor.bench.common.errors import StoreError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

ATTEMPTS, ATTEMPT_EVERY_S = 5, 0.05


def lock_path(store: Path) -> Path:
    """Return the lock file of a store."""
    return store.with_name(f"{store.name}.lock")


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Take the exclusive write lock; raise StoreError immediately if another process holds it.

    The lock belongs to the open file, not to its existence: a killed process leaves no lock.
    """
    path = lock_path(store)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StoreError(
            f"{store} cannot be written: {error.strerror} at {path}. Choose a writable place with "
            f"--store."
        ) from None
    try:
        if not _lock_soon(descriptor):
            holder = _holder(descriptor)
            who = f" (process {holder})" if holder else ""
            raise StoreError(
                f"{store} is being written by another afor{who}. Wait for it and run the same "
                f"command again, or watch it with `afor status`. For several machines use "
                f"--shard i/n with a store each, and `afor store merge`."
            )
        with suppress(OSError):  # on a full disk the lock holds, but its holder has no name
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()} on {platform.node()}\n".encode())
        yield
    finally:
        os.close(descriptor)


def driver_of(store: Path) -> str | None:
    """Return the process that holds the write lock ("4711 on host"), or None."""
    try:
        descriptor = os.open(lock_path(store), os.O_RDWR)
    except OSError:
        return None  # never locked, or no permission
    try:
        return None if _try_lock(descriptor) else _holder(descriptor) or "unknown"
    finally:
        os.close(descriptor)


def _lock_soon(descriptor: int) -> bool:
    """Take the lock, with retries because `driver_of` holds it for an instant."""
    for _ in range(ATTEMPTS):
        if _try_lock(descriptor):
            return True
        time.sleep(ATTEMPT_EVERY_S)
    return False


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, 100, 0).decode(errors="replace") if hasattr(os, "pread") else ""
    return "".join(c for c in text.strip() if c.isprintable())


def _try_lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
