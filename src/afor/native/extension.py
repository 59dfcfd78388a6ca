"""Load a library that was compiled when the package was installed."""

import ctypes
import importlib.util
from collections.abc import Mapping
from typing import Any

Signature = tuple[Any, list[Any]]  # types of ctypes: of the result and of the arguments


def load_extension(
    module: str, title: str, abi_function: str, abi: int, functions: Mapping[str, Signature]
) -> ctypes.CDLL | str:
    """Return a compiled library with its functions declared, or why it cannot be used.

    Args:
        module: The name that it was built under.
        title: Its name in messages.
        abi_function: The function that returns the version of its interface.
        abi: The expected version.
        functions: The signatures of its functions by name.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return (
            f"the {title} was not built when afor was installed (no working C compiler was "
            "found); install a C compiler and reinstall afor"
        )
    try:
        library = ctypes.CDLL(spec.origin)
        version = getattr(library, abi_function)()
    except (OSError, AttributeError) as error:
        return f"the {title} {spec.origin} does not load: {error}"
    if version != abi:
        return (
            f"the {title} {spec.origin} is of another version (interface {version}, expected "
            f"{abi}); reinstall afor"
        )
    return declare(library, functions)


def declare(library: ctypes.CDLL, functions: Mapping[str, Signature]) -> ctypes.CDLL:
    """Declare the results and arguments of functions of a library, and return it."""
    for name, (result, arguments) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def require(library: ctypes.CDLL | str) -> ctypes.CDLL:
    """Return a library; raise RuntimeError with the reason if it cannot be used."""
    if isinstance(library, str):
        raise RuntimeError(library)
    return library
