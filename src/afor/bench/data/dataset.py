"""What a data set is: its description, and the functions that find and read its files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from afor.bench.data.fetching import Fetch
from afor.bench.data.recording import Recording
from afor.bench.data.settings import DataSettings, parse_settings

# Where trials come from: recordings of people, a stand-in for them, or synthetic subjects.
DataKind = Literal["recorded", "stand-in", "synthetic"]
# A folder with this file contains a stand-in written by `afor data stand-in`.
STAND_IN_MARK = "SYNTHETIC.txt"
STAND_IN_NOTE = "a synthetic stand-in, not the data set"
# A note on recordings of a release that has fewer trials than are published.
PARTIAL_NOTE = "a release without the last epochs of the night"


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


@dataclass(frozen=True)
class TrialShape:
    """The trials of one subject of a complete copy, for a plan without the files."""

    channel_names: tuple[str, ...]
    rate_hz: float
    class_names: tuple[str, ...]
    trials: int  # of one subject, on average
    samples: int  # of one trial


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The description and the reader of a data set.

    ``find`` lists the subjects present under a root, ``files`` returns the source files of one
    subject, ``load`` reads them. ``published`` returns the class counts of a complete copy,
    ``trial_shape`` the trials of one of its subjects.
    """

    info: DatasetInfo
    settings: type[DataSettings]
    find: Callable[[Path, Any], tuple[str, ...]]
    files: Callable[[Path, str, Any], tuple[Path, ...]] = lambda _root, _subject, _settings: ()
    load: Callable[[Path, str, Any], Recording]
    version: int = 1  # increase it if the reader returns other numbers for the same bytes
    needs_root: bool = True
    is_synthetic: bool = False
    check_unit: bool = True
    hashes_data: bool = False  # no source files to hash: the fingerprint uses the samples
    published: Callable[[Any], dict[str, int]] | None = None
    trial_shape: Callable[[Any], TrialShape] | None = None
    excluded: Callable[[Any], Mapping[str, str]] = lambda _settings: {}  # by default: subject → why
    fetch: Fetch | None = None  # None: see info.steps

    def parse(self, options: Mapping[str, Any]) -> DataSettings:
        """Return the checked options; raise ConfigError for an unknown key or an invalid value."""
        return parse_settings(self.settings, options, self.info.name)

    def kind(self, root: Path) -> DataKind:
        """Return whether the files under a root are recordings, a stand-in or synthetic."""
        if self.is_synthetic:
            return "synthetic"
        return "stand-in" if self.needs_root and is_stand_in(root) else "recorded"


def is_stand_in(root: Path) -> bool:
    """Return True if a folder holds a stand-in instead of recordings."""
    return (root / STAND_IN_MARK).exists()
