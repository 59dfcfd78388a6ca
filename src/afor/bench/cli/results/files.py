"""The commands ``afor store merge``, ``store repair`` and ``export``: copies of stores."""

from contextlib import ExitStack
from pathlib import Path

import typer

from afor.bench.cli.results.reading import find_results
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.common.errors import ConfigError
from afor.bench.common.files import check_output
from afor.bench.common.text import counted
from afor.bench.execution.runner import take_leftovers
from afor.bench.store.database import check_mergeable, open_or_create, open_store
from afor.bench.store.files import (
    check_suffix,
    export_rows,
    is_store,
    read_rows,
    to_csv,
    to_json,
    write_export,
)
from afor.bench.store.locations import find_store
from afor.bench.store.lock import locked
from afor.bench.store.repair import repair as copy_intact_runs


def merge(target: Path, parts: list[str]) -> None:
    """Merge the stores of several machines or shards into one.

    The parts stay as they are. If two stores hold the same run, the first is kept.

    Args:
        target: The store file that receives all runs; created if missing.
        parts: The results to add: study names, TOML files or store files.

    Example:
        afor store merge results/paper.db results/paper.part-*.db
    """
    paths = [find_store(part) for part in parts]
    if target.resolve() in [path.resolve() for path in paths]:
        raise ConfigError(f"{target} is given as the target and as a part; name another target.")
    with ExitStack() as opened:  # check all of them before the target is created or changed
        known = [target] if target.exists() else []
        check_mergeable([opened.enter_context(open_store(path)) for path in (*known, *paths)])
    with locked(target), open_or_create(target) as store:
        take_leftovers(store)
        for path in paths:
            with open_store(path) as part:
                new, present, differing = store.merge(part)
            note = f"; {differing} of these with OTHER NUMBERS, the first kept" if differing else ""
            typer.echo(f"{path}: {counted(new, 'new run')}, {present} already here{note}")
        total = len(store.statuses())
    typer.echo(f"{target}: {counted(total, 'run')}")
    print_next(f"afor status {target}")


def repair(damaged: str, *, output: Path) -> None:
    """Copy the intact runs of a damaged store to a new store.

    What is lost is listed; the exit code is 1 if anything is.

    Args:
        damaged: The damaged results, which are only read: a study's name, its TOML file or a store
            file.
        output: The store file to create.

    Example:
        afor store repair results/demo.db --output results/new.db
    """
    with locked(output):
        result = copy_intact_runs(find_store(damaged), output)
    typer.echo(f"{output}: {counted(result.runs, 'run')}, {counted(len(result.studies), 'study')}")
    for key in result.lost_runs:
        typer.echo(f"lost: run {key}")
    for name in result.lost_studies:
        typer.echo(f"lost: study {name}; run its file into {output}")
    if not (result.lost_runs or result.lost_studies):
        print_next(f"afor status {output}")
        return
    names = [*result.lost_studies, *result.studies, "STUDY"]
    print_next(f"afor run {names[0]} --store {output}")
    raise typer.Exit(code=1)


def export(results: str, *, output: Path | None = None, as_json: bool = False) -> None:
    """Write one row per run as CSV, JSON or Parquet.

    A row holds the run's data set, backbone, method, fold, repetition, status, metrics, times,
    protocol and key.

    Args:
        results: The results: a study's name, its TOML file, a store file, or a file of `afor
            export`.
        output: A .csv, .json or .parquet file. [default: CSV to standard output]

    Example:
        afor export demo --output runs.csv
    """
    if output is not None:
        check_suffix(output)
        check_output(output)
    path = find_results(results)
    if is_store(path):
        with open_store(path) as opened:
            rows = export_rows(opened)
    else:
        rows = read_rows(path)
    if output is None:
        typer.echo(to_json(rows) if as_json else to_csv(rows), nl=False)
        return
    write_export(rows, output)
    if as_json:
        print_json(
            {"file": str(output), "format": output.suffix[1:], "runs": len(rows)}, indent=None
        )
        return
    typer.echo(f"{output}: {counted(len(rows), 'run')}")
    print_next(f"afor store verify {results}" if is_store(path) else f"afor judge {output}")
