"""Read the arrays out of a pickle without running it.

A pickle is a program, and ``pickle.load`` runs it. This reader interprets the few instructions of a
pickled dict of numpy arrays: it imports nothing, calls nothing and builds only dict, tuple, str,
bytes, numbers and arrays. A name such as ``numpy.dtype`` is only compared, never looked up. All
other instructions are refused, and every length is checked against the size of the file.
"""

import codecs
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import DataError
from afor.bench.common.files import read_limited

MAX_BYTES = 256 << 20  # a DEAP file has 103 MB; re-saved by Python 3 up to 1.5 times that
MAX_INSTRUCTIONS = 10_000
MAX_TEXT = 4096
MAX_AXES = 4
PIECE_BYTES = 1 << 20
LAST_LATIN1_LEAD = 0xC3  # UTF-8 bytes above it start characters that are not in latin1


@dataclass(frozen=True)
class Name:
    """The name of a global in the pickle: compared, never imported."""

    module: str
    name: str


RECONSTRUCT = {
    Name("numpy.core.multiarray", "_reconstruct"),
    Name("numpy._core.multiarray", "_reconstruct"),
}
NDARRAY = Name("numpy", "ndarray")
DTYPE = Name("numpy", "dtype")
ENCODE = Name("_codecs", "encode")
ALLOWED = RECONSTRUCT | {NDARRAY, DTYPE, ENCODE}
FLOAT_CODES = ("f4", "f8")


class Mark:
    """Marks the start of a tuple or of items on the stack."""


@dataclass(eq=False)
class FloatType:
    """A float dtype under construction: the code first, the byte order by BUILD."""

    code: str
    order: str = "="


@dataclass(eq=False)
class ArrayShell:
    """An array under construction; ``value`` is set by BUILD."""

    value: NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class _Text:
    """Text of the file, not yet decoded."""

    raw: memoryview


class _RefusedError(Exception):
    """The content is not allowed; the message gives the reason."""


def read_arrays(path: Path, *, max_bytes: int = MAX_BYTES) -> dict[str, NDArray[np.floating]]:
    """Return the float arrays of a pickled dict, read-only; raise DataError if it is not one.

    Nothing in the file is executed.
    """
    content = read_limited(path, max_bytes)
    try:
        return _checked(_Machine(content).run())
    except _RefusedError as refusal:
        raise DataError(
            f"{path}: not a plain pickle of float arrays, refused without running it: {refusal}. "
            "Use the original download."
        ) from None


def _checked(result: object) -> dict[str, NDArray[np.floating]]:
    if type(result) is not dict:
        raise _RefusedError(f"the content is a {type(result).__name__}, expected a dict")
    arrays = {}
    for key, value in result.items():
        if type(key) is bytes:
            key = key.decode("latin-1")
        if type(key) is not str or not isinstance(value, ArrayShell) or value.value is None:
            raise _RefusedError(f"entry {key!r} is no array of floats")
        arrays[key] = value.value
    return arrays


class _Machine:
    """Interpret the allowed instructions one by one."""

    def __init__(self, content: bytes) -> None:
        self.content = memoryview(content)
        self.position = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.count = 0
        self.decoded_bytes = 0

    def run(self) -> object:
        for count in range(MAX_INSTRUCTIONS):
            code = bytes(self.take(1))
            if code == b".":
                if len(self.stack) != 1 or self.position != len(self.content):
                    raise _RefusedError("data after the end, or an unfinished structure")
                return self.stack[0]
            instruction = INSTRUCTIONS.get(code)
            if instruction is None:
                raise _RefusedError(
                    f"instruction {code!r} at byte {self.position - 1} is not allowed"
                )
            self.count = count
            instruction(self)
        raise _RefusedError(f"more than {MAX_INSTRUCTIONS} instructions")

    # Reading -----------------------------------------------------------------------------------

    def take(self, n: int) -> memoryview:
        if n < 0 or n > len(self.content) - self.position:
            raise _RefusedError(f"it ends early: {n} bytes wanted at byte {self.position}")
        self.position += n
        return self.content[self.position - n : self.position]

    def number(self, layout: str) -> int:
        return int(struct.unpack(layout, self.take(struct.calcsize(layout)))[0])

    def line(self) -> str:
        piece = bytes(self.content[self.position : self.position + MAX_TEXT])
        end = piece.find(b"\n")
        if end < 0:
            raise _RefusedError(f"a line without an end at byte {self.position}")
        self.position += end + 1
        return piece[:end].decode("latin-1")

    def pop(self) -> Any:
        if not self.stack:
            raise _RefusedError("it takes from an empty stack")
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        for i in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[i], Mark):
                items = self.stack[i + 1 :]
                del self.stack[i:]
                return items
        raise _RefusedError("a structure without a beginning")

    # Instructions ------------------------------------------------------------------------------

    def text(self, length: int) -> None:
        # Text is kept as bytes and decoded only if a word or samples are expected.
        self.stack.append(_Text(self.take(length)))

    def bytes_(self, length: int) -> None:
        self.stack.append(self.take(length))

    def tuple_(self, n: int) -> None:
        self.stack.append(tuple([self.pop() for _ in range(n)][::-1]))

    def name(self, module: str, name: str) -> None:
        target = Name(module, name)
        if target not in ALLOWED:
            raise _RefusedError(f"it asks for {module}.{name}")
        self.stack.append(target)

    def stack_name(self) -> None:
        name, module = self.pop(), self.pop()
        self.name(_word(module), _word(name))

    def put(self, index: int) -> None:
        if not self.stack or index > self.count:
            raise _RefusedError(f"it stores a value under number {index}")
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise _RefusedError(f"it recalls value {index}, which was never stored")
        self.stack.append(self.memo[index])

    def set_items(self, items: list[Any]) -> None:
        if not self.stack or type(self.stack[-1]) is not dict or len(items) % 2:
            raise _RefusedError("items for something that is no dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.stack[-1][_word(key)] = value

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if type(arguments) is not tuple:
            raise _RefusedError("a call without an argument list")
        self.stack.append(_call(self, function, arguments))

    def build(self) -> None:
        state = self.pop()
        target = self.stack[-1] if self.stack else None
        if type(state) is not tuple:
            raise _RefusedError("a state that is no tuple")
        if isinstance(target, FloatType):
            _build_type(target, state)
        elif isinstance(target, ArrayShell):
            _build_array(target, state)
        else:
            raise _RefusedError("a state for something that is no array")


def _word(value: Any) -> str:
    """Decode a short text: a key, a module or a type code."""
    raw = value.raw if isinstance(value, _Text) else value
    if not isinstance(raw, memoryview) or len(raw) > MAX_TEXT:
        raise _RefusedError("a word was expected")
    return bytes(raw).decode("latin-1")


def _call(machine: _Machine, function: Any, arguments: tuple[Any, ...]) -> Any:
    """Return the result of one of the allowed functions, for the arguments that numpy writes."""
    if isinstance(function, Name) and function in RECONSTRUCT:
        if len(arguments) == 3 and arguments[:2] == (NDARRAY, (0,)) and _word(arguments[2]) == "b":
            return ArrayShell()
    elif function == DTYPE:
        code = _word(arguments[0]) if len(arguments) == 3 else ""
        if code in FLOAT_CODES and arguments[1] in (0, False) and arguments[2] in (1, True):
            return FloatType(code)
    elif function == ENCODE and len(arguments) == 2 and isinstance(arguments[0], _Text):
        # The same text can be decoded many times: limit the sum.
        machine.decoded_bytes += len(arguments[0].raw)
        if machine.decoded_bytes > len(machine.content):
            raise _RefusedError("it decodes more text than it has")
        if _word(arguments[1]) == "latin1":
            return _latin1(arguments[0].raw)
    raise _RefusedError("a call with unusual arguments")


def _latin1(utf8: memoryview) -> memoryview:
    """Convert UTF-8 text of characters below 256 to latin-1 bytes, piece by piece."""
    if len(utf8) and np.frombuffer(utf8, np.uint8).max() > LAST_LATIN1_LEAD:
        raise _RefusedError("bytes stored as text that is not latin1")
    decoder, out = codecs.getincrementaldecoder("utf-8")(), bytearray()
    try:
        for start in range(0, len(utf8), PIECE_BYTES):
            out += decoder.decode(utf8[start : start + PIECE_BYTES]).encode("latin-1")
        decoder.decode(b"", final=True)
    except UnicodeError:
        raise _RefusedError("bytes stored as text that is not latin1") from None
    return memoryview(out).toreadonly()


def _build_type(target: FloatType, state: tuple[Any, ...]) -> None:
    if len(state) != 8 or state[0] != 3 or state[2:] != (None, None, None, -1, -1, 0):
        raise _RefusedError("an unusual number type")
    order = _word(state[1])
    if order not in "<>=|" or len(order) != 1:
        raise _RefusedError(f"byte order {order!r}")
    target.order = order


def _build_array(target: ArrayShell, state: tuple[Any, ...]) -> None:
    if len(state) != 5 or state[0] != 1 or not isinstance(state[2], FloatType):
        raise _RefusedError("an array of something else than floats")
    _, shape, float_type, is_fortran, samples = state
    raw = samples.raw if isinstance(samples, _Text) else samples
    if type(shape) is not tuple or not all(type(n) is int and n >= 0 for n in shape):
        raise _RefusedError("a shape that is no tuple of sizes")
    dtype = np.dtype(float_type.order.replace("|", "=") + float_type.code)
    expected_bytes = dtype.itemsize * math.prod(shape)
    if not isinstance(raw, memoryview) or len(raw) != expected_bytes or len(shape) > MAX_AXES:
        raise _RefusedError(f"an array of {len(shape)} axes without its {expected_bytes} bytes")
    if is_fortran not in (0, 1, False, True):
        raise _RefusedError("an unusual array")
    target.value = np.frombuffer(raw, dtype).reshape(shape, order="F" if is_fortran else "C")


def _protocol(machine: _Machine) -> None:
    if not 2 <= machine.number("<B") <= 5:
        raise _RefusedError("an unknown pickle protocol")


def _frame(machine: _Machine) -> None:
    length = machine.number("<Q")
    if length > len(machine.content) - machine.position:
        raise _RefusedError("a frame longer than the file")


def _long(machine: _Machine) -> None:
    size = machine.number("<B")
    if size > 8:
        raise _RefusedError("an oversized number")
    machine.stack.append(int.from_bytes(machine.take(size), "little", signed=True))


def _text_integer(machine: _Machine) -> None:
    """Protocol 1 writes True and False as the lines I01 and I00."""
    line = machine.line()
    if line not in ("00", "01"):
        raise _RefusedError("a number written as text")
    machine.stack.append(line == "01")


INSTRUCTIONS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _protocol,
    b"\x95": _frame,
    b"(": lambda m: m.stack.append(Mark()),
    b"}": lambda m: m.stack.append({}),
    b")": lambda m: m.stack.append(()),
    b"t": lambda m: m.stack.append(tuple(m.pop_to_mark())),
    b"\x85": lambda m: m.tuple_(1),
    b"\x86": lambda m: m.tuple_(2),
    b"\x87": lambda m: m.tuple_(3),
    b"N": lambda m: m.stack.append(None),
    b"\x88": lambda m: m.stack.append(True),
    b"\x89": lambda m: m.stack.append(False),
    b"I": _text_integer,
    b"K": lambda m: m.stack.append(m.number("<B")),
    b"M": lambda m: m.stack.append(m.number("<H")),
    b"J": lambda m: m.stack.append(m.number("<i")),
    b"\x8a": _long,
    b"U": lambda m: m.text(m.number("<B")),
    b"T": lambda m: m.text(m.number("<i")),
    b"\x8c": lambda m: m.text(m.number("<B")),
    b"X": lambda m: m.text(m.number("<I")),
    b"\x8d": lambda m: m.text(m.number("<Q")),
    b"C": lambda m: m.bytes_(m.number("<B")),
    b"B": lambda m: m.bytes_(m.number("<I")),
    b"\x8e": lambda m: m.bytes_(m.number("<Q")),
    b"c": lambda m: m.name(m.line(), m.line()),
    b"\x93": lambda m: m.stack_name(),
    b"q": lambda m: m.put(m.number("<B")),
    b"r": lambda m: m.put(m.number("<I")),
    b"\x94": lambda m: m.put(len(m.memo)),
    b"h": lambda m: m.get(m.number("<B")),
    b"j": lambda m: m.get(m.number("<I")),
    b"s": lambda m: m.set_items([m.pop(), m.pop()][::-1]),
    b"u": lambda m: m.set_items(m.pop_to_mark()),
    b"R": lambda m: m.reduce(),
    b"b": lambda m: m.build(),
}
