"""How commands print and write a table: in which format, and how wide."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from afor.bench.common.errors import ConfigError
from afor.bench.common.files import check_output, write_output
from afor.bench.common.suggest import did_you_mean
from afor.bench.report.figures.style import FORMATS as FIGURE_FORMATS
from afor.bench.report.figures.style import save_figure
from afor.bench.report.tables import formats

FORMATS = ("terminal", "markdown", "latex", "csv", "json")
SUFFIXES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json", ".txt": "terminal"}
WRITERS: Mapping[str, Callable[[formats.Table], str]] = {
    "markdown": formats.to_markdown,
    "latex": formats.to_latex,
    "csv": formats.to_csv,
    "json": formats.to_json,
}
PLAIN_WIDTH = 160  # columns of text that goes to a file or a pipe


def render(table: formats.Table, form: str, *, to_file: bool = False) -> str:
    """Return a table as text in one of `FORMATS`.

    Text for a file has no colours even if standard output is a terminal.
    """
    if form in WRITERS:
        return WRITERS[form](table)
    on_terminal = sys.stdout.isatty() and not to_file
    columns = os.environ.get("COLUMNS", "")
    width = None if on_terminal else int(columns) if columns.isdigit() else PLAIN_WIDTH
    console = Console(force_terminal=on_terminal, width=width, highlight=False)
    # NO_COLOR keeps bold and underline, which are no colours; a dumb terminal has neither.
    styled = on_terminal and console.color_system is not None
    with console.capture() as capture:
        console.print(Text(formats.printable(table.title), "bold"))
        console.print()
        for sentence in table.lead:
            console.print(Text(formats.printable(sentence)))
            console.print()
        for grid in formats.to_terminal(table, width=console.width, styled=styled):
            console.print(grid)
            console.print()
        if not styled and any(c.best or c.second for r in table.rows for c in r.cells):
            console.print("¹ best, ² second", style="dim")
        for note in table.notes:
            console.print(Text(formats.printable(note)), style="dim")
    return "\n".join(line.rstrip() for line in capture.get().split("\n"))


def by_suffix(output: Path | None) -> str:
    """Return the format for a file name; terminal for unknown suffixes and without a file."""
    return SUFFIXES.get(output.suffix.lower(), "terminal") if output else "terminal"


def check_figures(targets: Iterable[Path | None], others: tuple[str, ...] = ()) -> None:
    """Check the files that a command is to write, before the work; raise ConfigError.

    `others` are suffixes that the command writes besides those of figures; None stands for no file.
    """
    for target in targets:
        if target is None:
            continue
        if target.suffix.lower() not in (*others, *FIGURE_FORMATS):
            accepted = ", ".join((*others, *FIGURE_FORMATS))
            raise ConfigError(f"{target}: this command writes {accepted} files.")
        check_output(target)


def figures_in(targets: Sequence[Path]) -> list[Path]:
    """Return the files that are figures by their suffixes."""
    return [target for target in targets if target.suffix.lower() in FIGURE_FORMATS]


def show_result(
    table: formats.Table,
    values: Mapping[str, Any],
    draw: Callable[[], Any],
    targets: Sequence[Path],
) -> None:
    """Print a result, and write it to files, each as its suffix says.

    It is printed as text unless a file holds it.
    `draw` is called if a file wants the figure.
    """
    if len(figures_in(targets)) == len(targets):
        typer.echo(render(table, "terminal").rstrip("\n"))
    drawn: Any = None
    for target in targets:
        if target.suffix.lower() in FIGURE_FORMATS:
            drawn = drawn or draw()
            save_figure(drawn, target)
        elif by_suffix(target) == "json":
            write_output(target, f"{json.dumps(values, indent=1, ensure_ascii=False)}\n")
        else:
            write_output(target, render(table, by_suffix(target), to_file=True))
        typer.echo(str(target), err=True)


def choose(value: str, accepted: tuple[str, ...], what: str) -> str:
    """Return a value that is accepted; raise ConfigError with the nearest one if it is not.

    `what` names the option or argument in the message.
    """
    if value in accepted:
        return value
    hint = did_you_mean(value, accepted)
    raise ConfigError(f"{what} cannot be {value!r}.{hint} Accepted: {', '.join(accepted)}.")
