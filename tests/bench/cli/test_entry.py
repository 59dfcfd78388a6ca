"""The entry point also answers where the packages of the benchmark are not installed."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from afor import __version__
from afor.bench.cli.entry import BENCH_PACKAGES

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def run_without(package, *words):
    script = (
        f"import sys; sys.modules[{package!r}] = None\n"  # its import now fails
        f"sys.argv = {['afor', *words]!r}\n"
        "from afor.bench.cli.entry import main\n"
        "main()\n"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("package", "words"), [("typer", []), ("typer", ["--help"]), ("pydantic", ["status", "x"])]
)
def test_a_missing_package_is_one_sentence_with_the_command_that_installs_it(package, words):
    done = run_without(package, *words)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"afor: the package {package}, which the benchmark needs, is not installed. "
        "Install it with: pip install 'afor[bench]', or pip install '.[bench]' in a checkout.\n"
    )


def test_the_version_needs_no_package_of_the_benchmark():
    done = run_without("typer", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"afor {__version__}\n", "")


def test_debug_shows_the_traceback_of_a_missing_package():
    assert "Traceback" in run_without("pydantic", "--debug", "status", "x").stderr


def test_a_missing_module_of_our_own_is_no_missing_package():
    done = run_without("afor.bench.cli.lazy", "--help")
    assert "Traceback" in done.stderr
    assert "pip install" not in done.stderr


def test_the_packages_are_those_of_the_extra_and_the_command_is_this_entry_point():
    project = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]
    declared = {
        re.split(r"[<>=~!;\[ ]", name)[0] for name in project["optional-dependencies"]["bench"]
    }
    imported = {"sklearn" if name == "scikit-learn" else name for name in declared}
    assert imported == BENCH_PACKAGES
    assert project["scripts"] == {"afor": "afor.bench.cli.entry:main"}
