"""The state of a parameter: the names of its entries, and one check of what does not fit.

`find_problem` describes the first of a parameter, its gradient and its state that no step may
touch. Who calls it: a step, for tensors that the quick checks `fits` and `KnownStorages` do not
pass; `checkpoint`, for each state of a state dict, before anything is copied; the CUDA path. The
native kernel proves once more, in C, that all addresses lie inside their storages.
"""

import math
from collections.abc import Iterator, Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor

from afor.control import FIELDS

MOMENTS = ("exp_avg", "exp_avg_sq")
STATE = (*MOMENTS, "control", "step")  # the entries of the state of a parameter
_CONTROL_SHAPE = torch.Size([len(FIELDS)])
_CONTROL_DTYPES = (torch.float32, torch.float64)
_STEP_SHAPE = torch.Size()


def fits(p: Tensor, grad: Tensor, state: dict[str, Any]) -> bool:
    """Return True if all shapes and the dtype of the step count are right.

    The quick check of every step. When it fails, `find_problem` says what is wrong, if anything is.
    """
    try:
        shape = p.shape
        return (
            state["exp_avg"].shape == shape
            and state["exp_avg_sq"].shape == shape
            and grad.shape == shape
            and state["control"].shape == _CONTROL_SHAPE
            and state["control"].dtype in _CONTROL_DTYPES
            and state["step"].shape == _STEP_SHAPE
            and state["step"].dtype == torch.float32
        )
    except (KeyError, AttributeError):
        return False


def find_problem(
    p: Tensor, state: dict[str, Any], grad: Tensor | None = None, *, live: bool = True
) -> str | None:
    """Describe the first entry of the state, or the gradient, that does not fit the parameter.

    Args:
        p: The parameter.
        state: Its entries, see `STATE`.
        grad: Its gradient, or None to check only the state.
        live: Whether the entries are those of a step, on the parameter's device; entries of a state
            dict may be of any device and dtype, but their numbers must be valid.

    Returns:
        Text for an error message ("exp_avg has shape ..."), or None if everything fits.
    """
    for name in STATE:
        if not isinstance(state.get(name), Tensor):
            return _describe_missing(name, state.get(name))
    tensors = {name: state[name] for name in STATE}
    if live:
        tensors["the parameter"] = p
    if grad is not None:
        tensors["the gradient"] = grad
    for name, tensor in tensors.items():
        is_moment = name not in ("control", "step")
        if tensor.layout != torch.strided or tensor.is_quantized or (tensor.is_meta and not live):
            return (
                f"{name} is a tensor of dtype {tensor.dtype} and layout {tensor.layout} on "
                f"{tensor.device}, expected a dense tensor with data"
            )
        if tensor.is_complex() != (p.is_complex() and is_moment):
            return f"{name} has dtype {tensor.dtype}, the parameter has {p.dtype}"
        if is_moment and tensor.shape != p.shape:
            return _describe_shape(name, tensor, p.shape, "the parameter has")
        if not is_inside_storage(tensor):
            return f"{name} is larger than its storage, which was freed or cut"
        if live and tensor.device != p.device:
            return f"{name} is on {tensor.device}, the parameter on {p.device}"
        if live and not (tensor.is_floating_point() or tensor.is_complex()):
            return f"{name} has dtype {tensor.dtype}, expected floating-point numbers"
    if state["control"].shape != _CONTROL_SHAPE:
        return _describe_shape("control", state["control"], _CONTROL_SHAPE, "expected")
    if state["step"].numel() != 1:
        return _describe_shape("step", state["step"], _STEP_SHAPE, "expected")
    return None if live else _find_bad_number(state)


def _find_bad_number(state: dict[str, Any]) -> str | None:
    """Describe a step count or control state whose numbers are not valid, or return None."""
    step = float(state["step"])
    if not (math.isfinite(step) and step >= 0):
        return f"step is {step}, expected a step count of at least 0"
    if not bool(torch.isfinite(state["control"]).all()):
        return "control holds a number that is not finite"
    return None


# ------------------------------------------------------------------------------------- storages


def is_inside_storage(tensor: Tensor) -> bool:
    """Return True if the storage of a dense tensor has room for all of its elements.

    A subclass that keeps its numbers elsewhere (DTensor) has no storage of its own to check.
    """
    plain = type(tensor) in (Tensor, torch.nn.Parameter, torch.nn.Buffer)
    if not plain or tensor.layout != torch.strided or tensor.numel() == 0 or tensor.is_meta:
        return True
    last = tensor.numel() - 1
    if not tensor.is_contiguous():
        sizes = zip(tensor.shape, tensor.stride(), strict=True)
        last = sum((size - 1) * stride for size, stride in sizes)
    end = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return end <= tensor.untyped_storage().nbytes()


def checked_rate(lr: Tensor) -> Tensor:
    """Return a learning rate; raise RuntimeError if its storage was freed.

    The compiler traces a step with tensors of its own, which have no storage to look at.
    """
    if not torch.compiler.is_compiling() and not is_inside_storage(lr):
        raise RuntimeError("AFOR cannot step: lr has no storage any more; set it anew")
    return lr


class KnownStorages:
    """Tensors that were found inside their storages, and what shows that they still are.

    To compare addresses and sizes with those of the last step takes a fraction of the full check.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)
        self.addresses = list(map(Tensor.data_ptr, tensors))
        self.storages = list(map(Tensor.untyped_storage, tensors))
        self.sizes = list(map(torch.UntypedStorage.nbytes, self.storages))

    def are_those_of(self, tensors: Sequence[Tensor]) -> bool:
        """Return True if these are the same tensors, in the same memory of the same size."""
        same = len(tensors) == len(self.tensors) and all(map(is_, tensors, self.tensors))
        return same and self.are_memory_of(tensors)

    def are_memory_of(self, tensors: Sequence[Tensor]) -> bool:
        """Return True if these begin in the same memory, in storages of the same size."""
        return (
            list(map(Tensor.data_ptr, tensors)) == self.addresses
            and list(map(torch.UntypedStorage.nbytes, self.storages)) == self.sizes
        )


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield all tensors in nested dicts, lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


# ------------------------------------------------------------------------------------- messages


def parameter_name(group: dict[str, Any], position: int, number: int) -> str:
    """Return a parameter's name (if the group has names) and number for an error message."""
    names = group.get("param_names")
    named = f"{names[position]!r} (number {number})" if names else f"number {number}"
    return f"parameter {named}"


def _describe_missing(name: str, value: Any) -> str:
    if value is None:
        return f"{name} is missing"
    return f"{name} is a {type(value).__name__}, expected a tensor"


def _describe_shape(name: str, tensor: Tensor, expected: torch.Size, verb: str) -> str:
    return f"{name} has shape {tuple(tensor.shape)}, {verb} {tuple(expected)}"
