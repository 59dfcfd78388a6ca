"""What may import what: stages point one way, and `import afor` needs torch alone."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import afor

ROOT = Path(afor.__file__).parent

# A stage imports from itself and from stages above it, never from below (docs: design, style).
# A name stands for the module and everything under it.
OPTIMIZER = [
    ["torch_private"],
    ["arithmetic", "control", "reference", "state_check", "sums"],
    ["fused", "group_plan", "rows", "triton_kernels", "triton_path"],
    ["functional", "released"],
    ["completion", "sharded"],
    ["checkpoint"],
    ["optimizer"],
    ["monitor"],
]
BENCH = [
    ["errors", "module_search", "parameter_checks", "toml_lines", "toml_text", "config"],
    ["presets", "places", "named_code"],
    ["csv_cells", "printable_text", "estimate"],
    ["seeds", "preprocess", "metrics", "devices"],
    ["datasets"],
    ["output_files", "trial_cache", "window_source", "windows", "array_windows", "data_check"],
    ["splits"],
    ["backbones", "optimizers", "runs", "batches", "traces", "train"],
    ["overrides"],
    ["results", "execute", "jobs", "spool", "store_file", "store_lock", "plan", "store_rows"],
    ["store", "store_repair", "time_limits", "running"],
    ["worker", "worker_starts", "engine", "engine_dask", "engines", "runner", "merge", "verify"],
    ["progress", "rates", "status", "failures", "show", "fold_table"],
    ["names", "number_text", "fold_values", "noise_floor", "sensitivity"],
    ["paired_tests", "statistics"],
    ["published", "simulated", "results_files", "curves", "analysis"],
    ["table_formats", "table_parts", "tables", "side_tables", "paper_tables"],
    ["cost_table", "theory_table", "variant_tables", "loss_table"],
    ["figure_style", "figures", "curve_figures", "landscape_figure", "landscape_text"],
    ["cost_figure", "theory_figure", "noise_figure", "memory_figures", "shift_figure"],
    ["report", "report_svg", "report_text"],
    ["doctor", "demo"],
    ["cli"],
]


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        yield name.removesuffix(".__init__"), path


KNOWN = dict(modules())


def imports(name: str, source: str) -> Iterator[str]:
    """Yield the modules of this package that a module imports, lazily or not, but not for types."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = [ast.Pass()]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "afor")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import, line {node.lineno}"
            if node.module and node.module.split(".")[0] == "afor":
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield inner if inner in KNOWN else node.module


def stage(name: str) -> tuple[str, int]:
    """Return the product a module belongs to and its stage there."""
    parts = name.split(".")
    if parts == ["afor"]:
        return "optimizer", len(OPTIMIZER)
    product, stages, key = (
        ("bench", BENCH, parts[2] if len(parts) > 2 else "errors")
        if parts[1] == "bench"
        else ("optimizer", OPTIMIZER, parts[1])
    )
    for number, members in enumerate(stages):
        if key in members:
            return product, number
    pytest.fail(f"{name} has no stage: give it one in {Path(__file__).name}")


def backward_arrows(name: str, source: str) -> list[str]:
    product, own = stage(name)
    wrong = []
    for target in imports(name, source):
        other, number = stage(target)
        if product == "optimizer" and other == "bench":
            wrong.append(f"{name} imports {target}: the optimizer knows nothing of the benchmark")
        elif product == other and number > own:
            wrong.append(f"{name} imports {target}, which comes after it")
    return wrong


@pytest.mark.parametrize("name", list(KNOWN))
def test_a_module_imports_only_from_its_stage_and_those_before(name):
    if name == "afor":
        return  # the door: it hands out what the last stage made
    assert backward_arrows(name, KNOWN[name].read_text()) == []


def test_a_backward_arrow_is_found():
    assert backward_arrows("afor.control", "from afor.optimizer import AFOR")
    assert backward_arrows("afor.control", "def f():\n    from afor.optimizer import AFOR")
    assert backward_arrows("afor.control", "import afor.bench.errors")
    assert backward_arrows("afor.bench.errors", "from afor.bench.cli import app")
    typing_only = "if TYPE_CHECKING:\n    from afor.optimizer import AFOR"
    assert backward_arrows("afor.control", typing_only) == []
    assert backward_arrows("afor.optimizer", "from afor.control import FIELDS") == []


def test_no_two_modules_import_each_other_at_import_time():
    """Follow imports at the top of modules; a module met again on the way closes a circle."""
    arrows = {}
    for name, path in KNOWN.items():
        tree = ast.parse(path.read_text())
        top = "\n".join(
            ast.unparse(n) for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)
        )
        arrows[name] = {t for t in imports(name, top) if t in KNOWN and t != name}

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
import sys, {first}
before = set(sys.modules)
import afor
{use}
new = {{name.split(".")[0] for name in set(sys.modules) - before}}
print(*sorted(new - set(sys.stdlib_module_names) - {{"afor", "torch"}}))
"""


def test_import_afor_pulls_in_torch_and_the_standard_library_and_nothing_else():
    use = """
p = torch.nn.Parameter(torch.ones(3))
p.grad = torch.ones(3)
for options in ({}, {"foreach": False}, {"foreach": True}, {"variant": "released"}):
    optimizer = afor.AFOR([p], **options)
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
"""
    first = "torch, torch.optim, torch.utils._foreach_utils, torch.library, torch._dynamo"
    assert run(NEW_MODULES.format(first=first, use=use)).split() == []


def test_import_afor_does_not_wait_for_torch():
    assert run("import sys, afor; print('torch' in sys.modules)").strip() == "False"


def test_the_help_of_the_command_line_does_not_wait_for_torch():
    pytest.importorskip("typer", reason="the extra afor[bench] is not installed")
    heavy = ("torch", "mne", "scipy", "sklearn", "pandas", "matplotlib")
    code = f"""
import sys
sys.argv = ["afor", "--help"]
from afor.bench.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code
print("\\nHEAVY", *(name for name in {heavy} if name in sys.modules))
"""
    output = run(code)
    assert "Usage" in output
    assert output.strip().splitlines()[-1].split() == ["HEAVY"]
