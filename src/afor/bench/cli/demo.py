"""The command ``afor demo``: the whole protocol on synthetic subjects, in minutes."""

from pathlib import Path
from typing import Annotated

import typer

from afor.bench.cli.report import report
from afor.bench.cli.run import (
    describe_summary,
    make_engine,
    stopped_in_run,
    train_study,
)
from afor.bench.cli.study import CachePath, Jobs, StorePath, cores
from afor.bench.cli.tables import table


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
    from afor.bench.store.locations import store_path
    from afor.bench.study.schema import load_study, study_text

    chosen, (toml, _) = load_study("demo"), study_text("demo")
    path = store_path(chosen.name, store)
    if fresh:
        _remove(path)
    workers = jobs or cores()
    typer.echo(
        f"{chosen.description}\nSafe to stop with Ctrl-C; run again, it goes on.\n", err=True
    )
    with stopped_in_run("afor demo", path):
        engine = make_engine("local", "", workers, chosen.threads)
        summary = train_study(chosen, toml, path, engine, workers, cache_dir=cache_dir)
    typer.echo(describe_summary(chosen.name, path, summary) + "\n")
    table("main", [path])
    typer.echo("\n" + _beta2_lines(path) + "\n")
    report([path], output=path.with_suffix(".html"), title="The demo: optimizers across subjects")
    if summary.failed:
        raise typer.Exit(code=1)


def _beta2_lines(path: Path) -> str:
    """Say where AFOR held beta2 in each layer group, first and last epoch, mean over its runs."""
    from afor.bench.store.files import load_records

    traces = [record.traces for run, record in load_records([path]) if run.optimizer == "afor"]
    lines = ["AFOR's beta2 by layer group, mean of the first and of the last epoch (AdamW: 0.999)"]
    for group in traces[0] if traces else ():
        values = [trace[group]["beta2"] for trace in traces if trace[group]["beta2"]]
        if not values:
            continue
        first = sum(v[0] for v in values) / len(values)
        last = sum(v[-1] for v in values) / len(values)
        lines.append(f"  {group:24s} {first:.4f} -> {last:.4f}")
    return "\n".join(lines)


def _remove(path: Path) -> None:
    """Move an earlier store out of the way, with its log and its spool; nothing is deleted."""
    from afor.bench.store.lock import locked

    with locked(path):
        number = 1
        while (old := path.with_name(f"{path.stem}.old-{number}.db")).exists():
            number += 1
        for suffix in ("", "-wal", "-shm", ".spool", ".splits"):
            part = path.with_name(f"{path.name}{suffix}")
            if part.exists():
                part.replace(old.with_name(f"{old.name}{suffix}"))
