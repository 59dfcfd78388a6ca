"""The arguments and options that several commands share, with their help texts.

A dataclass is a group: a command that takes one has an option per field, see `lazy`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

MAX_JOBS = 1024
CHANGES_PANEL = "Change the study (its name then says so: ablation-synthetic-eegnet)"

# What a command works on.
StudyName = Annotated[
    str, typer.Argument(help="A preset (`afor study` lists them) or a study's TOML file.")
]
Results = Annotated[
    str, typer.Argument(help="The results: a study's name, its TOML file or a store file.")
]
ResultsList = Annotated[
    list[str] | None,
    typer.Argument(
        help="The results: study names, TOML files, store files, or .csv, .json and .parquet "
        "files of results."
    ),
]
OldStore = Annotated[  # from before RESULTS could be a store file itself
    Path | None, typer.Option("--store", hidden=True, help="The store file to read.")
]
OnlyStudies = Annotated[
    list[str] | None,
    typer.Option("--study", help="Use only the runs of this study of the store."),
]

# Where things are.
StorePath = Annotated[
    Path | None,
    typer.Option("--store", help="Store file of the results.", show_default="results/NAME.db"),
]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        help="Folder of the prepared trials.",
        show_default="$AFOR_CACHE or ~/.cache/afor",
    ),
]
Roots = Annotated[
    list[str] | None,
    typer.Option(
        "--root",
        help="NAME=FOLDER: the folder of a data set's files.",
        show_default="NAME in $AFOR_DATA or ./data",
    ),
]
OldTarget = Annotated[  # the spelling of --output in earlier versions
    Path | None, typer.Option("--to", hidden=True, help="The old spelling of --output.")
]

# How a command works and what it prints.
Json = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]
Jobs = Annotated[
    int,
    typer.Option(
        "-j",
        "--jobs",
        min=0,
        max=MAX_JOBS,
        help="Number of parallel processes; 0 uses all available cores.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        help="Train on this kind of device instead of the study's: auto, cpu, cuda (all GPUs), "
        "cuda:1 (one of them) or mps.",
        show_default="the study's",
    ),
]
Bundled = Annotated[
    str,
    typer.Option(
        "--bundle",
        help="Train runs of a fold and draw as one network. exact: up to 8, where it is faster and "
        "each has the bits of the run by itself (EEGNets in compiled code). auto: also where it is "
        "faster and equal to rounding. A number: as many, for every network that can. Runs of the "
        "last two have keys of their own. 1: none.",
        show_default="the study's",
    ),
]
JobsPerDevice = Annotated[
    int,
    typer.Option(
        "--jobs-per-device",
        min=1,
        max=MAX_JOBS,
        help="Number of parallel processes on each GPU, if the device is cuda.",
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Import the code that a store names. Without it the code is only listed.",
    ),
]
Available = Annotated[
    bool,
    typer.Option(
        "--available", help="Leave out the data sets that are absent; the study keeps its name."
    ),
]
LrFrom = Annotated[
    str,
    typer.Option(
        "--lr-from",
        help="Take the learning rates from a finished search: a study's name, its TOML file or "
        "a store file.",
    ),
]
TableFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        help="terminal, markdown, latex, csv or json.",
        show_default="by the suffix of --output",
    ),
]
AforVariant = Annotated[str, typer.Option("--optimizer", help="AFOR or one of its variants.")]


@dataclass(frozen=True)
class RunOptions:
    """Which run of a study an analysis trains again."""

    dataset: Annotated[
        str, typer.Option("--dataset", help="Data set of the study.", show_default="its first")
    ] = ""
    backbone: Annotated[
        str, typer.Option("--backbone", help="Backbone of the study.", show_default="its first")
    ] = ""
    fold: Annotated[int, typer.Option("--fold", min=0, help="Fold of the run, from 0.")] = 0
    draw: Annotated[
        int, typer.Option("--draw", min=0, help="Draw of the validation subjects, from 0.")
    ] = 0
    root: Roots = None
    cache_dir: CacheDir = None


def _change(option: str, help_text: str) -> Any:
    """Return an option that changes a study."""
    return typer.Option(option, help=help_text, rich_help_panel=CHANGES_PANEL)


@dataclass(frozen=True)
class ChangeOptions:
    """Changes of a study, shared by `study`, `plan` and `run`."""

    dataset: Annotated[
        list[str] | None,
        _change(
            "--dataset",
            "Use this data set instead of the study's: NAME, or NAME=DATASET; repeatable.",
        ),
    ] = None
    data_option: Annotated[
        list[str] | None,
        _change(
            "--data-option",
            "Set an option of the data: KEY=VALUE or DATASET.KEY=VALUE, such as shift=2.0; "
            "repeatable.",
        ),
    ] = None
    backbone: Annotated[
        list[str] | None,
        _change("--backbone", "Use this backbone instead of the study's; repeatable."),
    ] = None
    optimizer: Annotated[
        list[str] | None,
        _change(
            "--optimizer",
            "Use this optimizer instead of the study's; afor_seed_1 is AFOR with seed 1; "
            "repeatable.",
        ),
    ] = None
    epochs: Annotated[int | None, _change("--epochs", "Maximum number of epochs.")] = None
    draws: Annotated[
        int | None, _change("--draws", "Number of draws of the validation subjects.")
    ] = None
    setting: Annotated[
        list[str] | None,
        _change(
            "--set",
            "Set any other key of the study: KEY=VALUE, such as training.lr=1e-3 or "
            "datasets.deap.complete=false; repeatable.",
        ),
    ] = None


@dataclass(frozen=True)
class StudyOptions(ChangeOptions):
    """What `plan` and `run` know of the study and of this machine."""

    store: StorePath = None
    cache_dir: CacheDir = None
    root: Roots = None
    lr_from: LrFrom = ""
    trust: Trust = False
    available: Available = False
    device: Device = ""
    bundle: Bundled = ""
