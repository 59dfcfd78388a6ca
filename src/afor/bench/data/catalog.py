"""Every data set by name: what it is, where to get it, and the four functions that read it."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.data.recording import Recording
from afor.bench.data.settings import DataSettings, parse_settings


@dataclass(frozen=True)
class DatasetInfo:
    """What a person needs to know before using a data set."""

    name: str
    title: str
    task: str
    licence: str
    where: str
    citation: str
    subjects: tuple[str, ...]  # those a complete copy has
    shape: str
    paper_windows: str
    layout: str
    download: str = ""  # what fetches it, empty when it needs an agreement or a form


@dataclass(frozen=True)
class Dataset:
    """A data set's description and its reader.

    ``find`` lists the subjects present under a root, ``files`` the source files of one subject,
    ``load`` reads them. ``published`` are known totals: the class counts of a complete copy.
    """

    info: DatasetInfo
    settings: type[DataSettings]
    find: Callable[[Path, Any], tuple[str, ...]]
    files: Callable[[Path, str, Any], tuple[Path, ...]]
    load: Callable[[Path, str, Any], Recording]
    version: int  # raise it when the reader gives other numbers for the same bytes
    needs_root: bool = True
    check_unit: bool = True
    hashes_data: bool = False  # no source files to hash: the fingerprint uses the samples
    published: Callable[[Any], dict[str, int]] | None = None
    excluded: Callable[[Any], Mapping[str, str]] | None = None  # subject → why, left out by default
    download: Callable[[Path, Any], None] | None = None

    def parse(self, options: Mapping[str, Any]) -> DataSettings:
        """Check the options; ConfigError for an unknown key or a bad value."""
        return parse_settings(self.settings, options, self.info.name)


# A folder with this file holds a stand-in written by `afor data twin`, not the data set.
STAND_IN_MARK = "SYNTHETIC.txt"
STAND_IN_NOTE = "a synthetic stand-in, not the data set"

NAMES = ("synthetic", "deap", "bci2a", "isruc", "physionet_mi", "folder")


def get_dataset(name: str) -> Dataset:
    """Return a data set by its name, ``moabb:<Name>`` included."""
    if name.startswith("moabb:"):
        from afor.bench.data.datasets.moabb_adapter import moabb_dataset

        return moabb_dataset(name.removeprefix("moabb:"))
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"Unknown data set {name!r}.{hint} Known: {', '.join(NAMES)}, moabb:<Name>."
        )
    from importlib import import_module

    found: Dataset = import_module(f"afor.bench.data.datasets.{name}").DATASET
    return found
