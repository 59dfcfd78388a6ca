"""What a data set is: its description, its options, and how its files are found and read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.common.parameter_checks import check_names, show_value
from afor.bench.data.fetching import Fetch
from afor.bench.data.recording import Recording, TrialShape

# Where trials come from: recordings of people, a stand-in for them, or synthetic subjects.
DataKind = Literal["recorded", "stand-in", "synthetic"]
# A folder with this file contains a stand-in written by `afor data stand-in`.
STAND_IN_MARK = "STAND-IN.txt"
STAND_IN_NOTE = "a synthetic stand-in, not the data set"
# A note on recordings of a release that has fewer trials than are published.
PARTIAL_NOTE = "a release without the last epochs of the night"

# A pass band in hertz, or the word "none": TOML has no null.
BandHz = Annotated[tuple[float, float], Field(strict=False)] | Literal["none"]
# Words, such as the names of channels or classes; TOML has lists and no tuples.
Words = Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=10_000)]
Samples = Annotated[int, Field(ge=0, lt=2**31)]
Part = tuple[ArrayLike, ArrayLike, ArrayLike]  # trials, their classes, their numbers in the source


class DataSettings(BaseModel):
    """Options of every data set; each loader adds its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    window_samples: Samples = 0  # 0: the whole trial
    stride_samples: Samples = 0  # 0: as long as the window

    # Options that choose among the trials, or cut them, without changing any.
    NOT_OF_TRIALS: ClassVar[frozenset[str]] = frozenset({"window_samples", "stride_samples"})

    def trial_settings(self) -> dict[str, Any]:
        """Return the options that determine the cached trials and are not at their defaults."""
        return self.model_dump(mode="json", exclude=set(self.NOT_OF_TRIALS), exclude_defaults=True)


SettingsT = TypeVar("SettingsT", bound=DataSettings)


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """The description of a data set for users; the defaults are those of a user's own data."""

    name: str
    title: str
    task: str
    licence: str = "yours"
    where: str = "your own disk"
    citation: str = "yours"
    subjects: tuple[str, ...] = ()  # of a complete copy
    shape: str
    paper_windows: str = "not in the paper; the whole trial unless window_samples is set"
    layout: str
    steps: str = ""  # how to get it by hand, if no program may or can fetch it


class Dataset(Generic[SettingsT]):
    """A data set: its description, its options, and how its files are found and read.

    One whose ``trial_shape`` is known reads its files in ``read``, part by part; others have a
    ``load`` of their own. What a data set does not say has the answers below.
    """

    info: DatasetInfo
    settings: type[SettingsT]
    version: int = 1  # increase it if the reader returns other numbers for the same bytes
    needs_root = True  # has files
    is_synthetic = False
    check_unit = True
    fetch: Fetch | None = None  # None: see info.steps

    def files(self, root: Path, subject: str, settings: SettingsT) -> Sequence[Path]:
        """Return the source files of one subject, which need not exist."""
        return ()

    def find(self, root: Path, settings: SettingsT) -> tuple[str, ...]:
        """Return the subjects present under a root: those of which a file exists."""
        return tuple(
            subject
            for subject in self.info.subjects
            if any(path.is_file() for path in self.files(root, subject, settings))
        )

    def trial_shape(self, settings: SettingsT) -> TrialShape | None:
        """Return the trials of one subject without their samples; None: it takes the files."""
        return None

    def excluded(self, settings: SettingsT) -> Mapping[str, str]:
        """Return the subjects that are left out by default, and why."""
        return {}

    def published(self, settings: SettingsT) -> Mapping[str, int]:
        """Return the published number of trials of each class of a complete copy, if known."""
        return {}

    def read(
        self, paths: Sequence[Path], subject: str, settings: SettingsT, notes: list[str]
    ) -> Iterable[Part]:
        """Yield trials, classes and numbers in the source; add what is unusual to the notes."""
        raise NotImplementedError

    def load(self, root: Path, subject: str, settings: SettingsT) -> Recording:
        """Read one subject; raise DataError if a file is missing or damaged."""
        shape, notes = self.trial_shape(settings), list[str]()
        assert shape is not None
        paths = self.source_files(root, subject, settings)
        parts = [
            (
                np.asarray(trials, np.float32),
                np.asarray(labels, np.int64),
                np.asarray(ids, np.int64),
            )
            for trials, labels, ids in self.read(paths, subject, settings, notes)
        ]
        trials, labels, ids = map(np.concatenate, zip(*parts, strict=True))
        return Recording(
            dataset=self.info.name,
            subject=subject,
            trials=trials,
            labels=labels,
            trial_ids=ids,
            channel_names=shape.channel_names,
            rate_hz=float(shape.rate_hz),
            class_names=shape.class_names,
            notes=tuple(dict.fromkeys(notes)),
        )

    def source_files(self, root: Path, subject: str, settings: SettingsT) -> tuple[Path, ...]:
        """Return the source files of a subject; raise DataError if one is missing."""
        files = tuple(self.files(root, subject, settings))
        if missing := [str(path.relative_to(root)) for path in files if not path.is_file()]:
            raise DataError(
                f"{self.info.name} subject {subject}: {', '.join(missing)} missing in {root}. "
                f"{self.advice(settings)}"
            )
        return files

    def parse(self, options: Mapping[str, Any]) -> SettingsT:
        """Return the checked options; raise ConfigError for an unknown key or an invalid value."""
        name = self.info.name
        check_names(f"data set {name}", options, list(self.settings.model_fields))
        try:
            return self.settings(**options)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            if not first["loc"]:  # about several options together
                reason = str(first.get("ctx", {}).get("error", first["msg"]))
                raise ConfigError(f"{name}: {reason}") from None
            key = str(first["loc"][0])
            value = show_value(options.get(key))
            raise ConfigError(f"{name}: option {key} = {value}: {first['msg']}.") from None

    def advice(self, settings: DataSettings) -> str:
        """Say where to get the files for some settings, and how they are laid out."""
        words = settings.model_dump(exclude_defaults=True).items()
        options = "".join(f" --option {key}={word}" for key, word in words if type(word) is str)
        command = f"with `afor data get {self.info.name}{options}` or " if self.fetch else ""
        return f"Get the data {command}from {self.info.where}; expected layout: {self.info.layout}."

    def kind(self, root: Path) -> DataKind:
        """Return whether the files under a root are recordings, a stand-in or synthetic."""
        if self.is_synthetic:
            return "synthetic"
        return "stand-in" if self.needs_root and is_stand_in(root) else "recorded"


def is_stand_in(root: Path) -> bool:
    """Return True if a folder holds a stand-in instead of recordings."""
    return (root / STAND_IN_MARK).exists()
