"""Count modules, packages, imports inside functions, lines and vague names.

`python tools/house.py` counts this tree, `python tools/house.py ../other` another checkout.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

VAGUE = {"found", "place", "kind", "chosen", "known", "own", "there"}
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def lines_of(text: str, tree: ast.Module) -> Counter[str]:
    """Count the lines of a module by what they hold."""
    documented = set()
    for node in ast.walk(tree):
        if isinstance(node, Documented) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            documented |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    counts: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), start=1):
        word = line.strip()
        if number in documented:
            counts["docstrings"] += 1
        else:
            counts["blank" if not word else "comments" if word[0] == "#" else "code"] += 1
    return counts


def inner_imports(tree: ast.Module) -> Iterator[str]:
    """Yield the module of each import statement inside a function."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(node): node for function in functions for node in ast.walk(function)}
    for node in inside.values():
        if isinstance(node, ast.Import):
            yield node.names[0].name
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."


def vague_names(tree: ast.Module) -> int:
    """Count the variables and parameters whose name does not say what they hold."""
    stored = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and type(n.ctx) is ast.Store]
    parameters = [n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)]
    return sum(name in VAGUE for name in stored + parameters)


def main(root: Path) -> None:
    """Print the counts of a checkout."""
    bench = root / "src" / "afor" / "bench"
    packages = [path.parent.relative_to(bench) for path in bench.rglob("__init__.py")]
    depths = Counter(len(package.parts) for package in packages)
    print("flat modules in afor.bench:", len(list(bench.glob("*.py"))) - 1)
    print(f"packages / sub-packages: {depths[1]} / {sum(depths.values()) - depths[1] - 1}")
    for part in ("src", "tests"):
        lines: Counter[str] = Counter()
        imports, vague = [], 0
        for path in sorted((root / part).rglob("*.py")):
            text = path.read_text("utf-8")
            tree = ast.parse(text)
            lines += lines_of(text, tree)
            imports += list(inner_imports(tree))
            vague += vague_names(tree)
        words = ", ".join(f"{count} {name}" for name, count in lines.most_common())
        ours = sum(name.split(".")[0] == "afor" for name in imports)
        print(f"{part}: {sum(lines.values())} lines of Python: {words}")
        print(f"{part}: imports inside functions: {ours} of afor, {len(imports) - ours} of others")
        print(f"{part}: vague names: {vague}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
