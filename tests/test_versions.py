"""The script behind `make test-versions`, without the gigabytes that it installs."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

import afor

ROOT = Path(__file__).parents[1]
COMPATIBILITY = ROOT / "docs" / "reference" / "compatibility.md"


@pytest.fixture(scope="module")
def versions(load_script):
    return load_script("tools/test_versions.py")


def test_the_tests_of_the_optimizer_are_chosen_by_what_they_are_not(versions):
    files = versions.test_files()
    assert {"tests/test_optimizer.py", "tests/native/test_kernel.py"} <= set(files)
    assert not any(Path(file).name in versions.NOT_THE_OPTIMIZER for file in files)
    names = {path.name for path in (ROOT / "tests").glob("test_*.py")}
    assert names >= versions.NOT_THE_OPTIMIZER


def test_an_environment_gets_the_torch_that_is_tried_and_what_the_benchmark_needs(versions):
    needed = versions.requirements("2.9.0")
    assert [name for name in needed if name.startswith("torch")] == ["torch==2.9.0"]
    names = {re.split(r"[=<>~]", need)[0] for need in needed}
    assert {"mne", "pydantic", "pytest"} <= names


def test_outcomes_are_counted(versions, tmp_path):
    report = tmp_path / "report.xml"
    assert versions.count(report) == {"failed": 1}
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase name="a"/><testcase name="b"><skipped/></testcase>'
        '<testcase name="c"><failure/></testcase><testcase name="d"><error/></testcase>'
        "</testsuite></testsuites>"
    )
    assert versions.count(report) == {"passed": 1, "skipped": 1, "failed": 2}


def test_the_table_is_ordered_by_number(versions):
    results = [
        versions.Result("3.13.0", "2.10.0+cu128", "native", 5, 0, 1, "passed"),
        versions.Result("3.11.7", "2.10.0+cu128", "native", 5, 0, 1, "passed"),
        versions.Result("3.11.7", "2.9.0+cpu", "none", 4, 1, 1, "failed"),
    ]
    _, _, *rows = versions.table(results).splitlines()
    assert rows[0] == "| 2.9.0+cpu | 3.11.7 | none | 4 | 1 | 1 | failed |"
    assert [row.split(" | ")[1] for row in rows] == ["3.11.7", "3.11.7", "3.13.0"]


def test_a_folder_inside_the_repository_is_refused(versions, monkeypatch, capsys):
    inside = ["--torch", "2.13.0", "--environments", str(ROOT / "environments")]
    monkeypatch.setattr(sys, "argv", ["test_versions.py", *inside])
    with pytest.raises(SystemExit):
        versions.main()
    assert "is inside the repository" in capsys.readouterr().err


def test_an_environment_that_was_not_prepared_is_named(versions, monkeypatch, capsys, tmp_path):
    wanted = ["--torch", "2.13.0", "--prepared", "--environments", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["test_versions.py", *wanted])
    with pytest.raises(SystemExit):
        versions.main()
    assert "torch2.13.0; make it with --prepare" in capsys.readouterr().err


def test_prepared_environments_are_tried_without_building(versions, monkeypatch, capsys, tmp_path):
    made = []

    def make(home, *_):
        interpreter = versions.interpreter_of(home)
        interpreter.parent.mkdir(parents=True)
        interpreter.touch()
        made.append(home.name)

    result = versions.Result("3.11.7", "2.13.0", "native", 5, 0, 1, "passed")
    monkeypatch.setattr(versions, "build_wheel", lambda *_: tmp_path / "afor.whl")
    monkeypatch.setattr(versions, "make_environment", make)
    monkeypatch.setattr(versions, "examine", lambda *_: result)
    call = ["test_versions.py", "--torch", "2.13.0", "--environments", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [*call, "--prepare"])
    versions.main()
    assert capsys.readouterr().out == f"{made[0]} is ready\n"
    monkeypatch.setattr(sys, "argv", [*call, "--prepared"])
    with pytest.raises(SystemExit) as end:
        versions.main()
    assert not end.value.code
    assert len(made) == 1
    assert "| 2.13.0 | 3.11.7 | native | 5 | 0 | 1 | passed |" in capsys.readouterr().out


# ---------------------------------------------------------------------- what the package declares


def proven() -> list[tuple[str, str]]:
    """Return the pairs of torch and Python in the table of the page, without patch numbers."""
    rows = re.findall(
        r"^\| (\d+\.\d+)\S* \| (\d+\.\d+)\S* \| native \| \d+ \| 0 \| \d+ \| passed \|$",
        COMPATIBILITY.read_text(), re.MULTILINE,
    )  # fmt: skip
    assert rows
    return rows


def by_number(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def test_the_oldest_torch_and_the_pythons_declared_are_proven_by_the_table():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = min((torch for torch, _ in proven()), key=by_number)
    assert project["dependencies"] == [f"torch>={oldest}"]
    pythons = sorted({python for _, python in proven()}, key=by_number)
    prefix = "Programming Language :: Python :: 3."
    declared = [name for name in project["classifiers"] if name.startswith(prefix)]
    assert declared == [f"Programming Language :: Python :: {python}" for python in pythons]
    assert project["requires-python"] == f">={pythons[0]}"
    assert f"torch {oldest}" in (ROOT / "README.md").read_text()


def test_every_row_of_the_table_is_without_a_failure():
    text = COMPATIBILITY.read_text()
    assert len(re.findall(r"^\| 2\.", text, re.MULTILINE)) == len(proven())


def test_the_workflow_tries_the_oldest_and_the_newest_torch_and_every_python():
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    pairs = proven()
    for torch in (f([t for t, _ in pairs], key=by_number) for f in (min, max)):
        assert f'"{torch}.0"' in workflow, torch
    for python in {python for _, python in pairs}:
        assert f'"{python}"' in workflow, python


def test_the_kernel_does_not_depend_on_torch(versions):
    kernels = list(Path(afor.__file__).parent.glob("native/_kernel*.so"))
    if not kernels:
        pytest.skip("the native kernel is not built as a shared library here")
    for kernel in kernels:
        content = kernel.read_bytes()
        assert not re.search(rb"lib(torch|c10)[\w-]*\.so", content)
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    assert not any("torch" in name for name in build["requires"])
