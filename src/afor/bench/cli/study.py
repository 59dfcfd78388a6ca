"""The commands ``afor study | plan | status``: what a study is, and how far it is."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afor.bench.cli.options import (
    Backbone,
    DataOption,
    Dataset,
    Draws,
    Epochs,
    Optimizer,
    Setting,
    changed_text,
    changes_of,
)
from afor.bench.common.errors import ConfigError

if TYPE_CHECKING:
    from afor.bench.study.plan import FindRate
    from afor.bench.study.schema import Study

StudyName = Annotated[
    str, typer.Argument(help="A preset (`afor study` lists them) or a TOML file.")
]
StorePath = Annotated[Path | None, typer.Option("--store", help="[default: results/NAME.db]")]
CachePath = Annotated[Path | None, typer.Option("--cache-dir", help="[default: $AFOR_CACHE]")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
MAX_JOBS = 1024
Jobs = Annotated[
    int,
    typer.Option(
        "-j", "--jobs", min=0, max=MAX_JOBS, help="Runs at the same time. [default: cores]"
    ),
]
Roots = Annotated[
    list[str] | None,
    typer.Option(
        "--root", help="NAME=FOLDER: where a data set lies. [default: NAME in $AFOR_DATA]"
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Import the code that a store names, which is only listed otherwise."
    ),
]
LrFrom = Annotated[str, typer.Option(help="A finished search: its study's name or its store.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("study")(study)
    app.command("plan")(plan)
    app.command("status")(status)


def study(
    name: Annotated[str | None, typer.Argument(help="A preset; none: list them all.")] = None,
    dataset: Dataset = None,
    data_option: DataOption = None,
    backbone: Backbone = None,
    optimizer: Optimizer = None,
    epochs: Epochs = None,
    draws: Draws = None,
    setting: Setting = None,
) -> None:
    """Print a study as TOML to edit, each value with its place in the paper."""
    import shlex

    from afor.bench.study.schema import load_study, preset_names

    changes = changes_of(dataset, data_option, backbone, optimizer, epochs, draws, setting)
    if name is not None:
        text, _ = changed_text(name, changes, trust=True)  # only printed
        typer.echo(text, nl=False)
        command = shlex.join(["afor", "study", name, *changes.words()])
        typer.echo(f"Next: {command} > my-study.toml, edit it, afor run my-study.toml", err=True)
        return
    if changes.words():
        raise ConfigError("Name the study to change, such as `afor study ablation --epochs 12`.")
    for preset in preset_names():
        typer.echo(f"{preset:<12}{load_study(preset).description}")
    typer.echo("\nNext: afor study demo", err=True)


def plan(
    name: StudyName,
    store: StorePath = None,
    cache_dir: CachePath = None,
    lr_from: LrFrom = "",
    root: Roots = None,
    json_: Json = False,
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
    """Show what a study consists of, what is done, and how long the rest will take."""
    import json
    import shlex

    from afor.bench.execution.estimate import clock
    from afor.bench.execution.runner import open_sources
    from afor.bench.execution.status import remaining_s
    from afor.bench.store.database import open_store
    from afor.bench.store.locations import store_path
    from afor.bench.study.plan import make_plan
    from afor.bench.study.schema import parse_study

    changes = changes_of(dataset, data_option, backbone, optimizer, epochs, draws, setting)
    chosen = with_roots(parse_study(*changed_text(name, changes, store, trust=trust)), root)
    path = store_path(chosen.name, store)
    made = make_plan(chosen, open_sources(chosen, cache_dir), rates_for(chosen, lr_from))
    statuses: dict[str, str] = {}
    seconds = None
    if path.exists():
        with open_store(path) as opened:
            statuses = opened.statuses()
            seconds = remaining_s(opened, made.runs)
    words = [statuses.get(cell.key, "open") for cell in made.runs]
    counts = {word: words.count(word) for word in ("done", "diverged", "failed", "open")}
    workers = jobs or cores()
    if json_:
        cells = [
            {
                "dataset": c.dataset,
                "backbone": c.backbone,
                "optimizer": c.optimizer,
                "fold": c.fold,
                "draw": c.draw,
                "lr": c.rate,
                "key": c.key,
                "status": word,
            }
            for c, word in zip(made.runs, words, strict=True)
        ]
        typer.echo(json.dumps({"study": chosen.name, **counts, "seconds": seconds, "runs": cells}))
        return
    typer.echo(f"{chosen.name}: {len(made.runs)} runs. {chosen.description}")
    for title, manifest in made.manifests.items():
        first = manifest.splits[0]
        sizes = f"{len(first.train)} / {len(first.validation)} / {len(first.test)}"
        typer.echo(
            f"  {title}: {len(manifest.subjects)} subjects, {manifest.blocks} folds, "
            f"{sizes} to train / validate / test; {len(made.sources[title])} windows"
        )
    for row in made.expected():
        rate = next(
            c.rate
            for c in made.runs
            if (c.dataset, c.backbone, c.optimizer) == (row.dataset, row.backbone, row.optimizer)
        )
        typer.echo(
            f"  {row.dataset} × {row.backbone} × {row.optimizer}: "
            f"{_count(row.folds, made.manifests[row.dataset].blocks, 'fold')} × "
            f"{_count(row.draws, chosen.protocol.draws, 'draw')}, lr {rate:g}"
        )
    typer.echo(", ".join(f"{count} {word}" for word, count in counts.items() if count))
    if counts["open"]:
        left = "not known before the first run" if seconds is None else clock(seconds / workers)
        typer.echo(f"time left with {workers} at once: {left}")
    trusted = ["--trust"] if trust else []
    typer.echo(f"\nNext: {shlex.join(['afor', 'run', name, *changes.words(), *trusted])}", err=True)


def status(
    name: StudyName,
    store: StorePath = None,
    json_: Json = False,
) -> None:
    """Show how far a study is, while it runs too."""
    import json

    from afor.bench.execution.status import print_status, status_of
    from afor.bench.store.database import open_store
    from afor.bench.store.locations import find_store

    path = find_store(name, store)
    with open_store(path) as opened:
        found = status_of(opened)
    if json_:
        typer.echo(json.dumps(found, indent=1))
        return
    print_status(found)
    broken = any(study["failed"] for study in found["studies"])
    waiting = any(study["open"] for study in found["studies"])
    following = f"failures {name}" if broken else f"run {name}" if waiting else f"stats {path}"
    typer.echo(f"\nNext: afor {following}", err=True)


def _count(chosen: int, all_: int, word: str) -> str:
    """Say how many there are, and of how many when the study takes only some.

    >>> _count(4, 4, "fold"), _count(1, 4, "fold"), _count(1, 1, "draw")
    ('4 folds', '1 of 4 folds', '1 draw')
    """
    noun = word if all_ == 1 else f"{word}s"
    return f"{all_} {noun}" if chosen == all_ else f"{chosen} of {all_} {noun}"


def with_roots(chosen: "Study", roots: list[str] | None) -> "Study":
    """Say where data sets lie on this machine; a place decides no number."""
    places = dict.fromkeys((entry.name for entry in chosen.datasets), "")
    for pair in roots or ():
        name, equals, folder = pair.partition("=")
        if not equals or name not in places:
            raise ConfigError(
                f"--root {pair}: expected NAME=FOLDER with a data set of the study: "
                f"{', '.join(places)}."
            )
        places[name] = folder
    entries = [
        entry.model_copy(update={"root": places[entry.name] or entry.root})
        for entry in chosen.datasets
    ]
    return chosen.model_copy(update={"datasets": entries})


def rates_for(chosen: "Study", lr_from: str) -> "FindRate | None":
    """Return the rates of the search that a study or its command names, None for its own."""
    from afor.bench.store.database import open_store
    from afor.bench.store.learning_rates import chosen_rates, rate_finder
    from afor.bench.store.locations import find_store

    wanted = lr_from or chosen.lr_from
    if not wanted:
        return None
    with open_store(find_store(wanted)) as store:
        return rate_finder(chosen_rates(store))


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
