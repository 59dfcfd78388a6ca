"""The commands ``afor study | plan | run | status``: from a study file to a complete store."""

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from afor.bench.errors import ConfigError

if TYPE_CHECKING:
    from afor.bench.config import Study
    from afor.bench.jobs import Engine
    from afor.bench.plan import FindRate
    from afor.bench.runner import Summary

StudyName = Annotated[
    str, typer.Argument(help="A preset (`afor study` lists them) or a TOML file.")
]
StorePath = Annotated[Path | None, typer.Option("--store", help="[default: results/NAME.db]")]
CachePath = Annotated[Path | None, typer.Option("--cache-dir", help="[default: $AFOR_CACHE]")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Jobs = Annotated[int, typer.Option("-j", "--jobs", help="Runs at the same time. [default: cores]")]
Roots = Annotated[
    list[str] | None,
    typer.Option(
        "--root", help="NAME=FOLDER: where a data set lies. [default: NAME in $AFOR_DATA]"
    ),
]
LrFrom = Annotated[str, typer.Option(help="A finished search: its study's name or its store.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("study")(study)
    app.command("plan")(plan)
    app.command("run")(run)
    app.command("status")(status)


def study(
    name: Annotated[str | None, typer.Argument(help="A preset; none: list them all.")] = None,
) -> None:
    """Print a study as TOML to edit, each value with its place in the paper."""
    from afor.bench.config import load_study, preset_names, preset_text

    if name is not None:
        typer.echo(preset_text(name), nl=False)
        typer.echo(
            f"Next: afor study {name} > my-study.toml, edit it, afor run my-study.toml", err=True
        )
        return
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
) -> None:
    """Show what a study consists of, what is done, and how long the rest will take."""
    import json

    from afor.bench.config import load_study
    from afor.bench.estimate import clock
    from afor.bench.places import store_path
    from afor.bench.plan import make_plan
    from afor.bench.runner import open_sources
    from afor.bench.status import remaining_s
    from afor.bench.store import open_store

    chosen = with_roots(load_study(name), root)
    path = store_path(chosen.name, store)
    made = make_plan(chosen, open_sources(chosen, cache_dir), _rates(chosen, lr_from))
    statuses: dict[str, str] = {}
    seconds = None
    if path.exists():
        with open_store(path) as opened:
            statuses = opened.statuses()
            seconds = remaining_s(opened, made.cells)
    words = [statuses.get(cell.key, "open") for cell in made.cells]
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
            for c, word in zip(made.cells, words, strict=True)
        ]
        typer.echo(json.dumps({"study": chosen.name, **counts, "seconds": seconds, "runs": cells}))
        return
    typer.echo(f"{chosen.name}: {len(made.cells)} runs. {chosen.description}")
    for dataset, manifest in made.manifests.items():
        first = manifest.splits[0]
        sizes = f"{len(first.train)} / {len(first.validation)} / {len(first.test)}"
        typer.echo(
            f"  {dataset}: {len(manifest.subjects)} subjects, {manifest.blocks} folds, "
            f"{sizes} to train / validate / test; {len(made.sources[dataset])} windows"
        )
    for row in made.expected():
        rate = next(
            c.rate
            for c in made.cells
            if (c.dataset, c.backbone, c.optimizer) == (row.dataset, row.backbone, row.optimizer)
        )
        typer.echo(
            f"  {row.dataset} × {row.backbone} × {row.optimizer}: {row.folds} folds × "
            f"{row.draws} draws, lr {rate:g}"
        )
    typer.echo(", ".join(f"{count} {word}" for word, count in counts.items() if count))
    if counts["open"]:
        left = "not known before the first run" if seconds is None else clock(seconds / workers)
        typer.echo(f"time left with {workers} at once: {left}")
    typer.echo(f"\nNext: afor run {name}", err=True)


def run(
    name: StudyName,
    jobs: Jobs = 0,
    store: StorePath = None,
    shard: Annotated[str, typer.Option(help="Only part i of n, such as 2/8.")] = "",
    engine: Annotated[str, typer.Option(help="local or dask.")] = "local",
    scheduler: Annotated[str, typer.Option(help="Address of a dask scheduler.")] = "",
    lr_from: LrFrom = "",
    lr_per_optimizer: Annotated[
        bool, typer.Option("--lr-per-optimizer", help="Search the rate of every optimizer first.")
    ] = False,
    root: Roots = None,
    cache_dir: CachePath = None,
    json_: Json = False,
) -> None:
    """Train what a study still lacks. Safe to stop at any time; run it again to go on."""
    import json
    from dataclasses import asdict

    from afor.bench.config import load_study, study_text
    from afor.bench.places import parse_part, store_path

    chosen, (toml, _) = with_roots(load_study(name), root), study_text(name)
    part = parse_part(shard) if shard else None
    path = store_path(chosen.name, store, part)
    if lr_per_optimizer and (lr_from or part):
        raise ConfigError(
            "--lr-per-optimizer makes its own search: leave out --lr-from; with --shard, run the "
            "search unsharded first and give it with --lr-from."
        )
    workers = jobs or cores()
    with stopped_by_signals(name, path):
        hands = make_engine(engine, scheduler, workers, chosen.threads)
        find_rate = (
            _own_rates(chosen, toml, path, hands, workers, cache_dir)
            if lr_per_optimizer
            else _rates(chosen, lr_from)
        )
        summary = train_study(
            chosen, toml, path, hands, workers, part=part, find_rate=find_rate, cache_dir=cache_dir
        )
    if json_:
        typer.echo(json.dumps({"study": chosen.name, "store": str(path), **asdict(summary)}))
    else:
        typer.echo(describe_summary(chosen.name, path, summary))
    if summary.failed:
        typer.echo(f"\nNext: afor failures {path}", err=True)
        raise typer.Exit(code=1)
    following = f"afor merge results/{chosen.name}.db {path}" if part else f"afor stats {path}"
    typer.echo(f"\nNext: {following}", err=True)


def status(
    name: StudyName,
    store: StorePath = None,
    json_: Json = False,
) -> None:
    """Show how far a study is, while it runs too."""
    import json

    from afor.bench.places import find_store
    from afor.bench.status import print_status, status_of
    from afor.bench.store import open_store

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


def train_study(
    chosen: "Study",
    toml: str,
    path: Path,
    engine: "Engine",
    workers: int,
    *,
    part: tuple[int, int] | None = None,
    find_rate: "FindRate | None" = None,
    cache_dir: Path | None = None,
) -> "Summary":
    """Run a study with its progress on stderr."""
    from afor.bench.progress import Progress
    from afor.bench.runner import run_study

    with Progress(chosen.name, workers) as progress:
        return run_study(
            chosen,
            toml,
            path,
            engine,
            part=part,
            find_rate=find_rate,
            cache_dir=cache_dir,
            watch=progress,
        )


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


def make_engine(engine: str, scheduler: str, workers: int, threads: int) -> "Engine":
    """Return what runs the jobs; ConfigError for an engine that is not there."""
    from afor.bench.engine import LocalEngine

    if engine == "dask":
        from afor.bench.engine_dask import DaskEngine

        return DaskEngine(scheduler)
    if engine != "local" or scheduler:
        raise ConfigError(
            f"--engine {engine}{' --scheduler ' + scheduler if scheduler else ''} is not possible. "
            f"Accepted: --engine local, or --engine dask --scheduler tcp://HOST:PORT."
        )
    return LocalEngine(workers, threads)


def describe_summary(name: str, path: Path, summary: "Summary") -> str:
    """Say in one line how a study stands."""
    words = [f"{summary.done} done"]
    words += [f"{summary.diverged} diverged"] if summary.diverged else []
    words += [f"{summary.failed} failed"] if summary.failed else []
    words += [f"{summary.open} open"] if summary.open else []
    return f"{name}: {summary.planned} runs: {', '.join(words)} ({summary.trained} now) in {path}"


class stopped_by_signals:  # noqa: N801  reads as a statement where it is used
    """Turn Ctrl-C, and the signal batch systems send, into exit code 130 and how to go on."""

    def __init__(self, name: str, path: Path) -> None:
        self._name, self._path = name, path

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGTERM, signal.default_int_handler)

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        signal.signal(signal.SIGTERM, self._before)
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            typer.echo(
                f"\nStopped. All finished runs are kept in {self._path}.\n"
                f"Next: the same command goes on where this one stopped (afor run {self._name})",
                err=True,
            )
            raise SystemExit(130) from None


def _rates(chosen: "Study", lr_from: str) -> "FindRate | None":
    from afor.bench.places import find_store
    from afor.bench.rates import chosen_rates, rate_finder
    from afor.bench.store import open_store

    wanted = lr_from or chosen.lr_from
    if not wanted:
        return None
    with open_store(find_store(wanted)) as store:
        return rate_finder(chosen_rates(store))


def _own_rates(
    chosen: "Study", toml: str, path: Path, engine: "Engine", workers: int, cache_dir: Path | None
) -> "FindRate":
    from afor.bench.rates import chosen_rates, rate_finder, search_study
    from afor.bench.store import open_store

    search = search_study(chosen)
    train_study(search, toml, path, engine, workers, cache_dir=cache_dir)
    with open_store(path) as store:
        rates = chosen_rates(store, search.name)
    for (dataset, backbone, optimizer), rate in rates.items():
        typer.echo(f"learning rate of {dataset} × {backbone} × {optimizer}: {rate:g}", err=True)
    return rate_finder(rates)


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
