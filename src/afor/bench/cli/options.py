"""What several commands share: texts, spellings and values of options, and groups of options.

A command is a function. Its positional parameters are arguments, the keyword-only ones are options,
and the section `Args` of its docstring has their help texts; `lazy` reads all of this. A dataclass
is a group: a command that takes one has an option per field.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

TableFormat = Literal["terminal", "markdown", "latex", "csv"]

# The help texts of parameters that mean the same in several commands.
TEXTS = {
    "name": "A preset (`afor study` lists them) or a study's TOML file.",
    "results": "The results: a study's name, its TOML file or a store file.",
    "study": "Use only the runs of this study of the store.",
    "baseline": "The method that all others are compared with. "
    "[default: adam, or the first method]",
    "margin": "METRIC=POINTS: differences up to this size count as equivalent; repeatable. "
    "[default: as the study states, or 1 point (0.02 for kappa)]",
    "allow_different": "KEY: compare runs on purpose although they differ in this setting, such as "
    "max_epochs; repeatable.",
    "root": "NAME=FOLDER: the folder of a data set's files. "
    "[default: NAME in $AFOR_DATA or ./data]",
    "option": "Set an option of the data set: KEY=VALUE, such as task=left_right; repeatable.",
    "form": "How the table is written. [default: by --output's suffix]",
    "jobs": "Number of parallel processes; 0 uses all available cores.",
    "trust": "Import the code that a store names. Without it the code is only listed.",
    "as_json": "Print JSON to standard output.",
}
# Spellings and limits of options; others are called as their parameters.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "as_json": {"names": ("--json",)},
    "blocks": {"min": 1, "max": 100_000},
    "family": {"min": 0, "max": 1000},
    "fold": {"min": 0},
    "form": {"names": ("--format", "-f")},
    "grid": {"max": 1001},
    "jobs": {"names": ("-j", "--jobs"), "min": 0, "max": 1024},
    "metric": {"names": ("--metric", "-m")},
    "new_name": {"names": ("--name",)},
    "output": {"names": ("--output", "-o")},
    "rounds": {"min": 1, "max": 100_000},
    "setting": {"names": ("--set",)},
    "trials": {"min": 0, "max": 10_000},
    "wanted": {"names": ("--power",)},
}


def presets() -> Iterator[str]:
    """Yield the names of the presets and of the TOML files here."""
    folder = files("afor.bench.study").joinpath("presets")
    yield from (entry.name.removesuffix(".toml") for entry in folder.iterdir())
    yield from (str(path) for path in Path().glob("*.toml"))


def stores() -> Iterator[str]:
    """Yield the names of the studies whose stores are here."""
    yield from (path.stem for path in Path("results").glob("*.db"))


def optimizers() -> Iterable[str]:
    """Return the names of the registered optimizers."""
    from afor.bench.optimizers.registry import OPTIMIZERS

    return OPTIMIZERS


def datasets() -> Iterable[str]:
    """Return the names of the registered data sets."""
    from afor.bench.data.catalog import NAMES

    return NAMES


def backbones() -> Iterable[str]:
    """Return the names of the registered networks."""
    return list(json.loads(files("afor.bench.models").joinpath("sizes.json").read_text("utf-8")))


def metrics() -> Iterable[str]:
    """Return the names of the metrics."""
    from afor.bench.training.record import METRICS

    return METRICS


# What the shell completes, by parameter.
VALUES: Mapping[str, Callable[[], Iterable[str]]] = {
    "backbone": backbones,
    "baseline": optimizers,
    "damaged": stores,
    "dataset": datasets,
    "device": lambda: ("auto", "cpu", "cuda", "mps"),
    "lr": lambda: ("search", "each"),
    "lr_from": stores,
    "method": optimizers,
    "metric": metrics,
    "name": presets,
    "optimizer": optimizers,
    "parts": stores,
    "pilot": stores,
    "results": stores,
    "study": stores,
}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Which run of a study an analysis trains again.

    Args:
        dataset: Data set of the study. [default: its first]
        backbone: Backbone of the study. [default: its first]
        fold: Fold of the run, from 0.
    """

    dataset: str = ""
    backbone: str = ""
    fold: int = 0
    root: list[str] | None = None
