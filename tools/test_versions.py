"""Run the optimizer's tests and a small study under several versions of torch and Python.

    python tools/test_versions.py --torch 2.8.0 --torch 2.15.0 --environments /some/folder
    python tools/test_versions.py --torch 2.15.0 --python python3.12 --python python3.13 ...

One wheel of this package is built for each interpreter, in an environment without torch, and
installed beside every version of torch: the native kernel does not depend on torch's version. For
each pair an environment is made in the folder given, which must be outside the repository, and
deleted once its result is recorded (`--keep` leaves it, and a later call uses it again).
`--prepare` makes the environments and runs nothing, and `--prepared` uses them as they are, so that
what needs the network can be done before what needs the processor. An environment with CUDA takes
about 6 GB; what pip downloads stays in its cache, or not with `PIP_NO_CACHE_DIR=1`. Results are
added to `results.json` in that folder; the table of all of them is printed, and written with
`--markdown FILE`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TEST_PACKAGES = (
    "pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "filelock", "psutil",
    "setuptools>=77",  # a test builds a wheel
    "edfio",
)  # fmt: skip
WHEEL_SOURCES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "src")
VERSIONS = """
import platform, torch
from afor.native.binding import unavailable_reason
print(platform.python_version(), torch.__version__, "none" if unavailable_reason() else "native")
"""
NOT_THE_OPTIMIZER = {  # files in tests/ about documents, studies and the command line
    "test_cli_page.py", "test_design_page.py",
    "test_documentation_studies.py", "test_everywhere.py", "test_imports.py", "test_packaging.py",
    "test_partners.py", "test_sentences.py", "test_studies.py", "test_versions.py",
}  # fmt: skip


class Result(NamedTuple):
    """What came of one pair of versions."""

    python: str
    torch: str
    kernel: str  # "native" or "none"
    passed: int
    failed: int
    skipped: int
    smoke: str  # "passed" or "failed"


def test_files() -> list[str]:
    """Return the tests of the optimizer, relative to the repository."""
    folders = [ROOT / "tests", *(ROOT / "tests" / name for name in ("native", "triton", "sharded"))]
    files = sorted(file for folder in folders for file in folder.glob("test_*.py"))
    return [str(file.relative_to(ROOT)) for file in files if file.name not in NOT_THE_OPTIMIZER]


def requirements(torch: str) -> list[str]:
    """Return what an environment needs beside this package, with that version of torch.

    This package is installed without its dependencies: what it declares about torch must not keep
    other versions from being tried.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [f"torch=={torch}", *project["optional-dependencies"]["bench"], *TEST_PACKAGES]


def build_wheel(python: str, folder: Path) -> Path:
    """Build a wheel of this package from a copy of its sources, and return its path."""
    with tempfile.TemporaryDirectory() as copy:
        for name in WHEEL_SOURCES:
            source, target = ROOT / name, Path(copy) / name
            if source.is_dir():
                built = shutil.ignore_patterns("*.so", "*.pyd", "*.egg-info", "__pycache__")
                shutil.copytree(source, target, ignore=built)
            else:
                shutil.copy(source, target)
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [python, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps",
             "--wheel-dir", str(folder), copy],
            check=True,
        )  # fmt: skip
    return max(folder.glob("afor-*.whl"), key=lambda path: path.stat().st_mtime)


def interpreter_of(home: Path) -> Path:
    """Return the interpreter of an environment."""
    return home / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def make_environment(home: Path, python: str, torch: str, wheel: Path, limits: list[str]) -> None:
    """Make an environment with that torch and the wheel, or bring it up to date.

    `limits` are options of pip that name constraints.
    """
    interpreter = interpreter_of(home)
    if not interpreter.exists():
        subprocess.run([python, "-m", "venv", str(home)], check=True)
    pip = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-compile", *limits, *requirements(torch)], check=True)
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(wheel)], check=True)


def count(report: Path) -> Counter[str]:
    """Count the outcomes in a JUnit report; without a report, one failure."""
    if not report.exists():
        return Counter(failed=1)
    outcomes: Counter[str] = Counter()
    for case in ET.parse(report).getroot().iter("testcase"):
        tags = {child.tag for child in case}
        if tags & {"failure", "error"}:
            outcomes["failed"] += 1
        elif "skipped" in tags:
            outcomes["skipped"] += 1
        else:
            outcomes["passed"] += 1
    return outcomes


def examine(interpreter: Path, work: Path, jobs: int, files: list[str]) -> Result:
    """Run tests and the study `smoke` in an environment; their output goes to a folder."""
    work.mkdir(parents=True, exist_ok=True)
    for name in ("report.xml", "smoke.db"):
        (work / name).unlink(missing_ok=True)
    report = work / "report.xml"
    # The installed wheel is tested; a PYTHONPATH could put the sources before it.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    python, torch, kernel = subprocess.check_output(
        [str(interpreter), "-c", VERSIONS], cwd=work, env=variables, text=True
    ).split()
    tests = [
        str(interpreter), "-m", "pytest", "-p", "no:cacheprovider", "-n", str(jobs), "-rs",
        "--durations=20", "--timeout", "1800", f"--junitxml={report}", *files,
    ]  # fmt: skip
    smoke = [str(interpreter.parent / "afor"), "run", "smoke", "--store", "smoke.db"]

    def exit_code(command: list[str], folder: Path, log: str) -> int:
        with (work / log).open("w") as output:
            return subprocess.run(
                command, cwd=folder, env=variables, stdout=output, stderr=subprocess.STDOUT,
                check=False,
            ).returncode  # fmt: skip

    tests_failed = exit_code(tests, ROOT, "tests.txt")
    smoke_failed = exit_code(smoke, work, "smoke.txt")
    outcomes = count(report)
    if tests_failed and not outcomes["failed"]:
        outcomes["failed"] = 1  # e.g. a worker that crashed
    counts = (outcomes[name] for name in ("passed", "failed", "skipped"))
    return Result(python, torch, kernel, *counts, "failed" if smoke_failed else "passed")


def table(results: list[Result]) -> str:
    """Return the results as a Markdown table, oldest torch first."""
    head = ("torch", "Python", "kernel", "passed", "failed", "skipped", "`afor run smoke`")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for r in sorted(results, key=lambda r: (_parts(r.torch), _parts(r.python))):
        cells = (r.torch, r.python, r.kernel, r.passed, r.failed, r.skipped, r.smoke)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split("+")[0].split(".")]


def main() -> None:
    """Examine all pairs; end with status 1 when anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--torch", action="append", required=True, help="a version of torch")
    parser.add_argument("--python", action="append", help="an interpreter (default: this one)")
    parser.add_argument("--environments", type=Path, required=True, help="folder for environments")
    parser.add_argument("--jobs", type=int, default=2, help="tests run at once")
    parser.add_argument("--keep", action="store_true", help="do not delete environments")
    parser.add_argument("--constraint", type=Path, help="file of versions for all other packages")
    parser.add_argument("--tests", action="append", help="tests to run (default: the optimizer's)")
    stage = parser.add_mutually_exclusive_group()
    stage.add_argument("--prepare", action="store_true", help="make environments, run nothing")
    stage.add_argument("--prepared", action="store_true", help="build and install nothing")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    options = parser.parse_args()
    folder = options.environments.resolve()
    if folder.is_relative_to(ROOT):
        parser.error(f"--environments {folder} is inside the repository; give a folder outside it")
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "results.json"
    results = [Result(*row) for row in json.loads(record.read_text())] if record.exists() else []
    failed = False
    for python in options.python or [sys.executable]:
        ask = "import sys; print('%d.%d' % sys.version_info[:2])"
        version = subprocess.check_output([python, "-c", ask], text=True).strip()
        wheel = None if options.prepared else build_wheel(python, folder / f"wheel-py{version}")
        for torch in options.torch:
            name = f"-{options.constraint.stem}" if options.constraint else ""
            home = folder / f"py{version}-torch{torch}{name}"
            limits = ["--constraint", str(options.constraint.resolve())] if name else []
            if wheel is not None:
                make_environment(home, python, torch, wheel, limits)
            interpreter = interpreter_of(home)
            if not interpreter.exists():
                parser.error(f"there is no environment {home}; make it with --prepare")
            if options.prepare:
                print(f"{home.name} is ready", flush=True)
                continue
            result = examine(
                interpreter,
                folder / f"{home.name}-results",
                options.jobs,
                options.tests or test_files(),
            )
            print(table([result]).splitlines()[-1], flush=True)
            failed |= bool(result.failed) or result.smoke == "failed"
            pair = (result.python, result.torch)
            results = [r for r in results if (r.python, r.torch) != pair] + [result]
            record.write_text(json.dumps(results, indent=1))
            if not options.keep:
                shutil.rmtree(home)
    if options.prepare:
        return
    print(table(results))
    if options.markdown:
        options.markdown.write_text(table(results) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
