"""The examples in the statistics' docstrings and pages run, and print what they say."""

import contextlib
import doctest
import importlib
import io
import re
from pathlib import Path

import pytest

MODULES = [
    "afor.bench.stats.groups",
    "afor.bench.stats.labels",
    "afor.bench.stats.design.seed_noise",
    "afor.bench.stats.inference.decisions",
    "afor.bench.stats.results",
    "afor.bench.stats.design.power",
    "afor.bench.stats.inference.paired_tests",
    "afor.bench.stats.paper_numbers",
    "afor.bench.stats.pooling",
    "afor.bench.stats.sensitivity",
    "afor.bench.report.tables.formats",
    "afor.bench.report.verdicts",
]
DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = ["explanation/statistics.md", "howto/tables-and-figures.md"]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_give_what_they_say(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES)
def test_the_python_blocks_of_a_page_run_and_print_their_comments(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.M | re.S)
    assert blocks
    names = {}
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, page, "exec"), names)
        promised = [
            line.partition("# ")[2]
            for line in block.splitlines()
            if re.match(r"(# |print.*# )", line)
        ]
        assert printed.getvalue().splitlines() == promised


def test_every_picture_of_the_pages_is_there_and_small():
    for page in PAGES:
        for name in re.findall(r"\]\((\.\./images/.*?)\)", (DOCS / page).read_text("utf-8")):
            assert (DOCS / page).parent.joinpath(name).stat().st_size < 200_000
