"""The command line: the table of commands, the options before them, and errors as sentences."""

import sys
from typing import Annotated

import typer

from afor import __version__
from afor.bench.cli.lazy import lazy_group
from afor.bench.cli.terminal import guard_terminals
from afor.bench.common.errors import AforError

# Each command with its module below `cli` and the first line of its help.
COMMANDS = {
    "demo": ("studies.run", "Compare seven optimizers on ten synthetic subjects, in minutes."),
    "study": ("studies.study", "List the presets, or print a study as TOML to edit."),
    "plan": ("studies.study", "Show the runs of a study, which are done, and the time left."),
    "run": ("studies.run", "Train the missing runs of a study; safe to stop at any time."),
    "status": ("studies.status", "Show the progress of a study, also while it runs."),
    "judge": ("results.tables", "Compare all methods with a baseline: verdicts, tests, ranks."),
    "table": ("results.tables", "Print one table for the terminal, a README, LaTeX or a program."),
    "figure": ("results.tables", "Draw one figure, one column (88 mm) wide, by the first metric."),
    "report": ("results.tables", "Write an offline HTML report: tables, figures, downloads."),
    "power": ("results.planning", "Tell what a study can decide, and how many subjects it takes."),
    "export": ("results.stores", "Write one row per run as CSV, JSON or Parquet."),
    "store": ("app", "Look into a store: runs, failures, repetition, merging, repair."),
    "data": ("catalog.data", "Find, fetch, check and import data sets."),
    "models": ("catalog.models", "List the backbones with their sizes on every data set."),
    "optimizers": ("catalog.optimizers", "List the optimizers and their settings."),
    "doctor": ("catalog.doctor", "Check this machine: what works, and how to fix the rest."),
    "analyse": ("app", "Measure AFOR: cost, loss landscape, beta2 step by step."),
}
PANELS = {
    "Run": ("demo", "study", "plan", "run", "status"),
    "Results": ("judge", "table", "figure", "report", "power", "export", "store"),
    "Catalog": ("data", "models", "optimizers", "doctor"),
    "Analyses": ("analyse",),
}
STORE_COMMANDS = {
    "show": ("results.stores", "Show one run in full, and the command that repeats it."),
    "failures": ("results.stores", "List the runs that failed or diverged, with the reasons."),
    "verify": ("results.stores", "Train a sample of runs again and compare every bit."),
    "merge": ("results.stores", "Merge the stores of several machines or shards into one."),
    "repair": ("results.stores", "Copy the intact runs of a damaged store to a new store."),
}
ANALYSES = {
    "cost": ("analyses", "Measure the operations, memory and time of a step."),
    "landscape": ("analyses", "Draw the loss around a trained solution."),
    "memory": ("analyses", "Show beta2 and z-scores of one run step by step."),
    "shift": ("analyses", "Measure how AFOR responds to a change of subject."),
    "matched": ("analyses", "Write a study of AdamW at AFOR's mean beta2."),
    "headroom": ("analyses", "Measure what any constant beta2 could gain over 0.999."),
}

store = lazy_group(STORE_COMMANDS, help=COMMANDS["store"][1])
analyse = lazy_group(ANALYSES, help=COMMANDS["analyse"][1])
app = lazy_group(
    COMMANDS,
    PANELS,
    name="afor",
    help="Cross-subject EEG benchmark for optimizers: strict splits, paired runs, honest tables.",
    epilog="Example: afor demo",
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"afor {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Hold the options before the command; `main` looks for --debug itself."""


def main() -> None:
    """Run the command line; print an error as one sentence and exit with its code."""
    guard_terminals()
    try:
        app()
    except AforError as error:
        if "--debug" in sys.argv:
            raise
        typer.echo(f"afor: {error}", err=True)
        raise SystemExit(error.exit_code) from None
    except OSError as error:  # from the file system: a full disk, a folder without permission
        if "--debug" in sys.argv:
            raise
        path = str(error.filename2 or error.filename or "a file")[:200]
        reason = error.strerror or error
        typer.echo(f"afor: {path} cannot be read or written: {reason}.", err=True)
        raise SystemExit(1) from None
