"""The names that `afor.bench` exports: they exist, load late, and are documented with examples."""

import ast
import doctest
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from afor import bench

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "benchmark.md"


def test_every_exported_name_is_listed_for_type_checkers_and_for_dir():
    tree = ast.parse(Path(bench.__file__).read_text("utf-8"))
    typed = {
        f"{alias.name} {node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("afor.bench.")
        for alias in node.names
    }
    assert typed == {f"{name} afor.bench.{module}" for name, module in bench._MODULES.items()}
    assert sorted(bench.__all__) == sorted(bench._MODULES)
    assert set(bench.__all__) <= set(dir(bench))


def test_a_name_that_is_not_exported_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'load_studdy'"):
        bench.load_studdy  # noqa: B018


def test_importing_the_facade_loads_no_dependency():
    heavy = ("torch", "numpy", "pydantic")
    code = f"import sys, afor.bench; print([m for m in {heavy} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.usefixtures("train_here")
@pytest.mark.parametrize("name", bench.__all__)
def test_an_exported_name_has_an_example_that_runs(name):
    exported = getattr(bench, name)
    assert "Example:" in inspect.getdoc(exported)
    module = importlib.import_module(exported.__module__)
    (test,) = doctest.DocTestFinder(recurse=False).find(exported, name, module, vars(module))
    assert doctest.DocTestRunner().run(test).failed == 0
    assert test.examples


def test_the_reference_page_documents_every_exported_name_and_no_other():
    documented = [
        line.split("afor.bench.")[1].strip()
        for line in PAGE.read_text("utf-8").splitlines()
        if line.startswith((".. autofunction:: afor.bench.", ".. autoclass:: afor.bench."))
    ]
    exported = [name for name in documented if "." not in name]
    assert sorted(exported) == sorted(bench.__all__)
