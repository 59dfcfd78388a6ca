"""The options that change a study from the command line, shared by ``study | plan | run``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from afor.bench.study.overrides import Overrides

PANEL = "Change the study (its name then says so: ablation-synthetic-eegnet)"

Dataset = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        help="These instead: a data set, or NAME=DATASET; repeatable.",
        rich_help_panel=PANEL,
    ),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data-option",
        help="KEY=VALUE or DATASET.KEY=VALUE, such as shift=2.0; repeatable.",
        rich_help_panel=PANEL,
    ),
]
Backbone = Annotated[
    list[str] | None,
    typer.Option("--backbone", help="These instead; repeatable.", rich_help_panel=PANEL),
]
Optimizer = Annotated[
    list[str] | None,
    typer.Option(
        "--optimizer",
        help="These instead; afor_seed_1 is AFOR under seed 1; repeatable.",
        rich_help_panel=PANEL,
    ),
]
Epochs = Annotated[
    int | None, typer.Option("--epochs", help="At most so many.", rich_help_panel=PANEL)
]
Draws = Annotated[
    int | None,
    typer.Option("--draws", help="Draws of the validation subjects.", rich_help_panel=PANEL),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="KEY=VALUE for all else, such as training.lr=1e-3 or datasets.deap.complete=false.",
        rich_help_panel=PANEL,
    ),
]


def changes_of(
    dataset: list[str] | None,
    data_option: list[str] | None,
    backbone: list[str] | None,
    optimizer: list[str] | None,
    epochs: int | None,
    draws: int | None,
    setting: list[str] | None,
) -> "Overrides":
    """Return the options as one value."""
    from afor.bench.study.overrides import Overrides

    return Overrides(
        datasets=dataset or (),
        data_options=data_option or (),
        backbones=backbone or (),
        optimizers=optimizer or (),
        epochs=epochs,
        draws=draws,
        settings=setting or (),
    )


def changed_text(
    name: str, changes: "Overrides", store: Path | None = None, *, trust: bool
) -> tuple[str, str]:
    """Return a study's TOML with the changes, and what to call it in messages.

    A name that is neither a preset nor a file may be that of a study whose store is here, such as
    `ablation-synthetic`: its store holds its TOML. Without `trust` such a study may name only what
    is part of this package; ConfigError lists the rest.
    """
    from afor.bench.store.locations import store_path
    from afor.bench.study.named_code import refuse_stored_code
    from afor.bench.study.overrides import overridden
    from afor.bench.study.schema import parse_study, preset_names, study_text

    path = store_path(name, store)
    is_new = name not in preset_names() and not name.endswith(".toml") and not Path(name).is_file()
    stored = _stored_text(name, path) if is_new and path.is_file() else None
    text, where = (stored, str(path)) if stored is not None else study_text(name)
    if stored is not None and not trust:
        refuse_stored_code(parse_study(text, where), where)
    return overridden(text, where, changes), where


def _stored_text(name: str, path: Path) -> str | None:
    from afor.bench.store.database import open_store

    with open_store(path) as store:
        return store.studies().get(name)
