"""A data set that a function of yours reads, named ``module:function``.

    def read(root: Path, subject: str) -> Recording: ...

The subjects are the names of the files (without suffix) and folders under the root. The function is
called with the root, a subject and the option ``arguments`` as keywords. A change of its file makes
other trials, so the cache and the keys of runs depend on the file's bytes.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from pydantic import Field

from afor.bench.common.errors import AforError, ConfigError, DataError
from afor.bench.common.module_search import import_named, returns_instance
from afor.bench.data.dataset import Dataset, DatasetInfo, DataSettings
from afor.bench.data.recording import Recording

RECORDING_NAMES = ("Recording", "recording.Recording", "bench.Recording", "afor.bench.Recording")


class OwnCodeSettings(DataSettings):
    """Options of a data set that a function reads."""

    arguments: dict[str, Any] = Field(default_factory=dict)  # keywords of the function


class OwnDataset(Dataset[OwnCodeSettings]):
    """The data set that ``module:function`` reads; the module is imported, nothing called.

    Raises:
        ConfigError: The module cannot be imported, or has no function that returns a `Recording`.
    """

    settings = OwnCodeSettings
    check_unit = False

    def __init__(self, target: str) -> None:
        name = target.partition(":")[2]
        module = import_named(target, "data set")
        function = getattr(module, name, None)
        if not returns_instance(function, Recording, RECORDING_NAMES):
            raise ConfigError(
                f'data set "{target}": {name!r} is not a Python function annotated to return a '
                f"Recording, such as `def {name}(root: Path, subject: str) -> Recording`."
            )
        self.function = cast("Callable[..., object]", function)
        content = Path(module.__file__).read_bytes() if module.__file__ else b""
        self.version = int(hashlib.sha256(content).hexdigest()[:12], 16)
        self.info = DatasetInfo(
            name=target,
            title=f"{target}, your own code",
            task="whatever the labels say",
            shape="as your function returns it",
            layout="one file or folder per subject, named after the subject",
        )

    def find(self, root: Path, settings: OwnCodeSettings) -> tuple[str, ...]:
        """Return the names of files, without suffix, and folders."""
        return tuple(_entries(root))

    def files(self, root: Path, subject: str, settings: OwnCodeSettings) -> list[Path]:
        """Return the files of a subject and those in its folder."""
        entries = _entries(root).get(subject, [])
        inside = [sorted(p.rglob("*")) if p.is_dir() else [p] for p in entries]
        return [path for paths in inside for path in paths if path.is_file()]

    def load(self, root: Path, subject: str, settings: OwnCodeSettings) -> Recording:
        """Call the function and check what it returns."""
        where = f"{self.info.name} subject {subject}: the function"
        try:
            recording = self.function(root, subject, **settings.arguments)
        except AforError:
            raise
        except Exception as error:
            raise DataError(f"{where} raised {type(error).__name__}: {error}") from error
        if not isinstance(recording, Recording):
            raise DataError(f"{where} returned a {type(recording).__name__}, expected a Recording.")
        if recording.subject != subject:
            raise DataError(
                f"{where} returned a Recording of subject {recording.subject!r}. A wrong subject "
                "would stand on both sides of a split."
            )
        return recording


def _entries(root: Path) -> dict[str, list[Path]]:
    entries: dict[str, list[Path]] = {}
    for path in sorted(root.iterdir()):
        if not path.name.startswith((".", "__")):
            entries.setdefault(path.name if path.is_dir() else path.stem, []).append(path)
    return entries
