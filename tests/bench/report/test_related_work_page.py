"""The table and the numbers of the page on related work come from its runs."""

import re
from pathlib import Path

from afor.bench.report.registry import build_table
from afor.bench.report.tables.formats import to_markdown
from afor.bench.stats.results import Results

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_table_is_that_of_the_runs_and_the_page_quotes_it():
    folder = DOCS / "results" / "related-work"
    results = Results.open(
        [folder / "runs.csv"],
        baseline="adamw",
        metrics=["accuracy", "nll"],
        margins={"accuracy": 0.5, "nll": 3.0},
    )
    text = (folder / "comparisons.md").read_text("utf-8")
    assert to_markdown(build_table("comparisons", results)).strip() == text.strip()
    page = (DOCS / "explanation" / "related-work.md").read_text("utf-8")
    (summary,) = re.findall(r"In words,(.*?)\n\nOne rate", page, re.DOTALL)
    # The year, 0.999 and the exponent are no results.
    quoted = re.findall(r"\d+\.\d\d(?!\d)", summary)
    assert len(quoted) >= 12
    assert all(number in text for number in quoted)
