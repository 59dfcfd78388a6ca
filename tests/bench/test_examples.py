"""The examples in docstrings and in the manual's data pages run as printed."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

MODULES = ["afor.bench.preprocess", "afor.bench.windows", "afor.bench.datasets.montage"]
PAGES = ["datasets.md", "synthetic.md"]
DOCS = Path(__file__).resolve().parents[2] / "docs" / "explanation"


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_give_what_they_say(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES)
def test_the_python_blocks_of_a_page_run(page):
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.M | re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})
