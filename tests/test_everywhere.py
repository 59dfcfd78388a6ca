"""The script behind `make test-everywhere`, without the minutes that it takes."""

import importlib.util
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def load(name, monkeypatch):
    spec = importlib.util.spec_from_file_location(name, TESTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def everywhere(monkeypatch):
    return load("everywhere", monkeypatch)


def test_every_file_that_is_marked_exists(everywhere, monkeypatch):
    marked = load("conftest", monkeypatch).MACHINE
    assert [name for name in marked if not (TESTS / name).exists()] == []
    quick = [
        everywhere.ROOT / name for name in (*everywhere.QUICK_NUMBERS, *everywhere.QUICK_FILES)
    ]
    assert [path for path in quick if not path.exists()] == []
    assert [
        path for path in quick if not any(path.is_relative_to(TESTS / name) for name in marked)
    ] == []


def test_a_quick_run_is_a_pair(everywhere):
    assert sum(bool(environment.quick) for environment in everywhere.ENVIRONMENTS) == 2


def test_compilers_and_nothing_else_are_hidden(everywhere, tmp_path, monkeypatch):
    programs = tmp_path / "programs"
    programs.mkdir()
    hidden = ["cc", "gcc", "g++-13", "x86_64-linux-gnu-gcc-13", "clang", "clang++-18", "c++"]
    kept = ["python", "git", "gcov", "as", "ld", "ccache-stats", "rsync"]
    for name in [*hidden, *kept]:
        (programs / name).touch()
    monkeypatch.setenv("PATH", str(programs))
    links = {
        path.name for path in everywhere.programs_without_compilers(tmp_path / "bin").iterdir()
    }
    assert links >= set(kept)
    assert not links & set(hidden)


def test_the_table_counts_and_names_what_failed(everywhere, tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="tests.a" name="x"/>'
        '<testcase classname="tests.a" name="y"><failure/></testcase>'
        '<testcase classname="tests.a" name="z"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    outcome = everywhere.read_report(report, 2.0)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (1, 1, 1)
    lines = everywhere.table({"here": outcome}).splitlines()
    assert lines[1].split() == ["here", "1", "1", "1", "2"]
    assert lines[2].strip() == "tests.a::y"
    assert everywhere.read_report(tmp_path / "none.xml", 1.0).failed == 1


def test_a_read_only_tree_can_be_read_and_run(everywhere, tmp_path):
    script = tmp_path / "tree" / "run"
    script.parent.mkdir()
    script.touch()
    script.chmod(0o755)
    everywhere.make_read_only(script.parent)
    assert [path.stat().st_mode & 0o777 for path in (script, script.parent)] == [0o555, 0o555]
    script.parent.chmod(0o755)


def test_a_way_to_start_a_command_is_tried_first(everywhere):
    assert everywhere.works(["env"])
    assert not everywhere.works(["false"])
    assert not everywhere.works(["no-such-program"])
