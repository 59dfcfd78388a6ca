"""Run the part of the suite that depends on the machine as if on other machines; print a table.

    python tests/everywhere.py                     # `make test-everywhere`
    python tests/everywhere.py --quick             # two environments, the most telling tests
    python tests/everywhere.py --only "1 thread" "shuffled"
    python tests/everywhere.py --reports FOLDER    # an hour in parts

Each environment runs the files whose outcome it could change; they are listed below.
With `--reports` the report and the output of pytest stay in a folder, an environment whose report
lies there is not run again, and the table has all that lie there. Exit code 1 when a test failed
anywhere.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Root becomes a user without rights in a namespace, who can still read a Python below /root; where
# namespaces are not allowed, the user nobody.
UNSHARE = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
NOBODY = 65534
COMPILERS = re.compile(
    r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|cpp|tcc|icx|icpx|nvcc)(-[\d.]+)?"
)
NO_VECTORS = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "AFOR_EEGNET_ISA": "default",
}
# Files and folders of tests by what could change their outcome, relative to this folder.
# Results of arithmetic: the kernels that ATen, oneDNN and MKL choose, the number of threads.
NUMBERS = (
    # The optimizer: every implementation against the equations.
    "native/test_kernel.py", "test_contract_compile.py", "test_contract_differentiable.py",
    "test_contract_dtypes.py", "test_contract_scaler.py", "test_contract_tensors.py",
    "test_contract_training.py", "test_control.py", "test_operators.py", "test_optimizer.py",
    "test_properties.py", "test_reference.py", "test_released.py", "test_update.py",
    # Networks, optimizers and training of the benchmark.
    "bench/models/authors", "bench/models/layers", "bench/models/test_acrnn.py",
    "bench/models/test_eegnet.py", "bench/models/test_every_backbone.py",
    "bench/models/test_hslt.py", "bench/models/test_native_eegnet.py",
    "bench/models/test_nsal_dgat.py", "bench/models/test_regions.py", "bench/optimizers",
    "bench/training/test_bundles.py", "bench/training/test_controller_trace.py",
    "bench/training/test_loop.py", "bench/training/test_precision.py", "bench/test_numerics.py",
    "bench/common/test_seeding.py",
    # Signals and analyses.
    "bench/data/datasets/test_synthetic.py", "bench/data/test_signal.py",
    "bench/analyses/adaptation", "bench/analyses/landscape", "bench/analyses/test_replay.py",
    "bench/analyses/test_step_log.py", "test_theory.py",
    # Results that are printed in the documentation.
    "test_doctests.py", "bench/test_documentation.py",
)  # fmt: skip
# What is said and skipped without a compiler and a kernel.
COMPILER = (
    "native", "test_packaging.py", "bench/cli/catalog/test_doctor.py",
)  # fmt: skip
# What is written and read: the user and the folders that can be written.
FILES = (
    "native/test_binding.py", "test_checkpoint.py", "test_contract_compile.py",
    "test_packaging.py", "bench/cli", "bench/common", "bench/data/datasets",
    "bench/data/inspection", "bench/data/prepared", "bench/data/test_loading.py",
    "bench/execution/test_verify.py", "bench/report", "bench/store", "bench/study",
    "bench/test_examples.py", "bench/test_export.py", "test_documentation_studies.py",
)  # fmt: skip
# What is printed and parsed: the locale and the time zone.
TEXT = (
    "bench/cli", "bench/common", "bench/data/datasets", "bench/data/inspection", "bench/report",
    "bench/store", "bench/study", "bench/test_examples.py", "bench/test_export.py",
    "test_cli_page.py", "test_doctests.py",
)  # fmt: skip
# What `--quick` runs: where numbers are compared, and where files and folders are needed.
QUICK_NUMBERS = ("bench/test_numerics.py", "test_reference.py")
QUICK_FILES = (
    "bench/cli/catalog/test_doctor.py", "bench/store/test_locations.py",
    "bench/data/prepared/test_cache.py",
)  # fmt: skip


@dataclass(frozen=True)
class Environment:
    """One kind of machine: variables, options of pytest, and what is taken away."""

    name: str
    tests: tuple[str, ...]  # those that could notice
    variables: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    ordinary_user: bool = False  # not root, sources read-only, no HOME
    compiler: bool = True  # False: none on PATH, and no built kernel
    quick: tuple[str, ...] = ()  # files that belong to `--quick`; none: not part of it


EVERY = NUMBERS + COMPILER + FILES + TEXT
ENVIRONMENTS = (
    Environment("default", EVERY),
    Environment("ATen without vectors", NUMBERS, {"ATEN_CPU_CAPABILITY": "default"}),
    Environment("oneDNN at SSE4.1", NUMBERS, {"ONEDNN_MAX_CPU_ISA": "SSE41"}),
    Environment("ATen, oneDNN, MKL without AVX", NUMBERS, NO_VECTORS, quick=QUICK_NUMBERS),
    Environment("1 thread", NUMBERS, {"OMP_NUM_THREADS": "1"}),
    Environment("4 threads", NUMBERS, {"OMP_NUM_THREADS": "4"}),
    Environment("shuffled", EVERY, options=("--shuffle", "1")),
    Environment("ordinary user, read-only, no HOME", FILES, ordinary_user=True, quick=QUICK_FILES),
    Environment("no compiler, no kernel", NUMBERS + COMPILER, compiler=False),
    Environment("LC_ALL=C", TEXT, {"LC_ALL": "C", "LANG": "C"}),
    Environment("TZ=Asia/Kathmandu", TEXT, {"TZ": "Asia/Kathmandu"}),
)


@dataclass(frozen=True)
class Outcome:
    """What pytest counted."""

    passed: int
    failed: int
    skipped: int
    seconds: float
    failures: tuple[str, ...]


def main() -> int:
    """Run every environment asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[e.name for e in ENVIRONMENTS])
    parser.add_argument("--quick", action="store_true", help="the pair that belongs to the CI")
    parser.add_argument("-n", default="auto", help="processes of pytest (default: one per core)")
    parser.add_argument("--reports", type=Path, metavar="FOLDER", help="keep reports, and use them")
    arguments = parser.parse_args()
    if arguments.quick and arguments.reports:
        parser.error("--reports keeps whole runs; leave out --quick or --reports")
    selected = [
        environment
        for environment in ENVIRONMENTS
        if (not arguments.only or environment.name in arguments.only)
        and (environment.quick or not arguments.quick)
    ]
    options = ["-n", arguments.n, "--dist", "worksteal"] if arguments.n != "0" else []
    with tempfile.TemporaryDirectory(prefix="afor-reports-") as unkept:
        folder = arguments.reports or Path(unkept)
        folder.mkdir(parents=True, exist_ok=True)
        for environment in selected:
            if not report_of(environment, folder).exists():
                print(f"{environment.name} ...", file=sys.stderr, flush=True)
                files = environment.quick if arguments.quick else environment.tests
                run(environment, files, options, folder)
        outcomes = {
            environment.name: read_report(report)
            for environment in ENVIRONMENTS
            if (report := report_of(environment, folder)).exists() or environment in selected
        }
    print(table(outcomes))
    return int(any(outcome.failed or not outcome.passed for outcome in outcomes.values()))


def report_of(environment: Environment, folder: Path) -> Path:
    """Return the place of an environment's JUnit report; what pytest printed lies beside it."""
    return folder / (re.sub(r"\W+", "-", environment.name) + ".xml")


def run(
    environment: Environment, files: tuple[str, ...], options: list[str], reports: Path
) -> None:
    """Run files of tests in one environment and leave the report in a folder."""
    with tempfile.TemporaryDirectory(prefix="afor-everywhere-") as name:
        folder = Path(name)
        tree, temporary, report = ROOT, folder / "tmp", folder / "tmp" / "report.xml"
        temporary.mkdir()
        folder.chmod(0o755)
        variables = {**os.environ, **environment.variables, "TMPDIR": str(temporary)}
        prefix: list[str] = []
        identity: dict[str, object] = {}
        if environment.ordinary_user or not environment.compiler:
            tree = copy_sources(folder / "sources", kernel=environment.compiler)
            variables["PYTHONPATH"] = str(tree / "src")
            variables["PYTHONDONTWRITEBYTECODE"] = "1"
        if not environment.compiler:
            variables["PATH"] = str(programs_without_compilers(folder / "bin"))
            for key in ("CC", "CXX"):
                variables.pop(key, None)
        if environment.ordinary_user:
            for key in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "AFOR_CACHE", "MPLCONFIGDIR"):
                variables.pop(key, None)
            make_read_only(tree)
            if os.geteuid() == 0 and works(UNSHARE):
                prefix = UNSHARE
            elif os.geteuid() == 0:
                identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
                os.chown(temporary, NOBODY, NOBODY)
        command = [
            *prefix, sys.executable, "-m", "pytest", "-p", "no:cacheprovider",
            f"--junitxml={report}", *environment.options, *options,
            *(f"tests/{file}" for file in dict.fromkeys(files)),
        ]  # fmt: skip
        kept = report_of(environment, reports)
        printed = kept.with_suffix(".txt")
        with printed.open("w") as log:
            subprocess.run(
                command, cwd=tree, env=variables, stdout=log, stderr=subprocess.STDOUT,
                check=False, **identity,
            )  # fmt: skip
        if report.exists():
            shutil.copyfile(report, kept)
        outcome = read_report(kept)
        if outcome.failed or not outcome.passed:
            print(printed.read_text(errors="replace")[-8000:], file=sys.stderr, flush=True)


def works(prefix: list[str]) -> bool:
    """Tell whether a command can be started this way."""
    try:
        return subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def copy_sources(target: Path, *, kernel: bool) -> Path:
    """Copy what the tests read, without environments, results and the history."""
    unwanted = ["_build", "__pycache__", ".*_cache", "*.egg-info"]
    unwanted += [] if kernel else ["*.so", "*.pyd"]
    outside = {".git", ".venv", "build", "dist", "results", "demo-results", "bench-results"}
    match = shutil.ignore_patterns(*unwanted)

    def ignored(folder: str, names: list[str]) -> set[str]:
        return match(folder, names) | (outside if Path(folder) == ROOT else set())

    shutil.copytree(ROOT, target, ignore=ignored)
    for folder in (target, *target.rglob("*/")):  # builds write there, also from read-only sources
        folder.chmod(0o755)
    return target


def make_read_only(tree: Path) -> None:
    """Let everybody read a tree and nobody but root write to it."""
    for path in (tree, *tree.rglob("*")):
        runnable = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o555 if runnable else 0o444)


def programs_without_compilers(folder: Path) -> Path:
    """Make a folder of links to everything on PATH that is not a C or C++ compiler."""
    folder.mkdir()
    on_path = [str(Path(sys.executable).parent), *os.environ.get("PATH", "").split(os.pathsep)]
    for directory in filter(os.path.isdir, on_path):
        for program in Path(directory).iterdir():
            link = folder / program.name
            if not COMPILERS.fullmatch(program.name) and not link.is_symlink():
                link.symlink_to(program)
    return folder


def read_report(report: Path) -> Outcome:
    """Count the tests of a JUnit file; no file means that pytest did not get that far."""
    if not report.exists():
        return Outcome(0, 1, 0, 0.0, ("pytest wrote no report",))
    root = xml.etree.ElementTree.parse(report)
    cases = list(root.iter("testcase"))
    failed = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return Outcome(
        passed=len(cases) - len(failed) - skipped,
        failed=len(failed),
        skipped=skipped,
        seconds=sum(float(suite.get("time", 0)) for suite in root.iter("testsuite")),
        failures=tuple(f"{case.get('classname')}::{case.get('name')}" for case in failed),
    )


def table(outcomes: Mapping[str, Outcome]) -> str:
    """Return a row per environment, and below it the tests that failed."""
    width = max(map(len, outcomes), default=0)
    lines = [f"{'environment':{width}}  passed  failed  skipped  seconds"]
    for name, outcome in outcomes.items():
        lines.append(
            f"{name:{width}}  {outcome.passed:6}  {outcome.failed:6}  {outcome.skipped:7}"
            f"  {outcome.seconds:7.0f}"
        )
        lines += [f"    {failure}" for failure in outcome.failures]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
