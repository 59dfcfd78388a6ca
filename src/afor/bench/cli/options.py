"""The arguments and options that several commands share, with their help texts.

A dataclass is a group: a command that takes one has an option per field, see `lazy`.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

MAX_JOBS = 1024
CHANGES_PANEL = "Change the study (its name then says so: ablation-synthetic-eegnet)"


def option(help_text: str, *names: str, **settings: Any) -> Any:
    """Return an option of a command; without names it is called as its parameter."""
    return typer.Option(*names, help=help_text, **settings)


def argument(help_text: str, **settings: Any) -> Any:
    """Return a positional argument of a command."""
    return typer.Argument(help=help_text, **settings)


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return the function that completes a word in the shell to the names that begin with it."""
    return lambda incomplete: sorted(name for name in names() if name.startswith(incomplete))


def _presets() -> Iterator[str]:
    folder = files("afor.bench.study").joinpath("presets")
    yield from (entry.name.removesuffix(".toml") for entry in folder.iterdir())
    yield from (str(path) for path in Path().glob("*.toml"))


def _stores() -> Iterator[str]:
    yield from (path.stem for path in Path("results").glob("*.db"))


def _optimizers() -> Iterable[str]:
    from afor.bench.optimizers.registry import OPTIMIZERS

    return OPTIMIZERS


def datasets() -> Iterable[str]:
    """Return the names of the registered data sets."""
    from afor.bench.data.catalog import NAMES

    return NAMES


def backbones() -> Iterable[str]:
    """Return the names of the registered networks."""
    return list(json.loads(files("afor.bench.models").joinpath("sizes.json").read_text("utf-8")))


# What a command works on.
StudyName = Annotated[
    str,
    argument(
        "A preset (`afor study` lists them) or a study's TOML file.",
        autocompletion=completing(_presets),
    ),
]
Results = Annotated[
    str,
    argument(
        "The results: a study's name, its TOML file or a store file.",
        autocompletion=completing(_stores),
    ),
]
ResultsList = Annotated[
    list[str] | None,
    argument(
        "The results: study names, TOML files, store files, or .csv, .json and .parquet "
        "files of results or of any scores.",
        autocompletion=completing(_stores),
    ),
]
_ONLY_STUDY = "Use only the runs of this study of the store."
OnlyStudy = Annotated[str | None, option(_ONLY_STUDY)]
OnlyStudies = Annotated[list[str] | None, option(_ONLY_STUDY)]
AllowDifferent = Annotated[
    list[str] | None,
    option(
        "KEY: compare runs on purpose although they differ in this setting, such as max_epochs; "
        "repeatable."
    ),
]

# Where things are.
StorePath = Annotated[
    Path | None, option("Store file of the results.", show_default="results/NAME.db")
]
Roots = Annotated[
    list[str] | None,
    option(
        "NAME=FOLDER: the folder of a data set's files.",
        show_default="NAME in $AFOR_DATA or ./data",
    ),
]

# How a command works and what it prints.
Json = Annotated[bool, option("Print JSON to standard output.", "--json")]
Jobs = Annotated[
    int,
    option(
        "Number of parallel processes; 0 uses all available cores.",
        "-j",
        "--jobs",
        min=0,
        max=MAX_JOBS,
    ),
]
Device = Annotated[
    str,
    option(
        "Train on this kind of device instead of the study's: auto, cpu, cuda (all GPUs), "
        "cuda:1 (one of them) or mps.",
        show_default="the study's",
    ),
]
Trust = Annotated[
    bool,
    option("Import the code that a store names. Without it the code is only listed.", "--trust"),
]
Available = Annotated[
    bool,
    option("Leave out the data sets that are absent; the study keeps its name.", "--available"),
]
LrFrom = Annotated[
    str,
    option(
        "Take the learning rates from a finished search: a study's name, its TOML file or "
        "a store file."
    ),
]
TableFormat = Annotated[
    Literal["terminal", "markdown", "latex", "csv"] | None,
    option("How the table is written.", "--format", "-f", show_default="by --output's suffix"),
]
AforVariant = Annotated[str, option("AFOR or one of its variants.")]


@dataclass(frozen=True)
class RunOptions:
    """Which run of a study an analysis trains again."""

    dataset: Annotated[
        str,
        option(
            "Data set of the study.", show_default="its first", autocompletion=completing(datasets)
        ),
    ] = ""
    backbone: Annotated[
        str,
        option(
            "Backbone of the study.", show_default="its first", autocompletion=completing(backbones)
        ),
    ] = ""
    fold: Annotated[int, option("Fold of the run, from 0.", min=0)] = 0
    root: Roots = None


def _change(help_text: str, *names: str, **settings: Any) -> Any:
    """Return an option that changes a study."""
    return option(help_text, *names, rich_help_panel=CHANGES_PANEL, **settings)


@dataclass(frozen=True)
class ChangeOptions:
    """Changes of a study, shared by `study`, `plan` and `run`."""

    dataset: Annotated[
        list[str] | None,
        _change(
            "Use this data set instead of the study's: NAME, or NAME=DATASET; repeatable.",
            autocompletion=completing(datasets),
        ),
    ] = None
    backbone: Annotated[
        list[str] | None,
        _change(
            "Use this backbone instead of the study's; repeatable.",
            autocompletion=completing(backbones),
        ),
    ] = None
    optimizer: Annotated[
        list[str] | None,
        _change(
            "Use this optimizer instead of the study's; afor_seed_1 is AFOR with seed 1; "
            "repeatable.",
            autocompletion=completing(_optimizers),
        ),
    ] = None
    epochs: Annotated[int | None, _change("Maximum number of epochs.")] = None
    setting: Annotated[
        list[str] | None,
        _change(
            "Set any other key of the study: KEY=VALUE, such as training.lr=1e-3, "
            "protocol.repetitions=5 or datasets.synthetic.options.shift=2.0; repeatable.",
            "--set",
        ),
    ] = None


@dataclass(frozen=True)
class StudyOptions(ChangeOptions):
    """What `plan` and `run` know of the study and of this machine."""

    store: StorePath = None
    root: Roots = None
    lr_from: LrFrom = ""
    trust: Trust = False
    available: Available = False
    device: Device = ""
