"""Turn classes, functions and instances of a notebook into entries of a study.

A worker imports code by its name. What a notebook defines itself is therefore written to a module
of its own first, with the imports and definitions that it uses.
"""

import ast
import hashlib
import inspect
import linecache
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from symtable import SymbolTable, symtable
from types import FunctionType, ModuleType
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.common.files import write_atomically
from afor.bench.common.module_search import look_beside
from afor.bench.optimizers.build import accepted_settings, load_class
from afor.bench.optimizers.registry import OPTIMIZERS, PAPER_OPTIMIZERS

Entry = dict[str, Any]
PLAIN = (bool, int, float, str, type(None))
DEFINITIONS = (ast.ClassDef, ast.FunctionDef)


def entries_of(given: Any, role: str, folder: Path) -> list[Entry]:
    """Return entries of a study for one name, class, function or instance, or for a list of them.

    Args:
        given: Names of the benchmark, classes, functions, `functools.partial` of these with
            settings, entries as dictionaries, or, of optimizers, instances.
        role: "optimizer" or "backbone".
        folder: Where code is written that only the notebook has.

    Raises:
        ConfigError: Something in it cannot be found again by its name.
    """
    items = list(given) if isinstance(given, list | tuple) else [given]
    entries = [_entry(item, role, folder) for item in items]
    names = [entry["name"] for entry in entries]
    for number, entry in enumerate(entries):
        if names.index(entry["name"]) != number:  # the same class with other settings
            entry["name"] = f"{entry['name']}-{number + 1}"
    return entries


def _entry(item: Any, role: str, folder: Path) -> Entry:
    if isinstance(item, str):
        return {"name": item}
    if isinstance(item, Mapping):
        return dict(item)
    if isinstance(item, partial):
        if item.args:
            raise ConfigError(f"{role} {item}: give its settings by name, not by position.")
        return {**_entry(item.func, role, folder), "settings": _plain(item.keywords)}
    if isinstance(item, type | FunctionType):
        use = _known(item) if role == "optimizer" else ""
        use = use or _target(item, role, folder)
        return {"name": use} if use in OPTIMIZERS else {"name": item.__name__, "use": use}
    if role == "optimizer" and hasattr(item, "param_groups"):
        entry = _entry(type(item), role, folder)
        use = entry.get("use") or entry["name"]
        return {**entry, "settings": _changed_settings(item, use)}
    raise ConfigError(
        f"{role} {type(item).__name__} cannot be used: a study builds it anew for every subject. "
        f"Give a name, a class, a function or functools.partial of one of them."
    )


def _known(cls: object) -> str:
    """Return the benchmark's name of an optimizer class, or nothing."""
    modules = ("torch", "afor")
    if not str(getattr(cls, "__module__", "")).startswith(modules):
        return ""
    return next((name for name in PAPER_OPTIMIZERS if load_class(name) is cls), "")


def _changed_settings(optimizer: Any, use: str) -> dict[str, Any]:
    """Return the settings of an optimizer that are not those of its class."""
    defaults = {p.name: p.default for p in accepted_settings(use)}
    settings = optimizer.defaults.items()
    return _plain({k: v for k, v in settings if k in defaults and v != defaults[k]})


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with lists for tuples, as a study has them."""
    return {key: list(v) if isinstance(v, tuple) else v for key, v in settings.items()}


def _target(item: Any, role: str, folder: Path) -> str:
    """Return `module:name` of a class or function, written to a file if the notebook defines it."""
    module, name = item.__module__, item.__qualname__
    if "." in name or name == "<lambda>":
        raise ConfigError(
            f"{role} {name} has no name of its own in a cell or module, where a worker could find "
            f"it: define it by itself, not inside another function or class."
        )
    if module.startswith("braindecode.models"):
        return f"braindecode:{name}"
    if module != "__main__":
        return f"{module}:{name}"
    return f"{_write(item, role, folder)}:{name}"


def _write(item: Any, role: str, folder: Path) -> str:
    """Write the source of an object and what it uses to a module; return the module's name."""
    parts: dict[str, str] = {}
    _collect(item.__name__, item, parts, role)
    text = "\n\n".join(parts.values()) + "\n"
    module = f"notebook_{item.__name__.lower()}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    path = folder / f"{module}.py"
    if not path.is_file():
        write_atomically(path, text.encode())
    look_beside(path)
    return module


def _collect(name: str, value: Any, parts: dict[str, str], role: str) -> None:
    """Add the definition of a name of the notebook, after those of the names that it uses."""
    if name in parts:
        return
    if isinstance(value, ModuleType):
        parts[name] = f"import {value.__name__} as {name}"
        return
    if isinstance(value, PLAIN):
        parts[name] = f"{name} = {value!r}"
        return
    source_of = getattr(value, "__module__", None)
    if source_of and source_of != "__main__" and hasattr(value, "__qualname__"):
        parts[name] = f"from {source_of} import {value.__qualname__} as {name}"
        return
    if not isinstance(value, type | FunctionType):
        raise ConfigError(
            f"{role}: {name} is a {type(value).__name__} of the notebook, which a worker cannot "
            f"import. Put the code into a module, such as with %%writefile, and import it."
        )
    source = _source(value)
    if not source:
        raise ConfigError(
            f"{role} {name}: its source cannot be read. Put it into a module and import it."
        )
    parts[name] = ""  # names that use one another
    main = vars(sys.modules["__main__"])
    for other in sorted(_globals(symtable(source, name, "exec")) - {name}):
        if other in main:
            _collect(other, main[other], parts, role)
    parts[name] = parts.pop(name) + source


def _source(item: type | FunctionType) -> str:
    """Return the definition of a class or function of a notebook; nothing if it is not known.

    The file of a class is that of its methods: a kernel has cells, but no file of its own, in which
    `inspect.getsource` would look.
    """
    for function in [item] if isinstance(item, FunctionType) else vars(item).values():
        if not isinstance(function, FunctionType):
            continue
        lines = linecache.getlines(inspect.unwrap(function).__code__.co_filename)
        for node in reversed(ast.parse("".join(lines)).body):
            if isinstance(node, DEFINITIONS) and node.name == item.__name__:
                first = min([node, *node.decorator_list], key=lambda part: part.lineno)
                return "".join(lines[first.lineno - 1 : node.end_lineno])
    return ""


def _globals(table: SymbolTable) -> set[str]:
    """Return the names that a piece of code takes from the module around it."""
    is_top = table.get_type() == "module"
    names = {s.get_name() for s in table.get_symbols() if s.is_global() or is_top}
    return names.union(*map(_globals, table.get_children()))
