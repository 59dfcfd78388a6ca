"""Fetch the files of a public data set, and go on where a transfer stopped.

A file is either absent or whole: it grows as ``<name>.part`` and gets its name when its checksum is
right. The checksums of files whose publisher gives none are kept when they are fetched, in
``FETCHED.txt``. The same command goes on where it stopped.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from afor.bench.common.errors import AbsentError, ConfigError, DataError
from afor.bench.common.files import sha256_of, write_atomically
from afor.bench.common.suggest import did_you_mean

PHYSIONET = "https://physionet.org/files"
MIRROR_VARIABLE = "AFOR_MIRROR"  # address in place of PHYSIONET
PUBLISHED_LIST = "SHA256SUMS.txt"  # of a publisher, beside the files
KEPT_LIST = "FETCHED.txt"  # checksums of fetched files that no publisher lists
TIMEOUT_S = (10, 60)  # to connect, and between two pieces
ATTEMPTS = 3  # without progress
PROGRESS_BYTES = 1 << 20  # a transfer that brought as many is worth another attempt
PIECE_BYTES = 1 << 14  # of which a transfer that breaks off loses the last
STAYS = "What was fetched so far stays; the same command goes on."


@dataclass(frozen=True)
class RemoteFile:
    """A file to fetch: where it goes, where it is, and what it must be."""

    name: str  # its path under the root of the data set
    url: str
    checksum: str | None = None  # such as "sha256:0123…"; None: the server publishes none
    megabytes: float = 0.0  # approximate

    @classmethod
    def of_physionet(
        cls, folder: str, name: str, checksum: str | None = None, megabytes: float = 0.0
    ) -> "RemoteFile":
        """Return a file of PhysioNet, or of the mirror in ``$AFOR_MIRROR``."""
        server = (os.environ.get(MIRROR_VARIABLE) or PHYSIONET).rstrip("/")
        return cls(name, f"{server}/{folder}/{name}", checksum, megabytes)

    def is_whole(self, root: Path) -> bool:
        """Return True if the file is there with its checksum, published or kept."""
        checksum = self.checksum
        if checksum is None and (kept := listed_checksums(root, KEPT_LIST).get(self.name)):
            checksum = f"sha256:{kept}"
        path = root / self.name
        return checksum is not None and path.is_file() and _has_checksum(path, checksum)


def _has_checksum(path: Path, checksum: str) -> bool:
    algorithm, _, digest = checksum.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest() == digest


def download(root: Path, file: RemoteFile) -> None:
    """Fetch one file; a broken transfer goes on where it stopped, wrong bytes are fetched again.

    Raises:
        AbsentError: The server cannot be reached, or does not have the file.
        DataError: The bytes are wrong each time, or cannot be written.
    """
    import requests

    target = root / file.name
    part = target.with_name(f"{target.name}.part")
    failures = largest = 0
    while True:
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            if file.checksum is None:
                part.unlink(missing_ok=True)  # nothing tells whether the pieces fit
            _transfer(file.url, part)
            if file.checksum is None or _has_checksum(part, file.checksum):
                part.replace(target)
                return
            part.unlink()
            fault: Exception = DataError(
                f"{file.url}: the bytes are not the published ones (checksum). Nothing was kept of "
                f"it; the same command goes on with it."
            )
        except requests.exceptions.HTTPError as error:
            code = error.response.status_code if error.response is not None else 0
            fault = AbsentError(f"{file.url}: the server answers {code}. {STAYS}")
            if code < 500:
                raise fault from None
            time.sleep(1 + failures)
        except _BrokenOffError:
            fault = AbsentError(f"{file.url}: the transfer breaks off. {STAYS}")
        except requests.exceptions.RequestException as error:
            reason = "no answer in time" if isinstance(error, requests.Timeout) else "no connection"
            raise AbsentError(
                f"{file.url} cannot be reached ({reason}). Is there a network? {STAYS}"
            ) from None
        except OSError as error:
            raise DataError(f"{target}: cannot be written ({error.strerror or error}).") from None
        size = part.stat().st_size if part.exists() else 0
        failures = 0 if size >= largest + PROGRESS_BYTES else failures + 1
        largest = max(largest, size)
        if failures == ATTEMPTS:
            raise fault


class _BrokenOffError(Exception):
    """A transfer has begun and ends before its last byte."""


def _transfer(url: str, part: Path) -> None:
    """Ask for the bytes that a part lacks; a server that cannot do that sends all of them."""
    import requests

    start = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with requests.get(url, headers=headers, timeout=TIMEOUT_S, stream=True) as response:
        if response.status_code == requests.codes.requested_range_not_satisfiable:
            part.unlink()  # it is as long as the file, and not the file
            raise _BrokenOffError
        response.raise_for_status()
        goes_on = response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        with part.open("ab" if start and goes_on else "wb") as output:
            try:
                for piece in response.iter_content(PIECE_BYTES):
                    output.write(piece)
            except requests.exceptions.RequestException:
                raise _BrokenOffError from None


def listed_checksums(root: Path, list_name: str) -> dict[str, str]:
    """Return the SHA-256 in a list of the form that ``sha256sum`` writes, by path."""
    path = root / list_name
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
                "Delete the list and fetch it again."
            )
        checksums[parts[1].strip().lstrip("*").removeprefix("./")] = parts[0].lower()
    return checksums


@dataclass(frozen=True)
class Fetch:
    """How the files of a data set are fetched.

    ``files`` lists those of some subjects for the settings. ``lists`` are fetched before, because
    ``files`` reads them: the publisher's checksums.
    """

    files: Callable[[Path, Sequence[str], Any], Sequence[RemoteFile]]
    lists: Callable[[], Sequence[RemoteFile]] = tuple


def fetch_files(
    fetch: Fetch,
    root: Path,
    subjects: Sequence[str],
    settings: Any,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[RemoteFile]:
    """Fetch the files of some subjects that are missing or torn; return those that were fetched.

    Args:
        fetch: How the data set is fetched.
        root: Folder of the data set, made if missing.
        subjects: Names of the subjects.
        settings: Options of the data set.
        progress: Called with (number of files done, total, name).

    Raises:
        AbsentError: A file cannot be fetched.
        DataError: The bytes are wrong or cannot be written, or another process is fetching here.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".fetching.lock", timeout=0):
            for file in fetch.lists():
                _fetch_one(root, file)
            files = fetch.files(root, subjects, settings)
            fetched = []
            for done, file in enumerate(files):
                if progress:
                    progress(done, len(files), file.name)
                if _fetch_one(root, file):
                    fetched.append(file)
    except Timeout:
        raise DataError(
            f"{root}: another process is fetching into it. Wait for it and run the command again."
        ) from None
    except OSError as error:
        raise DataError(f"{root}: cannot be written ({error.strerror}).") from None
    if progress:
        progress(len(files), len(files), "")
    return fetched


def _fetch_one(root: Path, file: RemoteFile) -> bool:
    """Fetch a file unless it is whole; return whether it was fetched."""
    if file.is_whole(root):
        return False
    download(root, file)
    if file.checksum is None:
        kept = {**listed_checksums(root, KEPT_LIST), file.name: sha256_of(root / file.name)}
        text = "".join(f"{digest}  {name}\n" for name, digest in sorted(kept.items()))
        write_atomically(root / KEPT_LIST, text.encode())
    return True


def named_subjects(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the subjects that words name: a name, a number or a range of numbers.

    >>> named_subjects(["S001", "2-3"], ["S001", "S002", "S003", "S004"])
    ['S001', 'S002', 'S003']

    Raises:
        ConfigError: A word names no subject.
    """
    by_number = {int(digits): name for name in names if (digits := re.sub(r"\D", "", name))}
    chosen: list[str] = []
    for word in words:
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", word)
        if word in names:
            chosen.append(word)
            continue
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        found = [name for number, name in by_number.items() if first <= number <= last]
        if not found:
            raise ConfigError(
                f"There is no subject {word!r}.{did_you_mean(word, names)} Accepted: {names[0]} to "
                f"{names[-1]}, a number or a range such as 1-10."
            )
        chosen += found
    return list(dict.fromkeys(chosen))
