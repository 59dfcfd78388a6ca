"""The command ``afor run``: from a study to a complete store, whatever happens on the way."""

import math
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from afor.bench.cli.study import (
    CachePath,
    Jobs,
    Json,
    LrFrom,
    Roots,
    StorePath,
    StudyName,
    Trust,
    cores,
    rates_for,
    with_roots,
)
from afor.bench.common.errors import ConfigError

if TYPE_CHECKING:
    from afor.bench.execution.jobs import Engine
    from afor.bench.execution.runner import Summary
    from afor.bench.study.plan import FindRate
    from afor.bench.study.schema import Study


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("run")(run)


def run(
    name: StudyName,
    jobs: Jobs = 0,
    store: StorePath = None,
    shard: Annotated[str, typer.Option(help="Only part i of n, such as 2/8.")] = "",
    engine: Annotated[str, typer.Option(help="local or dask.")] = "local",
    scheduler: Annotated[str, typer.Option(help="Address of a dask scheduler.")] = "",
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Minutes a run may take before its worker is replaced. [default: 20 times the "
            "median of its like, at least 10; a day before one has ended]"
        ),
    ] = None,
    lr_from: LrFrom = "",
    lr_per_optimizer: Annotated[
        bool, typer.Option("--lr-per-optimizer", help="Search the rate of every optimizer first.")
    ] = False,
    root: Roots = None,
    cache_dir: CachePath = None,
    json_: Json = False,
    dataset: Dataset = None,
    data_option: DataOption = None,
    backbone: Backbone = None,
    optimizer: Optimizer = None,
    epochs: Epochs = None,
    draws: Draws = None,
    setting: Setting = None,
    trust: Trust = False,
) -> None:
    """Train what a study still lacks. Safe to stop at any time; run it again to go on."""
    import json
    from dataclasses import asdict

    from afor.bench.store.locations import parse_part, store_path
    from afor.bench.study.schema import parse_study

    changes = changes_of(dataset, data_option, backbone, optimizer, epochs, draws, setting)
    toml, where = changed_text(name, changes, store, trust=trust)
    chosen = with_roots(parse_study(toml, where), root)
    part = parse_part(shard) if shard else None
    path = store_path(chosen.name, store, part)
    if lr_per_optimizer and (lr_from or part):
        raise ConfigError(
            "--lr-per-optimizer makes its own search: leave out --lr-from; with --shard, run the "
            "search unsharded first and give it with --lr-from."
        )
    workers = jobs or max(1, cores() // chosen.threads)
    if changes.words():
        typer.echo(f"{chosen.description} It is called {chosen.name}, in {path}.", err=True)
    with stopped_in_run(f"afor run {shlex.join([name, *changes.words()])}", path):
        hands = make_engine(engine, scheduler, workers, chosen.threads, time_limit)
        find_rate = (
            _own_rates(chosen, toml, path, hands, workers, cache_dir)
            if lr_per_optimizer
            else rates_for(chosen, lr_from)
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
    following = f"afor merge results/{chosen.name}.db {path}" if part else _look(chosen.name, path)
    if chosen.search and not part:
        if not json_:
            _print_rates(path, chosen.name, err=False)
        following = f"afor run paper --lr-from {path}"
    typer.echo(f"\nNext: {following}", err=True)


def _look(study: str, path: Path) -> str:
    """Return the command that shows what a study was made for; changed presets keep the start."""
    looks = {
        "ablation": f"afor table ablation {path}",
        "sensitivity": f"afor figure sensitivity {path}",
        "convergence": f"afor figure convergence {path}",
        "controls": f"afor table noise {path}",
    }
    return looks.get(study.partition("-")[0], f"afor stats {path}")


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
    from afor.bench.execution.progress import Progress
    from afor.bench.execution.runner import run_study

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


def make_engine(
    engine: str, scheduler: str, workers: int, threads: int, time_limit: float | None = None
) -> "Engine":
    """Return what runs the jobs; ConfigError for an engine that is not there."""
    from afor.bench.execution.engines.local import LocalEngine
    from afor.bench.execution.time_limits import TimeLimits

    if time_limit is not None and not 0 < time_limit < math.inf:
        raise ConfigError(f"--time-limit {time_limit}: expected minutes, more than 0.")
    if engine == "dask":
        from afor.bench.execution.engines.dask import DaskEngine

        if time_limit is not None:
            raise ConfigError(
                "--time-limit is for --engine local. On a dask cluster the scheduler gives up a "
                "worker that it has not heard of for distributed.scheduler.worker-ttl."
            )
        return DaskEngine(scheduler)
    if engine != "local" or scheduler:
        raise ConfigError(
            f"--engine {engine}{' --scheduler ' + scheduler if scheduler else ''} is not possible. "
            f"Accepted: --engine local, or --engine dask --scheduler tcp://HOST:PORT."
        )
    limits = TimeLimits(None if time_limit is None else 60.0 * time_limit)
    return LocalEngine(workers, threads, limits)


def describe_summary(name: str, path: Path, summary: "Summary") -> str:
    """Say in one line how a study stands."""
    words = [f"{summary.done} done"]
    words += [f"{summary.diverged} diverged"] if summary.diverged else []
    words += [f"{summary.failed} failed"] if summary.failed else []
    words += [f"{summary.open} open"] if summary.open else []
    counts = f"{', '.join(words)} ({summary.trained} trained now)"
    return f"{name}: {summary.planned} runs: {counts} in {path}"


class stopped_by_signals:  # noqa: N801  reads as a statement where it is used
    """Turn Ctrl-C, and the signal batch systems send, into exit code 130 and how to go on."""

    def __init__(self, kept: str, following: str) -> None:
        self._kept, self._following = kept, following

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGTERM, signal.default_int_handler)

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        signal.signal(signal.SIGTERM, self._before)
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            typer.echo(f"\nStopped. {self._kept}\nNext: {self._following}", err=True)
            raise SystemExit(130) from None


def stopped_in_run(command: str, path: Path) -> stopped_by_signals:
    """Say, when a study is stopped, where its runs are and how to go on."""
    return stopped_by_signals(
        f"All finished runs are kept in {path}.",
        f"the same command goes on where this one stopped ({command})",
    )


def _own_rates(
    chosen: "Study", toml: str, path: Path, engine: "Engine", workers: int, cache_dir: Path | None
) -> "FindRate":
    from afor.bench.store.learning_rates import rate_finder, search_study

    search = search_study(chosen)
    train_study(search, toml, path, engine, workers, cache_dir=cache_dir)
    return rate_finder(_print_rates(path, search.name, err=True))


def _print_rates(path: Path, study: str, *, err: bool) -> dict[tuple[str, str, str], float]:
    from afor.bench.store.database import open_store
    from afor.bench.store.learning_rates import chosen_rates

    with open_store(path) as store:
        rates = chosen_rates(store, study)
    for (dataset, backbone, optimizer), rate in rates.items():
        typer.echo(f"learning rate of {dataset} × {backbone} × {optimizer}: {rate:g}", err=err)
    return rates
