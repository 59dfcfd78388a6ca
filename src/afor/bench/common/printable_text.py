"""Text of others that is shown to people."""


def printable(text: str) -> str:
    r"""Return text on one line without control characters, which could drive a terminal.

    >>> printable("a\x1b[31mb\n")
    'a�[31mb�'
    """
    return "".join(c if c.isprintable() else "�" for c in text)
