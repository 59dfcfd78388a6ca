"""Prepare text and values for output: CSV cells, JSON, messages, the terminal."""

import math
from typing import Any

STARTERS = ("=", "+", "-", "@", "\t", "\n", "＝", "＋", "－", "＠")
MARK = "'"  # spreadsheets show what follows as text


def escape_cell(value: object) -> object:
    """Return a value for a CSV cell; text that looks like a formula gets the prefix `MARK`.

    >>> escape_cell("=1+1"), escape_cell(-0.5), escape_cell("-0.5"), escape_cell("adam")
    ("'=1+1", -0.5, '-0.5', 'adam')
    """
    if not isinstance(value, str):
        return value
    # Python's csv does not quote a lone \r, which other programs read as the end of the row.
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    is_formula = text.lstrip(MARK).startswith(STARTERS) and not _is_number(text)
    return MARK + text if is_formula else text


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "run"), counted(2, "run"), counted(3, "study")
    ('1 run', '2 runs', '3 studies')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


def unescape_cell(text: str) -> str:
    """Return the original text of a cell that `escape_cell` wrote.

    >>> unescape_cell("'=1+1"), unescape_cell("it's")
    ('=1+1', "it's")
    """
    is_marked = text.startswith(MARK) and text.lstrip(MARK).startswith(STARTERS)
    return text[1:] if is_marked else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and text == text.strip()


def shorten(text: object, length: int = 200) -> str:
    """Return text for a message, cut after some characters.

    >>> shorten("abcdef", 3)
    'abc...'
    """
    whole = str(text)
    return whole if len(whole) <= length else f"{whole[:length]}..."


def without_nan(value: Any) -> Any:
    """Replace every float that is not finite by None, in nested dicts, lists and tuples.

    >>> without_nan({"loss": (1.0, float("nan"))})
    {'loss': [1.0, None]}
    """
    if isinstance(value, dict):
        return {key: without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def printable(text: str) -> str:
    r"""Replace control characters, which could control a terminal, and line breaks.

    >>> printable("a\x1b[31mb\n")
    'a�[31mb�'
    """
    return "".join(c if c.isprintable() else "�" for c in text)
