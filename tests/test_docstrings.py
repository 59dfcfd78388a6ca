"""What `afor` and `afor.bench` export is documented: parameters, returns, raises, examples."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import pytest

pytest.importorskip("pydantic", reason="the extra afor[bench] is not installed")

import afor
import afor.monitor
from afor import bench

EXPORTED = {
    **{f"afor.{name}": getattr(afor, name) for name in afor.__all__},
    **{f"afor.bench.{name}": getattr(bench, name) for name in bench.__all__},
    **{
        f"afor.monitor.{name}": thing
        for name, thing in vars(afor.monitor).items()
        if getattr(thing, "__module__", "") == "afor.monitor"
        and not name.startswith("_")
        and not getattr(thing, "_is_protocol", False)
    },
}
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example")
# Methods whose contract is that of torch or TensorBoard; their docstrings say what they add.
INHERITED = {"add_scalar", "add_param_group", "load_state_dict", "state_dict", "step", "zero_grad"}


def public_things() -> Iterator[tuple[str, Any]]:
    """Yield each exported function and class, and the public methods of these classes."""
    for name, thing in EXPORTED.items():
        if callable(thing):
            yield name, thing
        if inspect.isclass(thing):
            for method, value in vars(thing).items():
                function = getattr(value, "__func__", value)  # of a class method
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield f"{name}.{method}", function


def sections(docstring: str) -> dict[str, str]:
    """Split a docstring into its sections; the text before them is called Summary."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):\s*$", docstring, flags=re.MULTILINE)
    return {"Summary": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def raised(function: Any) -> set[str]:
    """Return the names of the errors that the body of a function makes and raises."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    names = {ast.unparse(call.func) for call in calls if isinstance(call, ast.Call)}
    return {name for name in names if name.endswith("Error")}


def faults(name: str, thing: Any) -> list[str]:
    """Return a sentence for everything that the docstring of a public thing leaves out."""
    parts = sections(inspect.getdoc(thing) or "")
    if not parts["Summary"].strip():
        return [f"{name} has no docstring"]
    body = thing
    wrong: list[str] = []
    if inspect.isclass(thing):
        body = vars(thing).get("__post_init__" if is_dataclass(thing) else "__init__")
    if body is not None or is_dataclass(thing):
        described = parts.get("Args", "") + parts.get("Attributes", "")
        wrong = [
            f"{name} does not describe {parameter}"
            for parameter in inspect.signature(thing).parameters.keys() - {"self", "cls"}
            if not re.search(rf"^ +\*{{0,2}}{parameter}\b.*:", described, re.MULTILINE)
        ]
    if body is not None:
        told = parts.get("Raises", "") + parts["Summary"]
        wrong += [
            f"{name} does not say that it raises {error}"
            for error in sorted(raised(body))
            if error not in told
        ]
    told = {"Returns", "Yields"} & parts.keys() or parts["Summary"].startswith("Return")
    if body is thing and not told and inspect.signature(thing).return_annotation is not None:
        wrong.append(f"{name} does not say what it returns")
    if name in EXPORTED and body is thing and "Example" not in parts:
        wrong.append(f"{name} has no example")
    return wrong


@pytest.mark.parametrize(
    ("name", "thing"), [pytest.param(*public, id=public[0]) for public in public_things()]
)
def test_a_public_thing_is_documented(name, thing):
    if name.rpartition(".")[2] in INHERITED:
        assert inspect.getdoc(thing)
    else:
        assert faults(name, thing) == []


def test_what_is_missing_is_found():
    def read(path: str, *, times: int = 1) -> str:
        """Read.

        Args:
            path: The file.
        """
        if times < 1:
            raise ValueError(times)
        return path

    assert faults("read", read) == [
        "read does not describe times",
        "read does not say that it raises ValueError",
        "read does not say what it returns",
    ]
