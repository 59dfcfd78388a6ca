"""The commands ``afor merge | repair | export``: stores into one, and into other formats."""

from pathlib import Path
from typing import Annotated

import typer

from afor.bench.cli.study import StorePath, StudyName
from afor.bench.common.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("merge")(merge)
    app.command("repair")(repair)
    app.command("export")(export)


def merge(
    target: Annotated[Path, typer.Argument(help="The store that takes all; made if missing.")],
    parts: Annotated[list[Path], typer.Argument(help="The stores to take from.")],
) -> None:
    """Bring the stores of several machines or shards together; the parts stay as they are."""
    from afor.bench.execution.runner import take_leftovers
    from afor.bench.store.database import open_or_create, open_store
    from afor.bench.store.lock import locked

    if target.resolve() in [part.resolve() for part in parts]:
        raise ConfigError(f"{target} is given as the target and as a part; name another target.")
    for part in parts:
        open_store(part).close()  # all of them, before a target is made
    with locked(target), open_or_create(target) as store:
        take_leftovers(store)
        for part in parts:
            with open_store(part) as other:
                new, known, differing = store.merge(other)
            note = f"; {differing} of these with OTHER NUMBERS, the first kept" if differing else ""
            typer.echo(f"{part}: {new} new runs, {known} already here{note}")
        total = len(store.statuses())
    typer.echo(f"{target}: {total} runs")
    typer.echo(f"\nNext: afor status {target}", err=True)


def repair(
    damaged: Annotated[Path, typer.Argument(help="The store that is damaged; it is only read.")],
    target: Annotated[Path, typer.Option("--to", help="The new store.")],
) -> None:
    """Write the sound runs of a damaged store to a new one and say what is lost."""
    from afor.bench.store.lock import locked
    from afor.bench.store.repair import repair as extract

    with locked(target):
        result = extract(damaged, target)
    typer.echo(f"{target}: {result.runs} runs, {len(result.studies)} studies")
    for key in result.lost_runs:
        typer.echo(f"lost: run {key}")
    for name in result.without_list:
        typer.echo(f"lost: the list of runs of study {name}; `afor run` makes it anew")
    for name in result.lost_studies:
        typer.echo(f"lost: study {name}; run its file into {target}")
    if result.is_complete:
        typer.echo(f"\nNext: afor status {target}", err=True)
        return
    names = [*result.without_list, *result.lost_studies, *result.studies, "STUDY"]
    typer.echo(f"\nNext: afor run {names[0]} --store {target}", err=True)
    raise typer.Exit(code=1)


def export(
    name: StudyName,
    target: Annotated[
        Path | None, typer.Option("--to", help="A .csv, .json or .parquet file; none: CSV here.")
    ] = None,
    store: StorePath = None,
) -> None:
    """Write one row per run: place, status, metrics, timings, key."""
    from afor.bench.common.output_files import check_output
    from afor.bench.store.database import open_store
    from afor.bench.store.files import export_rows, kind_of, to_csv, write_export
    from afor.bench.store.locations import find_store

    kind = kind_of(target) if target else "csv"
    if target is not None:
        check_output(target)
    with open_store(find_store(name, store)) as opened:
        if target is None:
            typer.echo(to_csv(export_rows(opened)), nl=False)
            return
        count = write_export(opened, target, kind)
    typer.echo(f"{target}: {count} runs")
    typer.echo(f"\nNext: afor verify {name}", err=True)
