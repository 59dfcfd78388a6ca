"""Find the line of a key in a TOML file; `tomllib` does not report it."""

import re
from collections.abc import Sequence

Path = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]")
_ASSIGNMENT = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*[\w"'-]+)*)\s*=""")
_QUOTES = ('"""', "'''")


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    r"""Return the line, counted from 1, of a key or of the nearest table around it.

    >>> line_of("seed = 0\n[[sets]]\nname = 'a'\n[[sets]]\nnane = 'b'", ("sets", 1, "nane"))
    5
    """
    lines = _lines(text)
    for length in range(len(path), 0, -1):
        if (line := lines.get(tuple(path[:length]))) is not None:
            return line
    return None


def _lines(text: str) -> dict[Path, int]:
    """Map every key and table to the line of its first occurrence."""
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    open_quote = ""
    depth = 0  # inside an array or inline table that spans several lines
    for number, line in enumerate(text.splitlines(), start=1):
        if open_quote:
            open_quote = "" if open_quote in line else open_quote
            continue
        if depth == 0 and (header := _HEADER.match(line)):
            names = _names(header.group(2))
            table = _resolve(names, counts)
            if header.group(1) == "[[":
                whole = (*_resolve(names[:-1], counts), names[-1])
                counts[whole] = counts.get(whole, -1) + 1
                table = (*whole, counts[whole])
                lines.setdefault(whole, number)
            lines.setdefault(table, number)
            continue
        if depth == 0 and (assignment := _ASSIGNMENT.match(line)):
            names = _names(assignment.group(1))
            for length in range(1, len(names) + 1):
                lines.setdefault((*table, *names[:length]), number)
        open_quote = next((q for q in _QUOTES if line.count(q) % 2), "")
        bare = re.sub(r'"[^"]*"|\'[^\']*\'|#.*', "", line)
        depth = max(depth + sum(map(bare.count, "[{")) - sum(map(bare.count, "]}")), 0)
    return lines


def _names(dotted: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _resolve(names: Path, counts: dict[Path, int]) -> Path:
    """Insert the index of the latest entry after each name of an array of tables."""
    path: Path = ()
    for name in names:
        path = (*path, name)
        if path in counts:
            path = (*path, counts[path])
    return path
