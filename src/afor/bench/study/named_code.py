"""Find and identify custom code that a study or run refers to.

A store must not start it by itself, and a run's key tells which code it was.
"""

import ast
import hashlib
import json
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.common.module_search import import_named
from afor.bench.data.catalog import is_own_code
from afor.bench.study.schema import Study
from afor.bench.training.run_spec import DEFAULT_TRAINER


def names_in_study(study: Study) -> tuple[str, ...]:
    """List the custom code of a study as `module:name`, without duplicates."""
    trainer = [] if study.trainer == DEFAULT_TRAINER else [study.trainer]
    own = [entry.backbone for entry in study.optimizers if entry.backbone is not None]
    entries = [entry.use for entry in (*study.backbones, *own, *study.optimizers)]
    readers = [entry.use for entry in study.datasets if is_own_code(entry.use)]
    return tuple(dict.fromkeys([*trainer, *readers, *(use for use in entries if ":" in use)]))


def names_in_spec(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """List the custom code of a run's spec as `module:name`, without duplicates."""

    def text(table: str, key: str) -> str:
        inside = spec.get(table)
        return str(inside.get(key, "")) if isinstance(inside, Mapping) else ""

    trainer = text("trainer", "source")
    names = [trainer] if trainer not in ("", DEFAULT_TRAINER) else []
    if is_own_code(reader := text("data", "reader")):
        names.append(reader)
    names += [n for n in (text("backbone", "name"), text("optimizer", "name")) if ":" in n]
    return tuple(dict.fromkeys(names))


def list_names(names: Iterable[str]) -> str:
    """Return names from an untrusted file as one line that is safe to print."""
    return ", ".join(ascii(name[:80])[1:-1] for name in sorted(names))


def with_trusted_readers(
    study: Study, datasets: Collection[str], where: str, *, trust: bool
) -> Study:
    """Return a study from the store `where` with these data sets alone.

    Raises:
        ConfigError: Code outside this package reads one of them, and `trust` is not set.
    """
    entries = [entry for entry in study.datasets if entry.name in datasets]
    readers = [entry.use for entry in entries if is_own_code(entry.use)]
    if readers and not trust:
        what = f"code that is not part of afor reads the data of the study {study.name}"
        raise _untrusted(where, what, readers)
    return study.model_copy(update={"datasets": entries})


def refuse_stored_code(study: Study, where: str) -> None:
    """Raise ConfigError if a study that was read from a store refers to custom code."""
    if names := names_in_study(study):
        what = f"the study {study.name} in this store names code that is not part of afor"
        raise _untrusted(where, what, names)


def _untrusted(where: str, what: str, names: Iterable[str]) -> ConfigError:
    return ConfigError(
        f"{where}: {what}: {list_names(names)}. Nothing was imported. Add --trust if you know "
        f"where the store and these modules come from."
    )


def code_of(target: str, role: str) -> dict[str, str]:
    """Return what identifies the code of a `module:name` in the spec of a run.

    An installed package is known by its version. Other code is known by the SHA-256 of its file and
    of all files beside it that it imports, directly or through others. A name without a module is
    part of this package. Raises ConfigError, which names the `role`, if it cannot be imported.
    """
    module, separator, _ = target.partition(":")
    if not separator:
        return {}
    if module == "braindecode":  # imported when a network is built
        return {"source": target, **_installed("braindecode")}
    file = import_named(target, role).__file__
    if file is None:
        return {"source": target, "source_sha256": ""}
    path = Path(file).resolve()
    top = module.partition(".")[0]
    if any(path.is_relative_to(folder) for folder in _site_folders()):
        return {"source": target, **_installed(top)}
    root = next((parent for parent in path.parents if _is_in(parent, top)), path.parent)
    files = sorted(_imported_files(path, root))
    hashes = {f.relative_to(root).as_posix(): _sha256(f.read_bytes()) for f in files}
    alone = len(hashes) == 1
    digest = hashes[path.relative_to(root).as_posix()] if alone else _sha256(json.dumps(hashes))
    return {"source": target, "source_sha256": digest}


@cache
def _installed(package: str) -> dict[str, str]:
    """Return the distribution of an installed package and its version.

    That of torch is recorded with every run and changes no key: machines can share a study.
    """
    if package == "torch":
        return {}
    names = metadata.packages_distributions().get(package, [package])
    try:
        version = metadata.version(names[0])
    except metadata.PackageNotFoundError:
        return {}
    return {"distribution": f"{names[0]} {version}"}


def _site_folders() -> list[Path]:
    paths = sysconfig.get_paths()
    return [Path(paths[name]).resolve() for name in ("purelib", "platlib", "stdlib")]


def _is_in(folder: Path, module: str) -> bool:
    return (folder / f"{module}.py").is_file() or (folder / module / "__init__.py").is_file()


def _imported_files(start: Path, root: Path) -> set[Path]:
    """Return a file and all files under a folder that it imports, directly or through others."""
    found: set[Path] = set()
    waiting = [start]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found.add(file)
        package = file.parent.relative_to(root).parts
        names = [*_imported_names(file, package), ".".join((*package, "__init__"))]
        waiting += [path for name in names for path in _files_of(name, root)]
    return found


def _imported_names(file: Path, package: tuple[str, ...]) -> Iterator[str]:
    """Yield the full names that a file imports; a name may be a module or something in one."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            parts = [*base, *((node.module or "").split(".") if node.module else [])]
            yield ".".join(parts)
            yield from (".".join([*parts, alias.name]) for alias in node.names)


def _files_of(name: str, root: Path) -> Iterator[Path]:
    """Yield the files of a module under a folder, with those of the packages around it."""
    parts = [part for part in name.split(".") if part]
    for end in range(1, len(parts) + 1):
        path = root.joinpath(*parts[:end])
        for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if file.is_file():
                yield file


def _sha256(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
