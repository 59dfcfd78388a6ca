"""Pass finished runs from workers to the driver: one file each, complete or absent.

A worker writes the file under a temporary name, syncs it and renames it. The first line holds the
length and the SHA-256 of what follows. The driver reads such files when a run ends and, before
anything else, those that a killed driver left behind; incomplete files go to `quarantine`.
"""

import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from afor.bench.common.files import write_atomically

MAGIC = b"afor-run-1"
SUFFIX = ".run"
QUARANTINE = "quarantine"


def spool_folder(store: Path) -> Path:
    """Return the folder where the workers of a store write their results."""
    return store.with_name(f"{store.name}.spool")


def write_spool(folder: Path, key: str, content: bytes) -> Path:
    """Write a finished run atomically; raise OSError if that fails."""
    target = folder / f"{key}{SUFFIX}"
    write_atomically(target, wrap(content))
    sync_folder(folder)
    return target


def wrap(content: bytes) -> bytes:
    """Prepend length and checksum to the content."""
    digest = hashlib.sha256(content).hexdigest()
    return b"%s %d %s\n" % (MAGIC, len(content), digest.encode()) + content


def unwrap(data: bytes) -> bytes:
    """Return the content; raise ValueError if a byte is missing or altered.

    >>> unwrap(wrap(b"result"))
    b'result'
    """
    head, newline, content = data.partition(b"\n")
    if not newline or head != wrap(content).partition(b"\n")[0]:
        raise ValueError("the file is cut short or altered")
    return content


def read_spool(path: Path) -> bytes | None:
    """Return the content of a spool file; move an incomplete one to quarantine, return None."""
    try:
        return unwrap(path.read_bytes())
    except ValueError:
        quarantine(path)
        return None
    except FileNotFoundError:
        return None


def quarantine(path: Path) -> None:
    """Move a file that cannot be used to the quarantine folder."""
    folder = path.parent / QUARANTINE
    folder.mkdir(exist_ok=True)
    path.replace(folder / f"{path.name}.{uuid.uuid4().hex[:8]}")


def leftovers(folder: Path) -> Iterator[Path]:
    """Yield the finished runs in a spool folder and delete temporary files.

    Only the driver that holds the store's lock may call this.
    """
    if not folder.is_dir():
        return
    for path in folder.glob("*.tmp"):
        path.unlink(missing_ok=True)
    yield from sorted(folder.glob(f"*{SUFFIX}"))


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a rename survives a power failure; no effect on Windows."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
