"""Sentences and paragraphs of README and the documentation are short enough to be read once."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORDS = 40  # of a sentence
PARAGRAPH = 120
GENERATED = ("docs/reference/cli.md", "docs/results/*/*", "docs/explanation/speed-table*.md")
PAGES = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "_build" not in path.parts and not any(path.match(pattern) for pattern in GENERATED)
]
FENCE = re.compile(r"^( *)(`{3,}|:{3,}|\$\$).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4,}.*\n)+")
ITEM = re.compile(r"^(?:[-*]|\d+\.) +")


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs and items of a page without code, equations, tables and quotations."""
    text = INDENTED.sub("\n", FENCE.sub("\n", text))
    text = re.sub(r"`[^`]+`", "Code", text)
    text = re.sub(r"\$[^$]+\$", "X", text)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    found: list[list[str]] = [[]]
    for line in map(str.strip, text.splitlines()):
        is_other = not line or line.startswith(("|", "#", ">", "%"))
        if is_other or ITEM.match(line):
            found.append([])
        if not is_other:
            found[-1].append(ITEM.sub("", line, count=1))
    return [" ".join(lines) for lines in found if lines]


def sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph: each ends before a capital, a digit or markup."""
    paragraph = re.sub(r"\b(Eq|Sec|Fig|Alg|e\.g|i\.e|vs)\.", r"\1", paragraph)
    return re.split(r"(?<=[.!?:])[*)”\"]*\s+(?=[^a-z\s])", paragraph)


def count(text: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in text.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_sentence_and_no_paragraph_is_too_long(page):
    found = paragraphs(page.read_text(encoding="utf-8"))
    long = [f"{count(p)} words in a paragraph: {p}" for p in found if count(p) > PARAGRAPH]
    long += [f"{count(s)} words: {s}" for p in found for s in sentences(p) if count(s) > WORDS]
    assert long == []


def test_what_is_too_long_is_found_and_what_is_no_prose_is_not():
    words = "Word " * 41
    page = f"# {words}\n\n| {words} |\n\n```sh\n{words}\n```\n\n- {words}.\n- Short. {words}\n"
    assert [count(s) for p in paragraphs(page) for s in sentences(p)] == [41, 1, 41]
