"""The command ``afor run``: train the runs of a study until its store is complete."""

import math
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from afor.bench.cli.options import Jobs, JobsPerDevice, Json, StudyName, StudyOptions, option
from afor.bench.cli.studies.selection import cores, rates_for, select_study
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.common.devices import gpus_for
from afor.bench.common.errors import ConfigError
from afor.bench.common.text import counted
from afor.bench.execution.engines.dask import DaskEngine
from afor.bench.execution.engines.local import LocalEngine
from afor.bench.execution.jobs import Engine
from afor.bench.execution.progress import Progress
from afor.bench.execution.runner import Summary, run_study
from afor.bench.execution.timing.run_times import RunTimes
from afor.bench.store.database import open_store
from afor.bench.store.learning_rates import SearchedRates, best_rates, search_study
from afor.bench.store.locations import parse_part, store_path
from afor.bench.study.planned_runs import FindRate
from afor.bench.study.schema import Study
from afor.bench.study.toml_io import study_toml
from afor.bench.training.run_spec import DEFAULT_TRAINER


def run(
    options: StudyOptions,
    name: StudyName,
    jobs: Jobs = 0,
    shard: Annotated[
        str, option("Train only part i of n, such as 2/8, in a store of its own.")
    ] = "",
    engine: Annotated[
        str, option("Where runs are trained: local (processes of this machine) or dask.")
    ] = "local",
    scheduler: Annotated[
        str, option("Address of the dask scheduler, such as tcp://HOST:PORT.")
    ] = "",
    time_limit: Annotated[
        float | None,
        option(
            "Minutes a run may take before its worker is replaced.",
            show_default="20 times the median of similar runs, at least 10; a day before the "
            "first has finished",
        ),
    ] = None,
    lr_per_optimizer: Annotated[
        bool, option("Search the learning rate of every optimizer first.", "--lr-per-optimizer")
    ] = False,
    as_json: Json = False,
    jobs_per_device: JobsPerDevice = 1,
) -> None:
    """Train the missing runs of a study; safe to stop at any time.

    Finished runs stay in the store, and the same command continues with the others.

    Example:
        afor run demo --jobs 4
    """
    selected = select_study(name, options)
    study, toml, cache_dir = selected.study, selected.toml, options.cache_dir
    part = parse_part(shard) if shard else None
    path = store_path(study.name, options.store, part)
    if lr_per_optimizer and (options.lr_from or part):
        raise ConfigError(
            "--lr-per-optimizer makes its own search: leave out --lr-from. With --shard, run the "
            "search without --shard first and name it with --lr-from."
        )
    is_local = engine == "local" and study.trainer == DEFAULT_TRAINER
    gpus = gpus_for(study.device) if is_local else ()
    workers = jobs or jobs_per_device * len(gpus) or max(1, cores() // study.threads)
    if selected.words:
        typer.echo(f"{study.description} It is called {study.name}, in {path}.", err=True)
    with stopped_in_run(f"afor run {shlex.join([name, *selected.words])}", path):
        workers_engine = make_engine(engine, scheduler, workers, study.threads, time_limit, gpus)
        find_rate = (
            _search_rates(study, path, workers_engine, workers, cache_dir)
            if lr_per_optimizer
            else rates_for(study, options.lr_from)
        )
        with Progress(study.name, workers) as watch:
            summary = run_study(
                study,
                toml,
                path,
                workers_engine,
                part=part,
                find_rate=find_rate,
                cache_dir=cache_dir,
                watch=watch,
            )
    if as_json:
        print_json({"study": study.name, "store": str(path), **asdict(summary)}, indent=None)
    else:
        typer.echo(describe_summary(study.name, path, summary))
    if summary.failed:
        print_next(f"afor store failures {path}")
        raise typer.Exit(code=1)
    next_command = _results_command(study.name, path)
    if part:
        next_command = f"afor store merge results/{study.name}.db {path}"
    elif study.search:
        if not as_json:
            _print_rates(path, study.name, err=False)
        next_command = f"afor run paper --lr-from {path}"
    print_next(next_command)


def _results_command(study: str, path: Path) -> str:
    """Return the command that shows the results a preset is for; others have `afor judge`."""
    commands = {
        "ablation": f"afor table ablation {path}",
        "sensitivity": f"afor figure sensitivity {path}",
        "convergence": f"afor figure convergence {path}",
        "controls": f"afor table noise {path}",
    }
    # The name of a changed preset starts with the preset's: ablation-synthetic.
    return commands.get(study.partition("-")[0], f"afor judge {path}")


def make_engine(
    engine: str,
    scheduler: str,
    workers: int,
    threads: int,
    time_limit: float | None = None,
    gpus: Sequence[str] = (),
) -> Engine:
    """Return the engine that the options of a command name; raise ConfigError if they do not fit.

    `workers`, `threads` of each, `time_limit` in minutes and `gpus` are for the local engine;
    `scheduler` is an address, for dask.
    """
    if time_limit is not None and not 0 < time_limit < math.inf:
        raise ConfigError(f"--time-limit {time_limit}: expected minutes, more than 0.")
    if engine == "dask":
        if time_limit is not None:
            raise ConfigError(
                "--time-limit works with --engine local only. On a dask cluster the scheduler "
                "gives up a worker it has not heard from for distributed.scheduler.worker-ttl."
            )
        return DaskEngine(scheduler)
    if engine != "local" or scheduler:
        raise ConfigError(
            f"--engine {engine}{' --scheduler ' + scheduler if scheduler else ''} is not possible. "
            f"Accepted: --engine local, or --engine dask --scheduler tcp://HOST:PORT."
        )
    limits = RunTimes(None if time_limit is None else 60.0 * time_limit)
    return LocalEngine(workers, threads, limits, gpus)


def describe_summary(name: str, path: Path, summary: Summary) -> str:
    """Return one line with the number of runs in each state."""
    others = {state: getattr(summary, state) for state in ("diverged", "failed", "open")}
    counts = [f"{count} {state}" for state, count in others.items() if count]
    states = ", ".join([f"{summary.done} done", *counts])
    planned = counted(summary.planned, "run")
    return f"{name}: {planned}: {states} ({summary.trained} trained now) in {path}"


@contextmanager
def stopped_by_signals(kept: str, next_command: str) -> Iterator[None]:
    """Exit with code 130 on Ctrl-C or SIGTERM, and print what is kept and how to continue."""
    # Batch systems end a job with SIGTERM.
    previous_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"\nStopped. {kept}\nNext: {next_command}", err=True)
        raise SystemExit(130) from None
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def stopped_in_run(command: str, path: Path) -> AbstractContextManager[None]:
    """Say, when a study is stopped, where its runs are and how to continue."""
    return stopped_by_signals(
        f"All finished runs are kept in {path}.",
        f"the same command continues where this one stopped ({command})",
    )


def _search_rates(
    study: Study, path: Path, engine: Engine, workers: int, cache_dir: Path | None
) -> FindRate:
    """Run the search for every optimizer's learning rate and return the rates it finds."""
    search = search_study(study)
    with Progress(search.name, workers) as watch:
        run_study(search, study_toml(search), path, engine, cache_dir=cache_dir, watch=watch)
    return SearchedRates(_print_rates(path, search.name, err=True))


def _print_rates(path: Path, study: str, *, err: bool) -> dict[tuple[str, str, str], float]:
    with open_store(path) as store:
        rates = best_rates(store, study)
    for (dataset, backbone, optimizer), rate in rates.items():
        typer.echo(f"learning rate of {dataset} × {backbone} × {optimizer}: {rate:g}", err=err)
    return rates
