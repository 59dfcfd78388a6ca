"""Suggest the nearest accepted spelling of a misspelled name."""

import difflib
from collections.abc import Iterable


def nearest(word: str, accepted: Iterable[str]) -> str:
    """Return the accepted name that is most similar to a word, or an empty text.

    >>> nearest("eegNte", ["eegnet", "hslt"]), nearest("x", ["eegnet"])
    ('eegnet', '')
    """
    spellings = {name.lower(): name for name in accepted}
    close = difflib.get_close_matches(word.lower(), spellings, n=1, cutoff=0.5)
    return spellings[close[0]] if close else ""


def did_you_mean(word: str, accepted: Iterable[str], quote: str = "'", prefix: str = "") -> str:
    """Return a sentence with the nearest accepted name, after a space, or an empty text.

    `prefix` is printed before the name, inside the quotes.

    >>> did_you_mean("shfit", ["shift", "seed"])
    " Did you mean 'shift'?"
    """
    suggestion = nearest(word, accepted)
    return f" Did you mean {quote}{prefix}{suggestion}{quote}?" if suggestion else ""
