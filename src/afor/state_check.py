"""Check that a gradient and the optimizer's state fit their parameter.

The same rules hold for a state dict that is loaded and for the live state before a step: moments
have the parameter's shape, the control state has one number for each of `FIELDS`, the step count is
one number, and all are ordinary dense tensors on the parameter's device.
"""

import math
from typing import Any

import torch
from torch import Tensor

from afor.control import FIELDS

MOMENTS = ("exp_avg", "exp_avg_sq")
ENTRIES = (*MOMENTS, "control", "step")  # of the state of a parameter
_CONTROL_SHAPE = torch.Size([len(FIELDS)])
_CONTROL_DTYPES = (torch.float32, torch.float64)
_STEP_SHAPE = torch.Size()


def fits(p: Tensor, grad: Tensor, state: dict[str, Any]) -> bool:
    """Return True if all shapes and the dtype of the step count are right.

    The quick check of every step. When it fails, `find_misfit` says what is wrong, if anything is.
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


def find_misfit(p: Tensor, state: dict[str, Any], grad: Tensor | None = None) -> str | None:
    """Describe the first entry of the state, or the gradient, that does not fit the parameter.

    Args:
        p: The parameter.
        state: Its entries ``exp_avg``, ``exp_avg_sq``, ``control`` and ``step``, all tensors.
        grad: Its gradient, or None to check only the state.

    Returns:
        Text for an error message ("exp_avg has shape ..."), or None if everything fits.
    """
    for name in ENTRIES:
        if not isinstance(state.get(name), Tensor):
            return _describe_missing(name, state.get(name))
    for name in MOMENTS:
        tensor = state[name]
        if tensor.shape != p.shape:
            return _describe_shape(name, tensor, p.shape, "the parameter has")
        if tensor.is_complex() != p.is_complex():
            return f"{name} has dtype {tensor.dtype}, the parameter has {p.dtype}"
    control, step = state["control"], state["step"]
    if control.shape != _CONTROL_SHAPE:
        return _describe_shape("control", control, _CONTROL_SHAPE, "expected")
    if step.numel() != 1:
        return _describe_shape("step", step, torch.Size(), "expected")
    if grad is not None and grad.shape != p.shape:
        return _describe_shape("the gradient", grad, p.shape, "the parameter has")
    return None


def find_misplaced(p: Tensor, state: dict[str, Any]) -> str | None:
    """Describe the first entry that is not a dense tensor on the parameter's device, or None."""
    for name in ENTRIES:
        tensor = state[name]
        if tensor.device != p.device:
            return f"{name} is on {tensor.device}, the parameter on {p.device}"
        if tensor.layout != torch.strided or not tensor.dtype.is_floating_point:
            if name in MOMENTS and tensor.is_complex() and tensor.layout == torch.strided:
                continue
            return (
                f"{name} is a tensor of dtype {tensor.dtype} and layout {tensor.layout}, expected "
                "a dense tensor of floating-point numbers"
            )
    return None


def find_bad_value(state: dict[str, Any]) -> str | None:
    """Describe the first saved entry with another layout, no data or invalid numbers, or None."""
    for name in ENTRIES:
        tensor = state[name]
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
            return (
                f"{name} is a tensor of dtype {tensor.dtype} and layout {tensor.layout} on "
                f"{tensor.device}, expected a dense tensor with data"
            )
    if state["control"].is_complex() or state["step"].is_complex():
        return "control or step is complex, expected real numbers"
    step = float(state["step"])
    if not (math.isfinite(step) and step >= 0):
        return f"step is {step}, expected a step count of at least 0"
    if not bool(torch.isfinite(state["control"]).all()):
        return "control holds a number that is not finite"
    return None


def is_inside_storage(tensor: Tensor) -> bool:
    """Return True if the storage of a dense tensor has room for all of its elements."""
    if tensor.numel() == 0:
        return True
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    end = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return end <= tensor.untyped_storage().nbytes()


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
