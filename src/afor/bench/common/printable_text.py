"""Make text from files safe to print."""


def printable(text: str) -> str:
    r"""Replace control characters, which could control a terminal, and line breaks.

    >>> printable("a\x1b[31mb\n")
    'a�[31mb�'
    """
    return "".join(c if c.isprintable() else "�" for c in text)
