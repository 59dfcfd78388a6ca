"""The command ``afor demo``: the whole protocol on synthetic subjects, in minutes."""

from pathlib import Path
from typing import Annotated

import typer

from afor.bench.cli.study import (
    CachePath,
    Jobs,
    StorePath,
    cores,
    describe_summary,
    make_engine,
    stopped_by_signals,
    train_study,
)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("demo")(demo)


def demo(
    jobs: Jobs = 0,
    store: StorePath = None,
    cache_dir: CachePath = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget an earlier demo first.")] = False,
) -> None:
    """Compare seven optimizers on synthetic subjects: real folds, draws and early stopping."""
    from afor.bench.config import load_study, study_text
    from afor.bench.places import store_path

    chosen, (toml, _) = load_study("demo"), study_text("demo")
    path = store_path(chosen.name, store)
    if fresh:
        _remove(path)
    workers = jobs or cores()
    typer.echo(
        f"{chosen.description}\nSafe to stop with Ctrl-C; run again, it goes on.\n", err=True
    )
    with stopped_by_signals("demo", path):
        engine = make_engine("local", "", workers, chosen.threads)
        summary = train_study(chosen, toml, path, engine, workers, cache_dir=cache_dir)
    _print_table(path)
    typer.echo(describe_summary(chosen.name, path, summary))
    typer.echo("\nNext: afor status demo, afor study paper", err=True)
    if summary.failed:
        raise typer.Exit(code=1)


def _remove(path: Path) -> None:
    """Move an earlier store out of the way; nothing that was trained is deleted."""
    from afor.bench.store_lock import locked

    if path.exists():
        with locked(path):
            path.replace(path.with_name(f"{path.stem}.old.db"))


def _print_table(path: Path) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from afor.bench.fold_table import fold_table
    from afor.bench.store import open_store

    with open_store(path) as store:
        results = store.results("demo")
    rows, folds, majority = fold_table(results)
    table = Table(
        title=f"Test accuracy and weighted F1 in %, mean ± SD over {folds} folds",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 3, 0, 0),
    )
    table.add_column("optimizer", no_wrap=True)
    for heading in ("accuracy", "weighted F1", "runs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.optimizer, row.accuracy, row.weighted_f1, str(row.runs))
    table.add_section()
    table.add_row("majority class", f"{100 * majority:.2f}", "", "")
    Console(highlight=False).print(table)
