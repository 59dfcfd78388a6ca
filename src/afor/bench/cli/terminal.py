"""Output to the terminal, without control characters from stores, studies and file names."""

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import typer

# Bold and colours, which tables use, are allowed. Sequences that move the cursor or set the title
# of the window are not.
_FORBIDDEN = re.compile(
    r"\x1b\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def harmless(text: str) -> str:
    r"""Return text whose control characters are replaced, except for line breaks and colours.

    >>> harmless("a\x1b]0;title\x07b\n")
    'a�]0;title�b\n'
    """
    return _FORBIDDEN.sub(lambda match: match[0] if len(match[0]) > 1 else "�", text)


class GuardedTerminal:
    """A stream that passes only `harmless` text to a terminal; `raw` is for live progress bars."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write text without its control characters."""
        return self.raw.write(harmless(text) if isinstance(text, str) else text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def guard_terminals() -> None:
    """Guard stdout and stderr if they are terminals; files and pipes get every byte."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty():
            setattr(sys, name, GuardedTerminal(stream))


def print_json(content: Any, **options: Any) -> None:
    """Print JSON to standard output; the options are those of `json.dumps`."""
    typer.echo(json.dumps(content, **{"indent": 1, **options}))


def print_facts(title: str, facts: Iterable[tuple[str, str]]) -> None:
    """Print a title, and below it texts with labels; a label that repeats is printed once.

    Texts are wrapped to the width of a terminal. In a pipe or a file each of them is one line.
    """
    typer.echo(title)
    listed = list(facts)
    width = max((len(label) for label, _ in listed), default=0)
    columns = shutil.get_terminal_size((10_000, 24)).columns
    before = ""
    for label, text in listed:
        first = f"  {'' if label == before else label:<{width}}  "
        before = label
        typer.echo(
            textwrap.fill(
                text,
                columns,
                initial_indent=first,
                subsequent_indent=" " * len(first),
                break_long_words=False,
                break_on_hyphens=False,
            )
        )


def print_next(command: str) -> None:
    """Print the command that usually follows to standard error."""
    typer.echo(f"\nNext: {command}", err=True)


def run_command(results: str, path: Path, study: str) -> str:
    """Return the `afor run` command that continues a study of a store.

    `results` is what the user named; if it is the store file itself, `--store` names it again.
    """
    is_store_file = Path(results) == path
    return f"afor run {study} --store {path}" if is_store_file else f"afor run {results}"
