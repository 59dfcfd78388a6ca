"""Read MATLAB 5 files (.mat): numbers, texts, cells and structs.

Every length is checked against the size of the file, and unpacked data against a limit, before
memory is allocated; SciPy's reader does not do so.
"""

import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from afor.bench.common.errors import DataError
from afor.bench.common.files import read_limited

MAX_VARIABLE_BYTES = 256 << 20  # a session of BCI IV 2a unpacks to 134 MB
MAX_KEPT_BYTES = 512 << 20  # six channels of a long ISRUC night: 320 MB
MAX_DEPTH = 16
MAX_ELEMENTS = 100_000
HEADER_BYTES = 128
COMPRESSED, MATRIX = 15, 14
NUMBERS = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
    16: "u1",
}  # fmt: skip
CLASSES = {
    6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8",
}  # fmt: skip
CELL, STRUCT, CHAR = 1, 2, 4


class _BrokenError(Exception):
    """The file is damaged; the message says where."""


def read_mat(path: Path, wanted: set[str] | None = None) -> dict[str, Any]:
    """Return the wanted variables of a MATLAB file by name, or all; raise DataError if not valid.

    Values are arrays and texts; a cell array is a list, a struct a list of dicts.
    """
    content = read_limited(path, MAX_KEPT_BYTES)
    if content[:8] == b"\x89HDF\r\n\x1a\n" or content[:10] == b"MATLAB 7.3":
        raise DataError(f"{path}: a MATLAB 7.3 file; save it with '-v7'.")
    if len(content) < HEADER_BYTES or content[126:128] not in (b"IM", b"MI"):
        fault = "empty" if not content else "no MATLAB 5 file"
        raise DataError(f"{path}: {fault}. Fetch the file again.")
    if content[126:128] == b"MI":
        raise DataError(f"{path}: written on a big-endian machine, which is not supported.")
    try:
        return _Reader(wanted).variables(memoryview(content)[HEADER_BYTES:])
    except (_BrokenError, zlib.error) as fault:
        raise DataError(f"{path}: damaged MATLAB file: {fault}. Fetch the file again.") from None


class _Reader:
    """Read the nested elements and limit the unpacked data."""

    def __init__(self, wanted: set[str] | None) -> None:
        self.wanted = wanted
        self.kept = 0
        self.elements = 0

    def variables(self, data: memoryview) -> dict[str, Any]:
        variables: dict[str, Any] = {}
        while len(data):
            type_code, body, data = self.element(data)
            if type_code == COMPRESSED:
                type_code, body, _ = self.element(self.unpack(body))
            if type_code != MATRIX:
                raise _BrokenError(f"element of type {type_code} where a variable should be")
            name, value = self.matrix(body, depth=0)
            if self.wanted is None or name in self.wanted:
                variables[name] = value
                self.kept += len(body)
            if self.kept > MAX_KEPT_BYTES:
                raise _BrokenError(f"more than {MAX_KEPT_BYTES} bytes of data")
        return variables

    def unpack(self, body: memoryview) -> memoryview:
        stream = zlib.decompressobj()
        plain = stream.decompress(body, MAX_VARIABLE_BYTES)
        if stream.unconsumed_tail or not stream.eof:
            raise _BrokenError("a compressed part is cut short or unpacks beyond the limit")
        return memoryview(plain)

    def element(self, data: memoryview) -> tuple[int, memoryview, memoryview]:
        """Return the type and content of the first element, and the data after it."""
        self.elements += 1
        if len(data) < 8 or self.elements > MAX_ELEMENTS:
            raise _BrokenError("an element is cut short" if len(data) < 8 else "too many elements")
        type_code, size = struct.unpack_from("<II", data)
        if type_code >> 16:  # small element: type and size share four bytes, the content follows
            type_code, size = type_code & 0xFFFF, type_code >> 16
            if size > 4:
                raise _BrokenError("a small element of impossible size")
            return type_code, data[4 : 4 + size], data[8:]
        if size > len(data) - 8:
            raise _BrokenError(f"an element wants {size} bytes, {len(data) - 8} are left")
        # Compressed elements are not padded to 8 bytes, all others are.
        end = 8 + size if type_code == COMPRESSED else 8 + size + (-size % 8)
        return type_code, data[8 : 8 + size], data[min(end, len(data)) :]

    def numbers(self, data: memoryview) -> tuple[np.ndarray[Any, Any], memoryview]:
        type_code, body, rest = self.element(data)
        if type_code not in NUMBERS:
            raise _BrokenError(f"numbers of unknown type {type_code}")
        dtype = np.dtype("<" + NUMBERS[type_code])
        if len(body) % dtype.itemsize:
            raise _BrokenError("numbers are cut short")
        return np.frombuffer(body, dtype), rest

    def matrix(self, body: memoryview, depth: int) -> tuple[str, Any]:
        if depth > MAX_DEPTH:
            raise _BrokenError("nested too deeply")
        if not len(body):
            return "", np.empty((0, 0))
        flags, rest = self.numbers(body)
        shape_numbers, rest = self.numbers(rest)
        name_bytes, rest = self.numbers(rest)
        if flags.size < 1 or shape_numbers.size < 2 or shape_numbers.dtype != np.dtype("<i4"):
            raise _BrokenError("an array without size")
        shape = tuple(int(n) for n in shape_numbers)
        count = math.prod(shape)
        if min(shape) < 0 or len(shape) > MAX_DEPTH:
            raise _BrokenError("an array of impossible shape")
        type_code = int(flags[0]) & 0xFF
        name = name_bytes.tobytes().decode("latin-1")
        if type_code in CLASSES:
            is_complex = bool(flags[0] & 0x800)
            return name, self.array(rest, CLASSES[type_code], shape, is_complex=is_complex)
        if type_code == CHAR:
            return name, self.text(rest, count)
        if type_code == CELL:
            return name, self.cells(rest, count, depth)
        if type_code == STRUCT:
            return name, self.structs(rest, count, depth)
        return name, None  # functions, objects and sparse arrays are not supported

    def array(
        self, data: memoryview, dtype: str, shape: tuple[int, ...], *, is_complex: bool
    ) -> np.ndarray[Any, Any]:
        values, _ = self.numbers(data)
        if values.size != math.prod(shape) or is_complex:
            raise _BrokenError(f"an array of {math.prod(shape)} numbers holds {values.size}")
        with np.errstate(invalid="ignore"):  # a damaged value may not fit; loaders check ranges
            return values.astype("<" + dtype, copy=False).reshape(shape, order="F")

    def text(self, data: memoryview, count: int) -> str:
        codes, _ = self.numbers(data)
        if codes.size != count or codes.dtype.itemsize > 2:
            raise _BrokenError("a text of impossible length")
        return "".join(map(chr, codes.tolist()))

    def cells(self, data: memoryview, count: int, depth: int) -> list[Any]:
        values = []
        if count > MAX_ELEMENTS:
            raise _BrokenError("too many cells")
        for _ in range(count):
            type_code, body, data = self.element(data)
            if type_code != MATRIX:
                raise _BrokenError("a cell without an array")
            values.append(self.matrix(body, depth + 1)[1])
        return values

    def structs(self, data: memoryview, count: int, depth: int) -> list[dict[str, Any]]:
        width, data = self.numbers(data)
        names, data = self.numbers(data)
        if width.size != 1 or not 1 <= int(width[0]) <= 64 or names.size % int(width[0]):
            raise _BrokenError("a struct without field names")
        raw, step = names.tobytes(), int(width[0])
        pieces = (raw[start : start + step] for start in range(0, len(raw), step))
        fields = [piece.split(b"\0")[0].decode("latin-1") for piece in pieces]
        values = iter(self.cells(data, count * len(fields), depth))
        return [{field: next(values) for field in fields} for _ in range(count)]
