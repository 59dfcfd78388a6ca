"""What may import what: arrows between packages point one way; `import afor` needs torch alone."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import afor

ROOT = Path(afor.__file__).parent

# Each package of the benchmark, and the packages right before it. A package may import those, all
# that come before them, and itself.
ARROWS: dict[str, tuple[str, ...]] = {
    "common": (),
    "data": ("common",),
    "models": ("data",),
    "optimizers": ("data",),
    "training": ("models", "optimizers"),
    "study": ("training",),
    "store": ("study",),
    "execution": ("store",),
    "stats": ("store",),
    "report": ("stats",),
    "analyses": ("execution", "report"),
    "notebook": ("execution", "report"),
    "cli": ("analyses",),
}
# Inside `data`: a stage imports from itself and from stages above it.
DATA = [
    ["signal", "montage", "splits"],
    ["recording"],
    ["fetching", "formats"],
    ["dataset"],
    ["datasets"],
    ["catalog", "stand_ins"],
    ["prepared"],
    ["window_source"],
    ["loading"],
    ["inspection"],
]
# The optimizer: a stage imports from itself and from stages above it.
OPTIMIZER = [
    ["torch_private"],
    ["control", "reference"],
    ["tensors"],
    ["known_group"],
    ["native", "triton"],
    ["update", "released"],
    ["sharded"],
    ["checkpoint"],
    ["optimizer"],
    ["monitor"],
]

# Imports of this package inside functions, each group with its reason.
WORKER = "a worker first ties its life to its driver's; importing takes longer"
WITHOUT_TORCH = "the module itself works without torch: importing it takes long"
WITHOUT_TYPER = "the entry point works without typer, to say what to install"
WITHOUT_TRITON = "the module itself works without triton: it is optional"
INSIDE_FUNCTIONS: list[tuple[str, str, list[str]]] = [
    ("afor", WITHOUT_TORCH, ["afor.optimizer"]),
    ("afor.bench.cli.catalog.data", WITHOUT_TORCH, ["afor.bench.execution.forecast"]),
    (
        "afor.bench.cli.catalog.models",
        WITHOUT_TORCH,
        ["afor.bench.models.redundant", "afor.bench.models.registry"],
    ),
    ("afor.bench.cli.entry", WITHOUT_TYPER, ["afor.bench.cli.app"]),
    (
        "afor.bench.cli.studies.study",
        WITHOUT_TORCH,
        [
            "afor.bench.models.redundant",
            "afor.bench.models.registry",
        ],
    ),
    (
        "afor.bench.cli.options",
        "completion alone needs the names, and `afor --help` imports little",
        [
            "afor.bench.data.catalog",
            "afor.bench.optimizers.registry",
            "afor.bench.training.record",
        ],
    ),
    (
        "afor.bench.cli.catalog.doctor",
        WITHOUT_TORCH,
        ["afor.native.binding", "afor.triton.launch"],
    ),
    (
        "afor.bench.execution.forecast",
        WITHOUT_TORCH,
        [
            "afor.bench.models.registry",
            "afor.bench.models.stacked_eegnet",
            "afor.bench.training.loop",
        ],
    ),
    (
        "afor.bench.execution.engines.worker",
        WORKER,
        ["afor.bench.store.spool", "afor.bench.training.execute"],
    ),
    (
        "afor.bench.study.bundling",
        WITHOUT_TORCH,
        [
            "afor.bench.models.registry",
            "afor.bench.models.stacked_eegnet",
        ],
    ),
    ("afor.bench.study.plan", WITHOUT_TORCH, ["afor.bench.models.registry"]),
    (
        "afor.bench.training.execute",
        WITHOUT_TORCH,
        ["afor.bench.models.registry", "afor.bench.training.loop"],
    ),
    ("afor.triton.launch", WITHOUT_TRITON, ["afor.triton.kernels"]),
]
# Modules that import others of this package by a name in a string.
BY_NAME = {
    "afor.bench": "the façade, which loads a name when it is first used",
    "afor.bench.cli.lazy": "one module per family of commands, imported when one is called",
    "afor.bench.data.catalog": "one module per data set, imported when it is asked for",
}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        yield name.removesuffix(".__init__"), path


KNOWN = dict(modules())


@cache
def imports(name: str, source: str) -> tuple[tuple[str, bool], ...]:
    """Return each module of this package that a module imports, and whether inside a function.

    Imports for type checkers alone do not count.
    """
    return tuple(_imports(name, source))


def _imports(name: str, source: str) -> Iterator[tuple[str, bool]]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = [ast.Pass()]
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "afor":
                    yield alias.name, id(node) in inside
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import, line {node.lineno}"
            if node.module and node.module.split(".")[0] == "afor":
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield inner if inner in KNOWN else node.module, id(node) in inside


@cache
def reachable(package: str) -> frozenset[str]:
    """Return all packages that a package may import, itself included."""
    return frozenset({package}).union(*(reachable(before) for before in ARROWS[package]))


def backward_arrows(name: str, source: str) -> list[str]:
    """Return a sentence for each import that points back."""
    parts, wrong = name.split("."), []
    for target, _ in imports(name, source):
        others = target.split(".")
        if parts[1] == "bench":
            if others[1:2] != ["bench"]:
                continue
            if len(others) < 3:
                wrong.append(f"{name} imports the façade {target}: import the module itself")
            elif others[2] not in reachable(parts[2]):
                wrong.append(f"{name} imports {target}: {parts[2]} comes before {others[2]}")
            elif parts[2] == others[2] == "data" and (
                len(others) < 4 or stage(others[3], DATA) > stage(parts[3], DATA)
            ):
                wrong.append(f"{name} imports {target}, which comes after it")
        elif others[1:2] == ["bench"]:
            wrong.append(f"{name} imports {target}: the optimizer does not know the benchmark")
        elif len(others) > 1 and stage(others[1], OPTIMIZER) > stage(parts[1], OPTIMIZER):
            wrong.append(f"{name} imports {target}, which comes after it")
    return wrong


def stage(part: str, stages: list[list[str]]) -> int:
    """Return the stage of a module or package of the optimizer or of `data`."""
    for number, members in enumerate(stages):
        if part in members:
            return number
    pytest.fail(f"{part} has no stage: give it one in {Path(__file__).name}")


@pytest.mark.parametrize("name", [name for name in KNOWN if name not in ("afor", "afor.bench")])
def test_a_module_imports_only_from_packages_before_its_own(name):
    assert backward_arrows(name, KNOWN[name].read_text()) == []


def test_every_package_has_its_arrows_and_every_name_exists():
    assert sorted(ARROWS) == sorted(
        path.name for path in (ROOT / "bench").iterdir() if (path / "__init__.py").exists()
    )
    for folder, stages in ((ROOT, OPTIMIZER), (ROOT / "bench" / "data", DATA)):
        flat = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        packages = {path.parent.name for path in folder.glob("*/__init__.py")} - {"bench"}
        assert sorted(flat | packages) == sorted(name for members in stages for name in members)
    listed = {name for name, _, targets in INSIDE_FUNCTIONS for name in (name, *targets)}
    assert sorted((listed | set(BY_NAME)) - set(KNOWN)) == []


def test_the_benchmark_has_no_modules_beside_its_packages():
    assert [path.name for path in (ROOT / "bench").glob("*.py")] == ["__init__.py"]


def test_an_import_inside_a_function_is_listed_with_its_reason():
    present = {
        (name, target)
        for name, path in KNOWN.items()
        for target, inside in imports(name, path.read_text())
        if inside
    }
    listed = {(name, target) for name, _, targets in INSIDE_FUNCTIONS for target in targets}
    assert sorted(present - listed) == [], "move these to the top of their module, or give a reason"
    assert sorted(listed - present) == [], "these are no longer there: take them off the list"
    assert all(reason for _, reason, _ in INSIDE_FUNCTIONS)


def test_no_module_is_imported_through_a_string_where_an_import_will_do():
    by_name = set()
    for name, path in KNOWN.items():
        source = path.read_text()
        for node in ast.walk(ast.parse(source if "import_module" in source else "")):
            if isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
                by_name |= {name} if "afor." in ast.unparse(node) else set()
    assert by_name == set(BY_NAME)


def test_a_backward_arrow_is_found():
    assert backward_arrows("afor.control", "from afor.optimizer import AFOR")
    assert backward_arrows("afor.control", "def f():\n    from afor.optimizer import AFOR")
    assert backward_arrows("afor.control", "import afor.bench.common.errors")
    assert backward_arrows("afor.bench.common.errors", "from afor.bench.cli.app import app")
    assert backward_arrows("afor.bench.stats.groups", "from afor.bench.execution import runner")
    assert backward_arrows("afor.bench.stats.groups", "from afor.bench import load_study")
    assert backward_arrows("afor.bench.data.signal", "from afor.bench.data.loading import x")
    assert backward_arrows("afor.bench.data.datasets.deap", "import afor.bench.data.catalog")
    typing_only = "if TYPE_CHECKING:\n    from afor.optimizer import AFOR"
    assert backward_arrows("afor.control", typing_only) == []
    assert backward_arrows("afor.optimizer", "from afor.control import FIELDS") == []
    assert (
        backward_arrows("afor.bench.cli.studies.run", "from afor.bench.study.plan import StudyPlan")
        == []
    )


def test_no_two_modules_import_each_other_at_import_time():
    """Follow imports at the top of modules; a module met again on the way closes a circle."""
    arrows = {}
    for name, path in KNOWN.items():
        tree = ast.parse(path.read_text())
        top = "\n".join(
            ast.unparse(n) for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)
        )
        arrows[name] = {t for t, _ in imports(name, top) if t in KNOWN and t != name}

    def walk(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, f"a circle of imports: {' -> '.join((*way, name))}"
        if name not in done:
            for target in sorted(arrows[name]):
                walk(target, (*way, name))
            done.add(name)

    done: set[str] = set()
    for name in arrows:
        walk(name, ())


def run(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


NEW_MODULES = """
import os, sys, {first}
before = set(sys.modules)
import afor
{use}
new = {{name.split(".")[0] for name in set(sys.modules) - before}}
print(*sorted(new - set(sys.stdlib_module_names) - {{"afor", "torch"}}), flush=True)
os._exit(0)  # taking all modules of torch apart would take a second
"""


def test_import_afor_pulls_in_torch_and_the_standard_library_and_nothing_else():
    use = """
p = torch.nn.Parameter(torch.ones(3))
p.grad = torch.ones(3)
for options in ({}, {"foreach": False}, {"foreach": True}):
    optimizer = afor.AFOR([p], **options)
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
"""
    first = "torch, torch.optim, torch.utils._foreach_utils, torch.library, torch._dynamo"
    assert run(NEW_MODULES.format(first=first, use=use)).split() == []


def test_import_afor_does_not_wait_for_torch():
    assert run("import sys, afor; print('torch' in sys.modules)").strip() == "False"


# What a command must not wait for: these take tenths of a second to seconds to import.
NOT_FOR_STATUS = {"models", "optimizers", "stats", "report", "analyses", "notebook"}
HEAVY = ("torch", "mne", "scipy", "sklearn", "pandas", "matplotlib", "jinja2", "tomlkit")
MAKE_STORE = """
from pathlib import Path
from afor.bench.store.database import open_or_create
with open_or_create(Path("small.db")) as store:
    store.replace_study("small", "name = 'small'", [])
"""
RUN_COMMAND = """
import sys
sys.argv = ["afor", *{arguments}]
from afor.bench.cli.entry import main
try:
    main()
except SystemExit as end:
    assert not end.code
print("\\nIMPORTED", *(name for name in {heavy} if name in sys.modules))
"""


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], [*HEAVY, "numpy", "pydantic", "afor.bench.store", "afor.bench.study"]),
        (
            ["status", "small.db"],
            [*HEAVY, "numpy", *(f"afor.bench.{name}" for name in sorted(NOT_FOR_STATUS))],
        ),
    ],
    ids=["help", "status"],
)
def test_a_quick_command_imports_nothing_heavy(arguments, heavy, tmp_path, monkeypatch):
    """`afor --help` takes at most 0.3 s of processor time, `afor status` at most 0.6 s."""
    pytest.importorskip("typer", reason="the extra afor[bench] is not installed")
    monkeypatch.chdir(tmp_path)
    run(MAKE_STORE)
    lines = run(RUN_COMMAND.format(arguments=arguments, heavy=heavy)).strip().splitlines()
    assert len(lines) > 3
    assert lines[-1].split() == ["IMPORTED"]
