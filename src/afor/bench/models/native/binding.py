"""Load the compiled EEGNet and call it on tensors.

The C code checks the number of elements and the alignment of every array before it touches one;
`_address` checks what only torch knows: dtype, layout, and that a tensor lies in its storage.
"""

import ctypes
import functools
import os
import struct
import warnings
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from afor.native.binding import openmp_team
from afor.native.extension import Signature, load_extension, require

ABI = 1
DTYPES = {torch.float32: 0, torch.float64: 1}
SET_VARIABLE = "AFOR_EEGNET_ISA"


class Task(IntEnum):
    """The functions of the library, as `enum which` in eegnet.c."""

    FORWARD = 0
    BACKWARD = 1
    EVALUATION = 2


PARAMETERS = (
    "temporal", "temporal_scale", "temporal_shift",
    "spatial", "spatial_scale", "spatial_shift",
    "depthwise", "pointwise", "separable_scale", "separable_shift",
)  # fmt: skip
# The arrays of a call in the order of eegnet.c.
ARRAYS = (
    "signal", *PARAMETERS, "keep", "second_keep", "moments", "statistics", "saved", "features",
    "grad_features", "scratch", *(f"grad_{name}" for name in PARAMETERS),
)  # fmt: skip
_DTYPE_OF = {
    "keep": torch.bool,
    "second_keep": torch.bool,
    "moments": torch.float64,
    "statistics": torch.float64,
    "scratch": torch.uint8,
}
# `struct call`: sizes, dtype, threads, launcher; epsilons and the factor of dropout; arrays.
_CALL = struct.Struct(f"=14q4d{2 * len(ARRAYS)}q")


_CALLED = (ctypes.c_int64, [ctypes.c_char_p])
_TASKS = ("afor_eegnet_forward", "afor_eegnet_backward", "afor_eegnet_evaluate")
_FUNCTIONS: dict[str, Signature] = {
    **dict.fromkeys(_TASKS, _CALLED),
    "afor_eegnet_elements": (ctypes.c_int64, [ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p]),
    "afor_eegnet_select": (ctypes.c_char_p, [ctypes.c_char_p]),
    "afor_eegnet_selected": (ctypes.c_char_p, []),
}


@functools.cache
def _library() -> ctypes.CDLL | str:
    """Return the loaded library, or the reason why it cannot be used."""
    module = "afor.bench.models.native._eegnet"
    library = load_extension(module, "native EEGNet", "afor_eegnet_abi", ABI, _FUNCTIONS)
    name = os.environ.get(SET_VARIABLE, "")
    if not isinstance(library, str) and library.afor_eegnet_select(os.fsencode(name)) is None:
        problem = (
            f"{SET_VARIABLE}={name} names no instruction set that the native EEGNet has on this "
            "processor; unset the variable to use the best one"
        )
        warnings.warn(f"EEGNet runs without compiled code: {problem}", stacklevel=2)
        return problem
    return library


def instruction_set() -> str | None:
    """Return the instruction set of the native EEGNet, or None if it cannot be used.

    It is the best one the processor supports (``avx2`` or ``default``), or the one that the
    environment variable ``AFOR_EEGNET_ISA`` names when it is first used. Results
    differ in rounding.

    >>> instruction_set() in ("avx2", "default", None)
    True
    """
    library = _library()
    return None if isinstance(library, str) else library.afor_eegnet_selected().decode()


def unavailable_reason() -> str | None:
    """Return the reason why the native EEGNet cannot be used, or None if it can.

    >>> reason = unavailable_reason()
    >>> reason is None or "native EEGNet" in reason
    True
    """
    library = _library()
    return library if isinstance(library, str) else None


class Sizes(NamedTuple):
    """The shape of a batch and of the network, and the type of its numbers.

    With several ``groups``, as many networks are computed side by side on one signal: each has an
    equal share of the filters and outputs, and the dropout masks are shared.
    """

    batch: int
    channels: int
    samples: int
    filters: int
    depth: int
    outputs: int
    kernel: int
    second_kernel: int
    pool: int
    second_pool: int
    groups: int
    dtype: torch.dtype

    @property
    def pooled(self) -> int:
        """Return the length after the first pool."""
        return self.samples // self.pool

    @property
    def second_pooled(self) -> int:
        """Return the length after the second pool."""
        return self.pooled // self.second_pool

    @property
    def maps(self) -> int:
        """Return the number of maps after the spatial filter."""
        return self.filters * self.depth

    def empty(self, task: Task, name: str) -> Tensor:
        """Return an array of the size that a task needs, with undefined contents."""
        dtype = _DTYPE_OF.get(name, self.dtype)
        elements = _elements(self, task)[ARRAYS.index(name)]
        return torch.empty(elements, dtype=dtype, device="cpu")


@functools.lru_cache(maxsize=256)
def _elements(sizes: Sizes, task: Task) -> tuple[int, ...]:
    """Return the number of elements of every array of a task."""
    library = require(_library())
    call = _CALL.pack(*sizes[:11], DTYPES[sizes.dtype], 1, 0, *(4 * [0.0]), *(len(ARRAYS) * (0, 0)))
    elements = (ctypes.c_int64 * len(ARRAYS))()
    if library.afor_eegnet_elements(call, task, elements):
        raise ValueError(f"The native EEGNet has no network of these sizes: {sizes}.")
    return tuple(elements)


def run(
    task: Task,
    sizes: Sizes,
    arrays: dict[str, Tensor | None],
    eps: Sequence[float] = (0.0, 0.0, 0.0),
    keep_factor: float = 1.0,
) -> None:
    """Call one of the functions on tensors by their names in ``ARRAYS``; no mask is no dropout.

    Raises:
        ValueError: An array has another dtype, layout or size than the function needs. Nothing was
            read or written.
        RuntimeError: The native EEGNet cannot be used.
    """
    library = require(_library())
    addresses: list[int] = []
    for name in ARRAYS:
        tensor = arrays.get(name)
        addresses += (0, 0) if tensor is None else _address(name, tensor, sizes.dtype)
    team = torch.get_num_threads(), openmp_team() or 0
    numbers = (*sizes[:11], DTYPES[sizes.dtype], *team, *eps, keep_factor)
    outcome = getattr(library, _TASKS[task])(_CALL.pack(*numbers, *addresses))
    if outcome < 0:
        raise ValueError(f"The native EEGNet has no network of these sizes: {sizes}.")
    if outcome > 0:
        name = ARRAYS[outcome - 1]
        tensor = arrays.get(name)
        raise ValueError(
            f"The native EEGNet needs {_elements(sizes, task)[outcome - 1]} elements of {name}, "
            f"found {0 if tensor is None else tensor.numel()} (or they are not aligned)."
        )


def _address(name: str, tensor: Tensor, dtype: torch.dtype) -> tuple[int, int]:
    """Return address and number of elements of a tensor; raise ValueError if it must be copied."""
    dtype = _DTYPE_OF.get(name, dtype)
    if tensor.device.type != "cpu" or tensor.dtype != dtype or not tensor.is_contiguous():
        raise ValueError(
            f"The native EEGNet needs {name} as a contiguous {dtype} tensor on the CPU, found "
            f"{tensor.dtype} on {tensor.device} with the strides {tensor.stride()}."
        )
    if tensor.is_neg():
        raise ValueError(
            f"The native EEGNet cannot read {name}: its memory holds the negated values. "
            "Give it tensor.resolve_neg()."
        )
    elements = tensor.numel()
    if (tensor.storage_offset() + elements) * tensor.itemsize > tensor.untyped_storage().nbytes():
        raise ValueError(
            f"The native EEGNet cannot read {name}: it is larger than its storage, which was "
            "resized. Give it a storage of its own (tensor.clone())."
        )
    return tensor.data_ptr(), elements
