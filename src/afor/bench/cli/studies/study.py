"""The commands ``afor study | plan | status``: the content of a study, and its progress."""

import json
import shlex
from typing import Annotated

import typer

from afor.bench.cli.options import (
    Backbone,
    CacheDir,
    DataOption,
    Dataset,
    Draws,
    Epochs,
    Jobs,
    Json,
    LrFrom,
    OldStore,
    Optimizer,
    Results,
    Roots,
    Setting,
    StorePath,
    StudyName,
    Trust,
)
from afor.bench.cli.studies.selection import (
    changed_text,
    cores,
    overrides,
    rates_for,
    run_command,
    with_roots,
)
from afor.bench.cli.terminal import print_next
from afor.bench.common.errors import ConfigError
from afor.bench.execution.estimate import clock
from afor.bench.execution.runner import open_sources
from afor.bench.execution.status import print_status, remaining_s, status_of
from afor.bench.store.database import open_store
from afor.bench.store.locations import find_store, store_path
from afor.bench.study.plan import StudyPlan, make_plan
from afor.bench.study.schema import (
    Study,
    load_study,
    parse_study,
    preset_names,
    read_toml,
)
from afor.bench.study.toml_io import updated_toml


def study(
    name: Annotated[
        str | None, typer.Argument(help="A preset or a TOML file.", show_default="list the presets")
    ] = None,
    dataset: Dataset = None,
    data_option: DataOption = None,
    backbone: Backbone = None,
    optimizer: Optimizer = None,
    epochs: Epochs = None,
    draws: Draws = None,
    setting: Setting = None,
    new_name: Annotated[
        str,
        typer.Option(
            "--name",
            help="Name of the printed study, and of its store.",
            show_default="my-PRESET; that of a file stays",
        ),
    ] = "",
) -> None:
    """List the presets, or print a study as TOML to edit.

    Each value of a preset is printed with its place in the paper. The study has a name of its own,
    so that its results do not go to the store of the preset.

    Example:
        afor study demo > my-study.toml
    """
    changes = overrides(dataset, data_option, backbone, optimizer, epochs, draws, setting)
    if name is not None:
        text, where = changed_text(name, changes, trust=True)  # only printed
        is_preset = name in preset_names() and not changes.words()
        if new_name or is_preset:
            content = {**read_toml(text, where), "name": new_name or f"my-{name}"}
            text = updated_toml(text, content)
            parse_study(text, where)
        typer.echo(text, nl=False)
        named = ["--name", new_name] if new_name else []
        command = shlex.join(["afor", "study", name, *changes.words(), *named])
        typer.echo(f"Next: {command} > my-study.toml, edit it, afor run my-study.toml", err=True)
        return
    if changes.words():
        raise ConfigError("Name the study to change, such as `afor study ablation --epochs 12`.")
    for preset in preset_names():
        typer.echo(f"{preset:<16}{load_study(preset).description}")
    print_next("afor study demo")


def plan(
    name: StudyName,
    store: StorePath = None,
    cache_dir: CacheDir = None,
    lr_from: LrFrom = "",
    root: Roots = None,
    as_json: Json = False,
    jobs: Jobs = 0,
    dataset: Dataset = None,
    data_option: DataOption = None,
    backbone: Backbone = None,
    optimizer: Optimizer = None,
    epochs: Epochs = None,
    draws: Draws = None,
    setting: Setting = None,
    trust: Trust = False,
) -> None:
    """Show the runs of a study, which are done, and the time left.

    Example:
        afor plan demo --jobs 4
    """
    changes = overrides(dataset, data_option, backbone, optimizer, epochs, draws, setting)
    planned = with_roots(parse_study(*changed_text(name, changes, store, trust=trust)), root)
    path = store_path(planned.name, store)
    made_plan = make_plan(planned, open_sources(planned, cache_dir), rates_for(planned, lr_from))
    statuses: dict[str, str] = {}
    seconds_left = None
    if path.exists():
        with open_store(path) as opened:
            statuses = opened.statuses()
            seconds_left = remaining_s(opened, made_plan.runs)
    words = [statuses.get(cell.key, "open") for cell in made_plan.runs]
    counts = {word: words.count(word) for word in ("done", "diverged", "failed", "open")}
    if as_json:
        rows = [
            {
                "dataset": cell.dataset,
                "backbone": cell.backbone,
                "optimizer": cell.optimizer,
                "fold": cell.fold,
                "draw": cell.draw,
                "lr": cell.rate,
                "key": cell.key,
                "status": word,
            }
            for cell, word in zip(made_plan.runs, words, strict=True)
        ]
        summary = {"study": planned.name, **counts, "seconds": seconds_left, "runs": rows}
        typer.echo(json.dumps(summary))
        return
    _print_plan(planned, made_plan)
    typer.echo(", ".join(f"{count} {word}" for word, count in counts.items() if count))
    if counts["open"]:
        workers = jobs or cores()
        left = "not known before the first run"
        if seconds_left is not None:
            left = clock(seconds_left / workers)
        typer.echo(f"time left with {workers} at once: {left}")
    trusted = ["--trust"] if trust else []
    print_next(shlex.join(["afor", "run", name, *changes.words(), *trusted]))


def _print_plan(study: Study, made_plan: StudyPlan) -> None:
    """Print the data sets with their folds, then a line per data set, backbone and optimizer."""
    typer.echo(f"{study.name}: {len(made_plan.runs)} runs. {study.description}")
    for title, manifest in made_plan.manifests.items():
        first = manifest.splits[0]
        sizes = f"{len(first.train)} / {len(first.validation)} / {len(first.test)}"
        typer.echo(
            f"  {title}: {len(manifest.subjects)} subjects, {manifest.blocks} folds, "
            f"{sizes} to train / validate / test; {len(made_plan.sources[title])} windows"
        )
    for row in made_plan.expected():
        rate = next(
            cell.rate
            for cell in made_plan.runs
            if (cell.dataset, cell.backbone, cell.optimizer)
            == (row.dataset, row.backbone, row.optimizer)
        )
        typer.echo(
            f"  {row.dataset} × {row.backbone} × {row.optimizer}: "
            f"{_count(row.folds, made_plan.manifests[row.dataset].blocks, 'fold')} × "
            f"{_count(row.draws, study.protocol.draws, 'draw')}, lr {rate:g}"
        )


def status(
    results: Results,
    store: OldStore = None,
    as_json: Json = False,
) -> None:
    """Show the progress of a study, also while it runs.

    Example:
        afor status demo
    """
    path = find_store(results, store)
    with open_store(path) as opened:
        progress = status_of(opened)
    if as_json:
        typer.echo(json.dumps(progress, indent=1))
        return
    print_status(progress)
    studies = progress["studies"]
    unfinished = [row["study"] for row in studies if row["open"]]
    if any(row["failed"] for row in studies):
        print_next(f"afor failures {results}")
    elif unfinished:
        print_next(run_command(results, path, unfinished[0]))
    else:
        print_next(f"afor stats {path}")


def _count(selected: int, total: int, noun: str) -> str:
    """Say how many there are, and of how many when the study takes only some.

    >>> _count(4, 4, "fold"), _count(1, 4, "fold"), _count(1, 1, "draw")
    ('4 folds', '1 of 4 folds', '1 draw')
    """
    nouns = noun if total == 1 else f"{noun}s"
    return f"{total} {nouns}" if selected == total else f"{selected} of {total} {nouns}"
