"""Read the arrays out of a pickle without running what it asks for.

A pickle is a program, and ``pickle.load`` runs it. Here the standard library's own interpreter, in
Python, runs only the instructions of a pickled dict of numpy arrays. The five names that such a
file asks for are stand-ins defined below; numpy sees nothing but the checked shape and the bytes.
"""

import math
import pickle
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import DataError

MAX_BYTES = 256 << 20  # a DEAP file has 103 MB; re-saved by Python 3 up to 1.5 times that
MAX_READS = 30_000  # an instruction reads once to three times
MAX_LINE = 4096
MAX_AXES = 4
MAX_NUMBER_BYTES = 8
FLOAT_CODES = ("f4", "f8")
INSTRUCTIONS = (
    "PROTO STOP MARK EMPTY_DICT EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 NONE NEWTRUE NEWFALSE INT "
    "BININT BININT1 BININT2 BINSTRING SHORT_BINSTRING BINUNICODE SHORT_BINUNICODE BINUNICODE8 "
    "BINBYTES SHORT_BINBYTES BINBYTES8 GLOBAL STACK_GLOBAL BINPUT LONG_BINPUT MEMOIZE BINGET "
    "LONG_BINGET SETITEM SETITEMS REDUCE"
)
_INTERPRETER: Any = pickle._Unpickler  # the one in C allocates as much memory as a file asks for
_STANDARD = {
    code: _INTERPRETER.dispatch[code]
    for code in (getattr(pickle, name)[0] for name in INSTRUCTIONS.split())
}


class _RefusedError(Exception):
    """The content is not allowed; the message gives the reason."""


class _Float:
    """Stands in for ``numpy.dtype``: a float type, whose byte order comes with its state."""

    def __init__(self, code: Any = None, *_options: Any) -> None:
        self.code = code.decode() if isinstance(code, bytes) else code
        if self.code not in FLOAT_CODES:
            raise _RefusedError("an array of something else than floats")
        self.order = "="

    def set_state(self, state: Any) -> None:
        version, order, *fields = state
        order = order.decode() if isinstance(order, bytes) else order
        if version != 3 or order not in ("<", ">", "=", "|") or fields != [None] * 3 + [-1, -1, 0]:
            raise _RefusedError("an unusual number type")
        self.order = order.replace("|", "=")


class _Array:
    """Stands in for ``numpy.ndarray``; the samples come with its state."""

    def __init__(self) -> None:
        self.value: NDArray[np.floating] | None = None

    def set_state(self, state: Any) -> None:
        version, shape, float_type, is_fortran, samples = state
        if version != 1 or not isinstance(float_type, _Float) or is_fortran not in (0, 1):
            raise _RefusedError("an unusual array")
        if not all(type(n) is int and n >= 0 for n in shape) or len(shape) > MAX_AXES:
            raise _RefusedError("a shape that is no tuple of sizes")
        dtype = np.dtype(float_type.order + float_type.code)
        expected = dtype.itemsize * math.prod(shape)
        if type(samples) is not bytes or len(samples) != expected:
            raise _RefusedError(f"an array without its {expected} bytes")
        order = "F" if is_fortran else "C"
        self.value = np.frombuffer(samples, dtype).reshape(shape, order=order)  # type: ignore[call-overload]


class _LimitedFile:
    """A file that gives at most its own bytes, in a limited number of reads."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.left, self.reads = file, size, 0

    def read(self, size: int) -> bytes:
        self.reads += 1
        if size < 0 or size > self.left:
            raise _RefusedError(f"it ends early: {size} bytes wanted, {self.left} are left")
        if self.reads > MAX_READS:
            raise _RefusedError("too many instructions")
        self.left -= size
        return self.file.read(size)

    def readline(self) -> bytes:
        line = self.file.readline(MAX_LINE)
        if not line.endswith(b"\n"):
            raise _RefusedError("a line without an end")
        self.left -= len(line)
        return line


class _ArrayUnpickler(_INTERPRETER):  # type: ignore[misc]
    """The standard interpreter with few instructions and stand-ins for all names."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.source = _LimitedFile(file, size)
        self.to_decode = size  # the same text can be decoded many times: limit the sum
        super().__init__(self.source, encoding="bytes")

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for a name of the file; nothing is imported."""
        stand_ins = {
            "numpy.core.multiarray._reconstruct": lambda *_arguments: _Array(),
            "numpy._core.multiarray._reconstruct": lambda *_arguments: _Array(),
            "numpy.ndarray": None,
            "numpy.dtype": _Float,
            "_codecs.encode": self._encode,
        }
        if (full_name := f"{module}.{name}") not in stand_ins:
            raise _RefusedError(f"it asks for {full_name[:100]}")
        return stand_ins[full_name]

    def _encode(self, text: Any, encoding: Any) -> bytes:
        """Return the bytes that Python 3 writes as text in protocols below 3."""
        self.to_decode -= len(text)
        if self.to_decode < 0 or encoding not in ("latin1", b"latin1"):
            raise _RefusedError("it decodes more text than it has, or not as latin1")
        encoded: bytes = text.encode("latin-1")
        return encoded

    def _load_frame(self) -> None:
        self.read(8)  # frames only group reads

    def _load_build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Float | _Array):
            raise _RefusedError("a state for something that is no array")
        self.stack[-1].set_state(state)

    def _load_long(self) -> None:
        size = self.read(1)[0]
        if size > MAX_NUMBER_BYTES:
            raise _RefusedError("an oversized number")
        self.append(int.from_bytes(self.read(size), "little", signed=True))

    dispatch: ClassVar[dict[int, Any]] = {
        **_STANDARD,
        pickle.FRAME[0]: _load_frame,
        pickle.BUILD[0]: _load_build,
        pickle.LONG1[0]: _load_long,
    }


def read_arrays(path: Path, *, max_bytes: int = MAX_BYTES) -> dict[str, NDArray[np.floating]]:
    """Return the float arrays of a pickled dict, read-only; raise DataError if it is not one.

    Nothing that the file names is imported or called.
    """
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise DataError(f"{path}: {size} bytes are more than the limit of {max_bytes}.")
        with path.open("rb") as file:
            reader = _ArrayUnpickler(file, size)
            return _checked(reader.load(), reader.source.left)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001
        # What a damaged program does to its interpreter: a missing operand, a call of a number.
        raise DataError(
            f"{path}: not a plain pickle of float arrays, refused without running it: "
            f"{_reason(error)}. Use the original download."
        ) from None


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError) and isinstance(error.args[0], int):
        return f"instruction {error.args[0]:#04x} is not allowed"
    return str(error)[:200] if isinstance(error, _RefusedError) else type(error).__name__


def _checked(result: Any, left: int) -> dict[str, NDArray[np.floating]]:
    if left:
        raise _RefusedError(f"{left} bytes after the end")
    if type(result) is not dict:
        raise _RefusedError(f"the content is a {type(result).__name__}, expected a dict")
    arrays = {}
    for key, value in result.items():
        name = key.decode("latin-1") if type(key) is bytes else key
        if type(name) is not str or not isinstance(value, _Array) or value.value is None:
            raise _RefusedError("an entry that is no array of floats")
        arrays[name] = value.value
    return arrays
