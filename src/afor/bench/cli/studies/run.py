"""The commands ``afor run | demo``: train the runs of a study, judge them and write the report."""

import math
import shlex
import signal
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer

from afor.bench.cli.printing import render
from afor.bench.cli.studies.selection import (
    StudyOptions,
    cores,
    select_study,
    step_timer,
)
from afor.bench.cli.terminal import print_facts, print_json, print_next
from afor.bench.common.devices import gpus_for
from afor.bench.common.errors import AforError, ConfigError
from afor.bench.common.text import counted
from afor.bench.data.catalog import get_dataset
from afor.bench.data.fetching import fetch_files
from afor.bench.data.prepared import open_cache
from afor.bench.execution.engines.dask import DaskEngine
from afor.bench.execution.engines.local import LocalEngine
from afor.bench.execution.forecast import describe_search
from afor.bench.execution.jobs import Engine
from afor.bench.execution.progress import Progress
from afor.bench.execution.run_times import RunTimes
from afor.bench.execution.runner import Summary, run_study
from afor.bench.execution.sources import expected_sources
from afor.bench.report.page import write_report
from afor.bench.report.registry import build_table
from afor.bench.report.verdicts import answers
from afor.bench.stats.diagnosis import diagnose
from afor.bench.stats.results import Results
from afor.bench.store.database import open_store
from afor.bench.store.learning_rates import (
    SearchedRates,
    search_study,
    searched_rates,
    small_search,
)
from afor.bench.store.locations import parse_part, store_path
from afor.bench.study.planned_runs import FindRate
from afor.bench.study.schema import Study, load_study, parse_study, study_text
from afor.bench.study.toml_io import study_toml, updated_toml
from afor.bench.training.run_spec import DEFAULT_TRAINER

MAX_DIAGNOSES = 3  # of the trainings, below the table


def run(
    name: str,
    *,
    options: StudyOptions,
    jobs: int = 0,
    shard: str = "",
    scheduler: str = "",
    time_limit: float | None = None,
    lr: str = "",
    no_report: bool = False,
    as_json: bool = False,
) -> None:
    """Train the missing runs of a study; safe to stop at any time.

    Finished runs stay in the store, and the same command continues with the others. It ends with
    the verdict and writes the report beside the store.

    Args:
        shard: Train only part i of n, such as 2/8, in a store of its own.
        scheduler: Train on the dask cluster of this scheduler, such as tcp://HOST:PORT.
        time_limit: Minutes a run may take before its worker is replaced. [default: 20 times the
            median of similar runs, at least 10; a day before the first has finished]
        lr: Learning rate of all methods, without a search. `search` tries three with the baseline
            first, `each` the paper's five with every method. [default: the study's]
        no_report: Write no HTML report beside the store.

    Example:
        afor run demo --jobs 4
    """
    searches = lr in ("search", "each")
    if lr and not searches:
        options = replace(options, setting=[*(options.setting or ()), f"training.lr={_rate(lr)}"])
    selected = select_study(name, options)
    study, toml = selected.study, selected.toml
    part = parse_part(shard) if shard else None
    path = store_path(study.name, options.store, part)
    if study.lr_search and not options.lr_from:
        lr, searches = lr or "search", True
    if searches and (options.lr_from or part):
        raise ConfigError(
            "A study that searches its learning rate takes none from --lr-from, and its search is "
            "not divided: with --shard, run the search without --shard first and name its store "
            "with --lr-from. --lr RATE does without a search."
        )
    is_local = not scheduler and study.trainer == DEFAULT_TRAINER
    gpus = gpus_for(study.device) if is_local else ()
    workers = jobs or len(gpus) or max(1, cores() // study.threads)
    if selected.is_changed:
        typer.echo(f"{study.description} It is called {study.name}, in {path}.", err=True)
    searching = ["--lr", lr] if searches and not study.lr_search else []
    with stopped_in_run(shlex.join(["afor", "run", name, *selected.words, *searching]), path):
        engine = make_engine(scheduler, workers, study.threads, time_limit, gpus)
        if searches:
            search = search_study(study) if lr == "each" else small_search(study)
            words = describe_search(search, expected_sources(search), step_timer(), workers)
            typer.echo(
                f"The learning rate is searched first: {words}. --lr RATE skips it.", err=True
            )
            train(search, study_toml(search), path, engine, workers)
            find_rate: FindRate | None = (rates := _rates(path, search.name))
            typer.echo("\n".join(rates.lines()), err=True)
        else:
            find_rate = searched_rates(options.lr_from or study.lr_from)
        summary = train(study, toml, path, engine, workers, part=part, find_rate=find_rate)
    notes = find_rate.doubts() if isinstance(find_rate, SearchedRates) else []
    show_outcome(study, path, summary, part, notes, report=not no_report, as_json=as_json)


def train(
    study: Study, toml: str, path: Path, engine: Engine, workers: int, **options: Any
) -> Summary:
    """Train the missing runs of a study and show the progress; the options are `run_study`'s."""
    with Progress(study.name, workers) as watch:
        return run_study(study, toml, path, engine, watch=watch, **options)


def show_outcome(
    study: Study,
    path: Path,
    summary: Summary,
    part: tuple[int, int] | None = None,
    notes: Sequence[str] = (),
    *,
    report: bool = True,
    as_json: bool = False,
) -> None:
    """Print the verdict of a study and what to do next; write the report beside its store.

    A part of a study and a search of learning rates have no verdict. The exit code is 1 if a run
    failed. `notes` stand below the verdict.
    """
    text = ""
    facts: list[tuple[str, str]] = []
    verdicts: list[str] = []
    page: Path | None = None
    next_command = _results_command(study.name, path)
    if part is not None:
        next_command = f"afor store merge {store_path(study.name)} {path}"
    elif study.search:
        next_command = next_command or f"afor run paper --lr-from {path}"
        facts = [("rate", rate) for rate in _rates(path, study.name).lines()]
    else:
        try:
            results = Results.open([path], studies=[study.name], baseline=None)
            table = build_table("main", results)
            results.needed_comparisons(results.metrics[0])  # refuses results without any
        except AforError as error:
            typer.echo(f"There is no verdict: {error}", err=True)
        else:
            verdicts = [answer.text for answer in answers(results)]
            diagnosis = diagnose(results)
            more = len(diagnosis) - MAX_DIAGNOSES
            text = f"\n{render(table, 'terminal')}"
            facts = [("note", sentence) for sentence in (*diagnosis[:MAX_DIAGNOSES], *notes)]
            if more > 0 and report:
                facts.append(("note", f"{more} more like these are in the report"))
            notes = [*diagnosis, *notes]
            if report:
                page = path.with_suffix(".html")
                write_report(results, page)
                facts.append(("report", str(page)))
                next_command = next_command or f"open {page}"
    if as_json:
        content = {"study": study.name, "store": str(path), **asdict(summary)}
        content |= {"verdicts": verdicts, "notes": list(notes)}
        content |= {"report": str(page) if page else None}
        print_json(content, indent=None)
    else:
        print_facts(f"{describe_summary(study.name, path, summary)}{text}", facts)
    if summary.failed:
        print_next(f"afor store failures {path}")
        raise typer.Exit(code=1)
    print_next(next_command or f"afor judge {path}")


def _results_command(study: str, path: Path) -> str:
    """Return the command that shows the results a preset is for; others have none."""
    commands = {
        "ablation": f"afor table ablation {path}",
        "sensitivity": f"afor figure sensitivity {path}",
        "convergence": f"afor figure convergence {path}",
        "controls": f"afor table noise {path}",
        "headroom": f"afor analyse headroom {path}",
    }
    # The name of a changed preset starts with the preset's: ablation-synthetic.
    return commands.get(study.partition("-")[0], "")


def make_engine(
    scheduler: str,
    workers: int,
    threads: int,
    time_limit: float | None = None,
    gpus: Sequence[str] = (),
) -> Engine:
    """Return the engine that the options of a command name; raise ConfigError if they do not fit.

    `workers`, `threads` of each, `time_limit` in minutes and `gpus` are for processes of this
    machine; `scheduler`, an address, is for dask.
    """
    if time_limit is not None and not 0 < time_limit < math.inf:
        raise ConfigError(f"--time-limit {time_limit}: expected minutes, more than 0.")
    if not scheduler:
        limits = RunTimes(None if time_limit is None else 60.0 * time_limit)
        return LocalEngine(workers, threads, limits, gpus)
    if time_limit is not None:
        raise ConfigError(
            "--time-limit does not work with --scheduler. On a dask cluster the scheduler gives "
            "up a worker it has not heard from for distributed.scheduler.worker-ttl."
        )
    return DaskEngine(scheduler)


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


def _rates(path: Path, study: str) -> SearchedRates:
    with open_store(path) as store:
        return SearchedRates.of(store, study)


def _rate(text: str) -> float:
    """Read the value of --lr; raise ConfigError if it is no learning rate."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise ConfigError(f"--lr {text}: expected a number above 0, `search` or `each`.")
    return rate


def demo(*, jobs: int = 0, people: bool = False) -> None:
    """Compare seven optimizers on ten synthetic subjects, in minutes.

    The folds, the repetitions of validation subjects and early stopping are those of the protocol.

    Args:
        people: Use recordings of ten people of PhysioNet, fetched once (26 MB).

    Example:
        afor demo --jobs 4
    """
    name = "demo-people" if people else "demo"
    study, (toml, _) = load_study(name), study_text(name)
    if people:
        study, toml = _with_people(study, toml, open_cache(None) / "recordings")
    path, workers = store_path(study.name), jobs or cores()
    typer.echo(
        f"{study.description}\n{_attribution(study)}Safe to stop with Ctrl-C; the same command "
        f"continues.\n",
        err=True,
    )
    with stopped_in_run("afor demo --people" if people else "afor demo", path):
        summary = train(study, toml, path, make_engine("", workers, study.threads), workers)
    show_outcome(study, path, summary)


def _with_people(study: Study, toml: str, folder: Path) -> tuple[Study, str]:
    """Fetch the people of a study into a folder; return the study and its TOML with that root."""
    (entry,) = study.datasets
    dataset = get_dataset(entry.use)
    assert dataset.fetch is not None and entry.subjects is not None  # noqa: PT018
    root = folder / entry.use
    typer.echo(f"Fetching what is missing in {root} ...", err=True)
    fetch_files(dataset.fetch, root, entry.subjects, dataset.parse(entry.options))
    content = tomllib.loads(toml)
    content["datasets"][0]["root"] = str(root)
    text = updated_toml(toml, content)
    return parse_study(text), text


def _attribution(study: Study) -> str:
    """Return a line per data set with its licence and what to cite."""
    datasets = [get_dataset(entry.use) for entry in study.datasets]
    if all(dataset.is_synthetic for dataset in datasets):
        return "Data: synthetic subjects, computed here; `afor demo --people` uses recordings.\n"
    return "".join(
        f"Data: {d.info.title}. {d.info.licence}. Cite {d.info.citation}.\n" for d in datasets
    )
