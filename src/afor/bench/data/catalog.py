"""Look up a data set by its name: its description and the functions that read it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.common.suggest import did_you_mean
from afor.bench.data.recording import Recording
from afor.bench.data.settings import DataSettings, parse_settings


@dataclass(frozen=True)
class DatasetInfo:
    """The description of a data set for users."""

    name: str
    title: str
    task: str
    licence: str
    where: str
    citation: str
    subjects: tuple[str, ...]  # of a complete copy
    shape: str
    paper_windows: str
    layout: str
    download: str = ""  # the program that downloads it; empty if a signed agreement is needed


@dataclass(frozen=True)
class TrialShape:
    """The trials of one subject of a complete copy, for a plan without the files."""

    channel_names: tuple[str, ...]
    rate_hz: float
    class_names: tuple[str, ...]
    trials: int  # of one subject, on average
    samples: int  # of one trial


@dataclass(frozen=True)
class Dataset:
    """The description and the reader of a data set.

    ``find`` lists the subjects present under a root, ``files`` returns the source files of one
    subject, ``load`` reads them. ``published`` returns the class counts of a complete copy,
    ``trial_shape`` the trials of one of its subjects.
    """

    info: DatasetInfo
    settings: type[DataSettings]
    find: Callable[[Path, Any], tuple[str, ...]]
    files: Callable[[Path, str, Any], tuple[Path, ...]]
    load: Callable[[Path, str, Any], Recording]
    version: int  # increase it if the reader returns other numbers for the same bytes
    needs_root: bool = True
    check_unit: bool = True
    hashes_data: bool = False  # no source files to hash: the fingerprint uses the samples
    published: Callable[[Any], dict[str, int]] | None = None
    trial_shape: Callable[[Any], TrialShape] | None = None
    excluded: Callable[[Any], Mapping[str, str]] | None = None  # subject → why, left out by default
    download: Callable[[Path, Any], None] | None = None

    def parse(self, options: Mapping[str, Any]) -> DataSettings:
        """Return the checked options; raise ConfigError for an unknown key or an invalid value."""
        return parse_settings(self.settings, options, self.info.name)


# A folder with this file contains a synthetic stand-in written by `afor data twin`.
STAND_IN_MARK = "SYNTHETIC.txt"
STAND_IN_NOTE = "a synthetic stand-in, not the data set"

NAMES = (
    "synthetic", "physionet_small", "deap", "bci2a", "isruc", "physionet_mi",
    "folder", "recordings", "bids",
)  # fmt: skip
OWN = ("folder", "recordings", "bids")  # of these the files are the user's own


def is_own_code(name: str) -> bool:
    """Return True if a data set is read by code that is not part of this package."""
    return ":" in name and not name.startswith("moabb:")


def get_dataset(name: str) -> Dataset:
    """Return a data set by its name.

    Args:
        name: One of `NAMES`, ``moabb:<Name>``, or ``module:function`` of a Python function that
            is annotated to return a `Recording`. That module is imported.

    Raises:
        ConfigError: There is no such data set, or MOABB is not installed.
    """
    if name.startswith("moabb:"):
        from afor.bench.data.datasets.moabb_adapter import moabb_dataset

        return moabb_dataset(name.removeprefix("moabb:"))
    if is_own_code(name):
        from afor.bench.data.datasets.own_code import own_dataset

        return own_dataset(name)
    if name not in NAMES:
        raise ConfigError(
            f"Unknown data set {name!r}.{did_you_mean(name, NAMES)} "
            f"Known: {', '.join(NAMES)}, moabb:<Name>, module:function."
        )
    from importlib import import_module

    dataset: Dataset = import_module(f"afor.bench.data.datasets.{name}").DATASET
    return dataset
