"""Run the optimizer's tests and a small study under several versions of torch and Python.

    python tools/test_versions.py --torch 2.6.0 --torch 2.15.0 --environments /some/folder
    python tools/test_versions.py --torch 2.15.0 --python python3.12 --python python3.13

For each pair an environment is made in the folder given, which must be outside the repository, and
deleted once its result is recorded (`--keep` leaves it, and a later call uses it again). The
packages take several GB. Results are added to `results.json` in that folder; the table of all of
them is printed, and written with `--markdown FILE`.
"""

import argparse
import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TEST_PACKAGES = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "filelock", "psutil")
KERNEL = "from afor.native.binding import unavailable_reason as r; print(r() or 'native')"
NOT_THE_OPTIMIZER = {  # files in tests/ about documents, studies and the command line
    "test_cli_page.py", "test_documentation.py", "test_documentation_studies.py", "test_imports.py",
    "test_everywhere.py", "test_packaging.py", "test_partners.py", "test_studies.py",
    "test_versions.py",
}  # fmt: skip


class Result(NamedTuple):
    """What came of one pair of versions."""

    python: str
    torch: str
    kernel: str
    passed: int
    failed: int
    skipped: int
    smoke: str  # "passed" or "failed"


def test_files() -> list[str]:
    """Return the tests of the optimizer, relative to the repository."""
    folders = [ROOT / "tests", *(ROOT / "tests" / name for name in ("native", "triton", "sharded"))]
    files = sorted(file for folder in folders for file in folder.glob("test_*.py"))
    chosen = [file for file in files if file.name not in NOT_THE_OPTIMIZER]
    return [str(file.relative_to(ROOT)) for file in chosen]


def make_environment(python: str, torch: str, folder: Path) -> Path:
    """Return the interpreter of an environment with that torch and this package."""
    version = subprocess.check_output(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True
    ).strip()
    home = folder / f"py{version}-torch{torch}"
    interpreter = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not interpreter.exists():
        subprocess.run([python, "-m", "venv", str(home)], check=True)
    pip = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    package = f"{ROOT}[bench]"
    subprocess.run([*pip, "--no-cache-dir", f"torch=={torch}", package, *TEST_PACKAGES], check=True)
    return interpreter


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


def examine(interpreter: Path, torch: str, work: Path, jobs: int) -> Result:
    """Run the tests and the study `smoke` in an environment."""
    work.mkdir(parents=True, exist_ok=True)
    report = work / "report.xml"
    report.unlink(missing_ok=True)
    command = [str(interpreter), "-m", "pytest", "-p", "no:cacheprovider", "-n", str(jobs)]
    with (work / "tests.txt").open("w") as log:
        subprocess.run(
            [*command, "--timeout", "1800", f"--junitxml={report}", *test_files()],
            cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    with (work / "smoke.txt").open("w") as log:
        smoke = subprocess.run(
            [str(interpreter), "-c", "from afor.bench.cli.app import main; main()", "run", "smoke",
             "--store", str(work / "smoke.db")],
            cwd=work, stdout=log, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    ask = [str(interpreter), "-c"]
    python = subprocess.check_output(
        [*ask, "import platform; print(platform.python_version())"], text=True
    )
    kernel = subprocess.run(
        [*ask, KERNEL], cwd=work, text=True, capture_output=True, check=False
    ).stdout
    outcomes = count(report)
    return Result(
        python.strip(),
        torch,
        "native" if kernel.strip() == "native" else "none",
        outcomes["passed"],
        outcomes["failed"],
        outcomes["skipped"],
        "failed" if smoke.returncode else "passed",
    )


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
    parser.add_argument("--markdown", type=Path, help="file for the table")
    options = parser.parse_args()
    folder = options.environments.resolve()
    if folder.is_relative_to(ROOT):
        parser.error(f"--environments {folder} is inside the repository; give a folder outside it")
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "results.json"
    known = [Result(*row) for row in json.loads(record.read_text())] if record.exists() else []
    failed = False
    for torch in options.torch:
        for python in options.python or [sys.executable]:
            interpreter = make_environment(python, torch, folder)
            home = interpreter.parents[1]
            result = examine(interpreter, torch, folder / f"{home.name}-results", options.jobs)
            failed |= bool(result.failed) or result.smoke == "failed"
            pair = (result.python, result.torch)
            known = [r for r in known if (r.python, r.torch) != pair] + [result]
            record.write_text(json.dumps(known, indent=1))
            if not options.keep:
                shutil.rmtree(home)
    print(table(known))
    if options.markdown:
        options.markdown.write_text(table(known) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
