"""How commands print a table: which form, and on what width."""

import difflib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from afor.bench.common.errors import ConfigError

if TYPE_CHECKING:
    from afor.bench.report.tables.formats import Table

FORMATS = ("terminal", "markdown", "latex", "csv", "json")
SUFFIXES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json", ".txt": "terminal"}
PLAIN_WIDTH = 160  # of text that goes into a file or a pipe


def render(built: "Table", form: str, *, standalone: bool, to_file: bool = False) -> str:
    """Return a table as text in one of `FORMATS`."""
    from afor.bench.report.tables import formats

    if form == "markdown":
        return formats.to_markdown(built)
    if form == "latex":
        return formats.to_latex(built, standalone=standalone)
    if form == "csv":
        return formats.to_csv(built)
    if form == "json":
        return formats.to_json(built)
    from rich.console import Console
    from rich.text import Text

    on_terminal = sys.stdout.isatty() and not to_file
    columns = os.environ.get("COLUMNS", "")
    width = None if on_terminal else int(columns) if columns.isdigit() else PLAIN_WIDTH
    console = Console(force_terminal=on_terminal, width=width, highlight=False)
    # Bold and underline are no colours, so NO_COLOR keeps them; a dumb terminal does not.
    styled = on_terminal and console.color_system is not None
    with console.capture() as capture:
        console.print(Text(formats.printable(built.title), "bold"))
        console.print()
        for grid in formats.to_terminal(built, width=console.width, styled=styled):
            console.print(grid)
            console.print()
        if not styled and any(c.best or c.second for r in built.rows for c in r.cells):
            console.print("¹ best, ² second", style="dim")
        for note in built.notes:
            console.print(Text(formats.printable(note)), style="dim")
    return "\n".join(line.rstrip() for line in capture.get().split("\n"))


def by_suffix(output: Path | None) -> str:
    """Return the form that a file of this name has."""
    return SUFFIXES.get(output.suffix.lower(), "terminal") if output else "terminal"


def choose(given: str, accepted: tuple[str, ...], what: str) -> str:
    """Return `given` if it is accepted; else say what is, with the nearest first."""
    if given in accepted:
        return given
    near = difflib.get_close_matches(given, accepted, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"{what} cannot be {given!r}.{hint} Accepted: {', '.join(accepted)}.")
