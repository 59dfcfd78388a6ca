"""Import the modules that a study names as `module:name`, also in workers.

A module is looked up on `sys.path` (installed packages, PYTHONPATH), and then in the folder of the
study file. That folder is appended to `sys.path` only if it contains a module that the study names,
so no file in it can shadow an installed package.
"""

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType, ModuleType

from afor.bench.common.errors import ConfigError

ADVICE = (
    "Install it in this environment, put its folder on PYTHONPATH, or put the module beside the "
    "study file."
)

_folders: list[Path] = []  # folders of the study files that were read in this process
used_folders: list[str] = []  # those that were appended to sys.path, also for other machines


def look_beside(study_file: Path) -> None:
    """Look up modules in the folder of a study file, too."""
    folder = study_file.resolve().parent
    if folder in _folders:
        _folders.remove(folder)
    _folders.append(folder)


def import_named(target: str, role: str, advice: str = ADVICE) -> ModuleType:
    """Import the module of `module:name`.

    Args:
        target: The name, as in a study or a spec.
        role: The role of the object in messages, such as "trainer".
        advice: What the user can do if the module cannot be imported.

    Raises:
        ConfigError: The name has another form, or the module cannot be imported.
    """
    module, separator, name = target.partition(":")
    parts = module.split(".")
    if not separator or not all(part.isidentifier() for part in (*parts, name)):
        raise ConfigError(
            f'{role} "{target}" is not of the form module:name, such as my_lab.models:Net. Give '
            f"the full name of a module, a colon and a name in it."
        )
    try:
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != parts[0] or not _use_folder_with(parts[0]):
                raise
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f'{role} "{target}": module "{module}" cannot be imported ({type(error).__name__}: '
            f"{error}). {advice}"
        ) from error


def returns_instance(function: object, expected: type, names: Iterable[str]) -> bool:
    """Return True if a Python function is annotated to return `expected` or a subclass of it.

    Args:
        function: The function.
        expected: The class.
        names: Accepted spellings of a string annotation that is not defined in the function's
            module, because it is imported for type checkers only.
    """
    if not isinstance(function, FunctionType):
        return False
    annotation = function.__annotations__.get("return")
    if isinstance(annotation, str):
        text = annotation.strip("'\" ")
        first, *attributes = text.split(".")
        annotation = function.__globals__.get(first)
        for attribute in attributes:
            annotation = getattr(annotation, attribute, None)
        if annotation is None:
            return text in names
    return isinstance(annotation, type) and issubclass(annotation, expected)


def add_folders(folders: Iterable[str]) -> None:
    """Append the folders that exist to `sys.path`, where they shadow nothing."""
    for folder in folders:
        if folder not in sys.path and Path(folder).is_dir():
            sys.path.append(folder)
            importlib.invalidate_caches()


def _use_folder_with(module: str) -> bool:
    """Append the latest study folder with this module to `sys.path`; return False if none has."""
    for folder in reversed(_folders):
        if (folder / f"{module}.py").is_file() or (folder / module).is_dir():
            if str(folder) not in used_folders:
                used_folders.append(str(folder))
            add_folders([str(folder)])
            return True
    return False
