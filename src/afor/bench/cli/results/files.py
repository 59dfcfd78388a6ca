"""The commands ``afor store merge``, ``store repair`` and ``export``: copies of stores."""

from pathlib import Path
from typing import Annotated

import typer

from afor.bench.cli.options import CacheDir, Json, OldStore, OldTarget, Roots, argument, option
from afor.bench.cli.studies.selection import rates_for, with_roots
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.common.errors import ConfigError
from afor.bench.common.files import check_output
from afor.bench.execution.runner import take_leftovers
from afor.bench.execution.sources import open_sources
from afor.bench.store.completion import complete_rows
from afor.bench.store.database import open_or_create, open_store
from afor.bench.store.files import (
    export_rows,
    format_of,
    is_store,
    read_rows,
    to_csv,
    to_json,
    write_export,
)
from afor.bench.store.locations import find_store
from afor.bench.store.lock import locked
from afor.bench.store.repair import repair as copy_intact_runs
from afor.bench.study.plan import make_plan
from afor.bench.study.planned_runs import StudyPlan
from afor.bench.study.schema import load_study

ExportedResults = Annotated[
    str,
    argument(
        "The results: a study's name, its TOML file, a store file, or a file of `afor export`."
    ),
]


def merge(
    target: Annotated[Path, argument("The store file that receives all runs; created if missing.")],
    parts: Annotated[
        list[str], argument("The results to add: study names, TOML files or store files.")
    ],
    as_json: Json = False,
) -> None:
    """Merge the stores of several machines or shards into one.

    The parts stay as they are. If two stores hold the same run, the first is kept.

    Example:
        afor store merge results/paper.db results/paper.part-*.db
    """
    paths = [find_store(part) for part in parts]
    if target.resolve() in [path.resolve() for path in paths]:
        raise ConfigError(f"{target} is given as the target and as a part; name another target.")
    for path in paths:
        open_store(path).close()  # check all of them before the target is created
    merged = []
    with locked(target), open_or_create(target) as store:
        take_leftovers(store)
        for path in paths:
            with open_store(path) as part:
                new, present, differing = store.merge(part)
            merged.append(
                {"store": str(path), "new": new, "present": present, "differing": differing}
            )
            note = f"; {differing} of these with OTHER NUMBERS, the first kept" if differing else ""
            if not as_json:
                typer.echo(f"{path}: {new} new runs, {present} already here{note}")
        total = len(store.statuses())
    if as_json:
        print_json({"store": str(target), "runs": total, "parts": merged})
        return
    typer.echo(f"{target}: {total} runs")
    print_next(f"afor status {target}")


def repair(
    damaged: Annotated[
        str,
        argument(
            "The damaged results, which are only read: a study's name, its TOML file or a "
            "store file."
        ),
    ],
    output: Annotated[
        Path | None, option("The store file to create; required.", "--output", "-o")
    ] = None,
    to: OldTarget = None,
) -> None:
    """Copy the intact runs of a damaged store to a new store.

    What is lost is listed; the exit code is 1 if anything is.

    Example:
        afor store repair results/demo.db --output results/new.db
    """
    target = output or to
    if target is None:
        raise ConfigError("Name the store file to create with --output, such as -o NEW.db.")
    with locked(target):
        result = copy_intact_runs(find_store(damaged), target)
    typer.echo(f"{target}: {result.runs} runs, {len(result.studies)} studies")
    for key in result.lost_runs:
        typer.echo(f"lost: run {key}")
    for name in result.without_list:
        typer.echo(f"lost: the list of runs of study {name}; `afor run` makes it again")
    for name in result.lost_studies:
        typer.echo(f"lost: study {name}; run its file into {target}")
    if result.is_complete:
        print_next(f"afor status {target}")
        return
    names = [*result.without_list, *result.lost_studies, *result.studies, "STUDY"]
    print_next(f"afor run {names[0]} --store {target}")
    raise typer.Exit(code=1)


def export(
    results: ExportedResults,
    output: Annotated[
        Path | None,
        option(
            "A .csv, .json or .parquet file.",
            "--output",
            "-o",
            show_default="CSV to standard output",
        ),
    ] = None,
    study: Annotated[
        list[str] | None,
        option(
            "With a file of an earlier version: a preset or TOML file of its runs, from which "
            "the columns it lacks are filled in; repeatable."
        ),
    ] = None,
    root: Roots = None,
    cache_dir: CacheDir = None,
    to: OldTarget = None,
    store: OldStore = None,
    as_json: Annotated[
        bool, option("Print the runs as JSON; with --output, the file and their number.", "--json")
    ] = False,
) -> None:
    """Write one row per run as CSV, JSON or Parquet.

    A row holds the run's data set, backbone, optimizer, fold, draw, status, metrics, times and key.
    A file of an earlier version gets the columns it lacks (roles, classes, accuracy of the majority
    class) from its studies and their data; its rows must be theirs by key.

    Example:
        afor export demo --output runs.csv
    """
    target = output or to
    file_format = format_of(target) if target else "csv"
    if target is not None:
        check_output(target)
    path = find_store(results, store)
    if is_store(path):
        if study:
            raise ConfigError(f"{path} is a store and knows its studies: leave --study out.")
        with open_store(path) as opened:
            rows = export_rows(opened)
    else:
        rows = read_rows(path)
        if study:
            rows = complete_rows(rows, _plans(study, root, cache_dir), path)
    if target is None:
        typer.echo(to_json(rows) if as_json else to_csv(rows), nl=False)
        return
    write_export(rows, target, file_format)
    if as_json:
        print_json({"file": str(target), "format": file_format, "runs": len(rows)}, indent=None)
        return
    typer.echo(f"{target}: {len(rows)} runs")
    print_next(f"afor store verify {results}" if is_store(path) else f"afor judge {target}")


def _plans(names: list[str], roots: list[str] | None, cache_dir: Path | None) -> list[StudyPlan]:
    """Plan studies with their data; a folder counts for every study that has its data set."""
    studies = [load_study(name) for name in names]
    datasets = [{entry.name for entry in study.datasets} for study in studies]
    plans = []
    for study, names_of_study in zip(studies, datasets, strict=True):
        of_others = set[str]().union(*datasets) - names_of_study
        used = [pair for pair in roots or () if pair.partition("=")[0] not in of_others]
        rooted = with_roots(study, used)
        plans.append(make_plan(rooted, open_sources(rooted, cache_dir), rates_for(rooted, "")))
    return plans
