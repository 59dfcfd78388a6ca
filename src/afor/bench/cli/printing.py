"""How commands print and write a table: in which format, and how wide."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from afor.bench.cli.terminal import print_json
from afor.bench.common.errors import ConfigError
from afor.bench.common.files import check_output, write_output
from afor.bench.common.suggest import did_you_mean
from afor.bench.common.text import without_nan
from afor.bench.report.figures.style import FIGURE_SUFFIXES, save_figure
from afor.bench.report.tables import formats

SUFFIXES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json", ".txt": "terminal"}
WRITERS: Mapping[str, Callable[[formats.Table], str]] = {
    "markdown": formats.to_markdown,
    "latex": formats.to_latex,
    "csv": formats.to_csv,
    "json": formats.to_json,
}
PLAIN_WIDTH = 160  # columns of text that goes to a file or a pipe


def render(table: formats.Table, form: str, *, to_file: bool = False) -> str:
    """Return a table as text: for the terminal, or as one of `WRITERS` writes it.

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
        for paragraph in table.lead:
            for line in paragraph:
                console.print(Text(formats.printable(line)))
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


def check_outputs(targets: Iterable[Path], accepted: Sequence[str] = FIGURE_SUFFIXES) -> None:
    """Check the files that a command is to write, before the work; raise ConfigError."""
    for target in targets:
        if target.suffix.lower() not in accepted:
            raise ConfigError(f"{target}: this command writes {', '.join(accepted)} files.")
        check_output(target)


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Where an analysis goes: to files, each as its suffix says, and to standard output.

    Args:
        output: A file to write: the values (.json), the figure (.pdf .svg .png) or the table (.md
            .tex .csv .txt), where there is one; repeatable.
    """

    output: list[Path] | None = None
    as_json: bool = False

    def check(self, *, figure: bool = True, table: bool = False) -> None:
        """Check the names of the files before the work; say which kinds there are."""
        kinds = (".json", *(SUFFIXES if table else ()), *(FIGURE_SUFFIXES if figure else ()))
        check_outputs(self.output or (), tuple(dict.fromkeys(kinds)))

    def show(
        self,
        text: str,
        values: Any,
        draw: Callable[[], Any] | None = None,
        table: formats.Table | None = None,
    ) -> None:
        """Write the files that were asked for and print the text, or the values as JSON."""
        drawn: Any = None
        for target in self.output or ():
            form = by_suffix(target)
            if target.suffix.lower() in FIGURE_SUFFIXES and draw is not None:
                drawn = drawn or draw()
                save_figure(drawn, target)
            elif form == "json" or table is None:
                write_output(target, f"{json.dumps(without_nan(values), ensure_ascii=False)}\n")
            else:
                write_output(target, render(table, form, to_file=True))
        if self.as_json:
            print_json(without_nan(values))
        else:
            typer.echo(text.rstrip("\n"))
        for target in self.output or ():
            typer.echo(str(target), err=True)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[..., None]]:
    """Show a bar on standard error if it is a terminal; call what it gives to move it.

    The arguments are the items done, the items in all, and perhaps the name of the present one.
    """
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[item]}"),
        console=console,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(title, total=None, item="")
        yield lambda done, total, item="": bar.update(task, completed=done, total=total, item=item)


def choose(value: str, accepted: tuple[str, ...], what: str) -> str:
    """Return a value that is accepted; raise ConfigError with the nearest one if it is not.

    `what` names the option or argument in the message.
    """
    if value in accepted:
        return value
    hint = did_you_mean(value, accepted)
    raise ConfigError(f"{what} cannot be {value!r}.{hint} Accepted: {', '.join(accepted)}.")
