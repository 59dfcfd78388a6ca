"""Fetch the files of a public data set: pooch downloads, checks the hash and renames.

A file is either absent or whole. Files that are there with the right checksum are not fetched
again, so the same command goes on where it stopped.
"""

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afor.bench.common.errors import AbsentError, ConfigError, DataError
from afor.bench.common.suggest import did_you_mean

PHYSIONET = "https://physionet.org/files"
MIRROR_VARIABLE = "AFOR_MIRROR"  # address in place of PHYSIONET
PUBLISHED_LIST = "SHA256SUMS.txt"  # of a publisher, beside the files
TIMEOUT_S = (10, 60)  # to connect, and between two pieces
ATTEMPTS = 3
BLAME = "What was fetched so far stays; the same command goes on."


@dataclass(frozen=True)
class RemoteFile:
    """A file to fetch: where it goes, where it is, and what it must be."""

    name: str  # its path under the root of the data set
    url: str
    checksum: str | None = None  # such as "sha256:0123…"; None: the server publishes none
    megabytes: float = 0.0  # approximate

    def is_whole(self, root: Path) -> bool:
        """Return True if the file is there with its checksum; without one, if it is there."""
        path = root / self.name
        if not path.is_file():
            return False
        if self.checksum is None:
            return True
        import pooch

        algorithm, _, digest = self.checksum.partition(":")
        return bool(pooch.file_hash(str(path), alg=algorithm) == digest)


@dataclass(frozen=True)
class Fetch:
    """How the files of a data set are fetched.

    ``files`` lists those of some subjects for the settings. ``prepare`` fetches what the list
    itself needs, such as the publisher's checksums. ``get`` fetches one file into the root.
    """

    files: Callable[[Path, Sequence[str], Any], Sequence[RemoteFile]]
    get: Callable[[Path, RemoteFile], None]
    prepare: Callable[[Path], None] = lambda _root: None


def physionet_url(path: str) -> str:
    """Return the address of a file of PhysioNet, or of the mirror in ``$AFOR_MIRROR``."""
    return f"{(os.environ.get(MIRROR_VARIABLE) or PHYSIONET).rstrip('/')}/{path}"


def download(root: Path, file: RemoteFile) -> None:
    """Fetch one file with pooch; a broken transfer or a wrong hash is tried again.

    Raises:
        AbsentError: The server cannot be reached, or does not have the file.
        DataError: The bytes are wrong each time, or cannot be written.
    """
    import pooch
    import requests

    pooch.get_logger().setLevel("ERROR")
    target = root / file.name
    target.unlink(missing_ok=True)  # a torn or changed file, which `is_whole` has refused
    for attempt in range(1, ATTEMPTS + 1):
        try:
            pooch.retrieve(
                file.url,
                known_hash=file.checksum,
                fname=target.name,
                path=target.parent,
                downloader=pooch.HTTPDownloader(timeout=TIMEOUT_S),
            )
        except requests.exceptions.HTTPError as error:
            code = error.response.status_code if error.response is not None else 0
            if code >= 500 and attempt < ATTEMPTS:
                time.sleep(attempt)
                continue
            raise AbsentError(f"{file.url}: the server answers {code}. {BLAME}") from None
        except requests.exceptions.ChunkedEncodingError:
            if attempt == ATTEMPTS:
                raise AbsentError(f"{file.url}: the transfer breaks off. {BLAME}") from None
        except requests.exceptions.RequestException as error:
            reason = "no answer in time" if isinstance(error, requests.Timeout) else "no connection"
            raise AbsentError(
                f"{file.url} cannot be reached ({reason}). Is there a network? {BLAME}"
            ) from None
        except ValueError:  # pooch: the hash is another one
            if attempt == ATTEMPTS:
                raise DataError(
                    f"{file.url}: the bytes are not the published ones (checksum). Nothing was "
                    f"kept of it. {BLAME}"
                ) from None
        except OSError as error:
            raise DataError(f"{target}: cannot be written ({error.strerror or error}).") from None
        else:
            return


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
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{root}: cannot be made ({error.strerror}).") from None
    fetch.prepare(root)
    files = fetch.files(root, subjects, settings)
    fetched = []
    for done, file in enumerate(files):
        if progress:
            progress(done, len(files), file.name)
        if not file.is_whole(root):
            fetch.get(root, file)
            fetched.append(file)
    if progress:
        progress(len(files), len(files), "")
    return fetched


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
