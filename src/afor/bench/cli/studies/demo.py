"""The command ``afor demo``: the whole protocol on ten synthetic subjects, in minutes."""

import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from afor.bench.cli.options import CacheDir, Jobs, Json, StorePath, option
from afor.bench.cli.printing import render
from afor.bench.cli.results.tables import write_report
from afor.bench.cli.studies.run import describe_summary, make_engine, stopped_in_run
from afor.bench.cli.studies.selection import cores
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.data.catalog import get_dataset
from afor.bench.data.fetching import fetch_files
from afor.bench.data.prepared.cache import open_cache
from afor.bench.execution.progress import Progress
from afor.bench.execution.runner import run_study
from afor.bench.report.registry import build_table
from afor.bench.stats.results import Results
from afor.bench.store.locations import store_path
from afor.bench.store.lock import locked
from afor.bench.study.schema import Study, load_study, parse_study, study_text
from afor.bench.study.toml_io import updated_toml


def demo(
    jobs: Jobs = 0,
    store: StorePath = None,
    cache_dir: CacheDir = None,
    fresh: Annotated[
        bool, option("Set the results of an earlier demo aside first.", "--fresh")
    ] = False,
    people: Annotated[
        bool,
        option("Use recordings of ten people of PhysioNet, fetched once (25 MB).", "--people"),
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare seven optimizers on ten synthetic subjects, in minutes.

    The folds, the draws of validation subjects and early stopping are those of the protocol.

    Example:
        afor demo --jobs 4
    """
    name = "demo-people" if people else "demo"
    study, (toml, _) = load_study(name), study_text(name)
    if people:
        study, toml = _with_people(study, toml, open_cache(cache_dir) / "recordings")
    path = store_path(study.name, store)
    if fresh:
        _archive_previous_store(path)
    workers = jobs or cores()
    typer.echo(
        f"{study.description}\n{_attribution(study)}Safe to stop with Ctrl-C; the same command "
        f"continues.\n",
        err=True,
    )
    with stopped_in_run("afor demo --people" if people else "afor demo", path):
        engine = make_engine("local", "", workers, study.threads)
        with Progress(study.name, workers) as watch:
            summary = run_study(study, toml, path, engine, cache_dir=cache_dir, watch=watch)
    results, page = Results.open([path]), path.with_suffix(".html")
    if as_json:
        content = {"study": study.name, "store": str(path), **asdict(summary)}
        content["report"] = write_report(results, page)
        print_json(content, ensure_ascii=False)
    else:
        typer.echo(describe_summary(study.name, path, summary) + "\n")
        typer.echo(render(build_table("main", results), "terminal"))
        write_report(results, page)
        typer.echo(f"The report: {page}")
        print_next(f"open {page}")
    if summary.failed:
        raise typer.Exit(code=1)


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


def _archive_previous_store(path: Path) -> None:
    """Rename an earlier store, with its log and its spool, to NAME.old-1.db or the next number."""
    with locked(path):
        number = 1
        while (archived := path.with_name(f"{path.stem}.old-{number}.db")).exists():
            number += 1
        for suffix in ("", "-wal", "-shm", ".spool", ".splits"):
            file = path.with_name(f"{path.name}{suffix}")
            if file.exists():
                file.replace(archived.with_name(f"{archived.name}{suffix}"))
