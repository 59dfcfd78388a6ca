"""The examples in docstrings of the benchmark run as printed."""

import doctest
import importlib

import pytest

MODULES = [
    "afor.bench.data.signal",
    "afor.bench.data.loading",
    "afor.bench.data.montage",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_give_what_they_say(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
