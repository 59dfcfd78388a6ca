"""The examples in the docstrings run and print what they say."""

import doctest
import importlib
import inspect

import pytest

PUBLIC = [
    "afor",
    "afor.checkpoint",
    "afor.control",
    "afor.update",
    "afor.native.binding",
    "afor.monitor",
    "afor.optimizer",
    "afor.reference",
    "afor.released",
]
WITH_EXAMPLES = ["afor", "afor.optimizer", "afor.reference", "afor.native.binding"]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_examples_of_a_module_run(name):
    result = doctest.testmod(importlib.import_module(name), raise_on_error=False)
    assert result.failed == 0
    if name in WITH_EXAMPLES:
        assert result.attempted > 0


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring(name):
    module = importlib.import_module(name)
    assert module.__doc__
    for attribute, value in vars(module).items():
        is_defined_here = getattr(value, "__module__", None) == name
        if (
            is_defined_here
            and not attribute.startswith("_")
            and (inspect.isclass(value) or callable(value))
        ):
            assert inspect.getdoc(value), f"{name}.{attribute} has no docstring"


def test_every_argument_of_the_optimizer_is_described():
    from afor import AFOR

    described = inspect.getdoc(AFOR) or ""  # Python 3.13 strips the indentation, older ones do not
    for argument in inspect.signature(AFOR).parameters:
        assert f"\n    {argument}: " in described, argument
