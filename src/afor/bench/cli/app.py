"""The command line: parse, call one function, print. Commands live in modules of this package."""

import sys

import typer

from afor.bench.cli import (
    data,
    demo,
    doctor,
    files,
    models,
    optimizers,
    report,
    run,
    runs,
    study,
    tables,
)
from afor.bench.cli.analyses import cost, facts, landscape, matched, memory, shift, theory
from afor.bench.cli.terminal import guard_terminals
from afor.bench.common.errors import AforError

app = typer.Typer(
    name="afor",
    help="Cross-subject EEG benchmark for optimizers: strict splits, paired runs, honest tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root(debug: bool = typer.Option(False, "--debug", help="Show tracebacks of errors.")) -> None:
    """Hold the options that stand before every command."""


for _commands in (
    demo,
    doctor,
    study,
    run,
    runs,
    files,
    tables,
    cost,
    theory,
    facts,
    report,
    matched,
    memory,
    shift,
    data,
    models,
    optimizers,
    landscape,
):
    _commands.register(app)


def main() -> None:
    """Run the command line; an AforError becomes one sentence and its exit code."""
    guard_terminals()
    try:
        app()
    except AforError as error:
        if "--debug" in sys.argv:
            raise
        typer.echo(f"afor: {error}", err=True)
        raise SystemExit(error.exit_code) from None
    except OSError as error:  # the file system refuses: a full disk, a folder without permission
        if "--debug" in sys.argv:
            raise
        path = error.filename2 or error.filename
        place = f"{str(path)[:200]}: " if path is not None else ""
        reason = error.strerror or error
        typer.echo(f"afor: {place}the system refuses to read or write ({reason}).", err=True)
        raise SystemExit(1) from None
