"""The tensors of a step: their names and lists, its two halves, and one check of what does not fit.

`find_problem` describes the first of a parameter, its gradient and its state that no step may
touch. Who calls it: a step, for tensors that the quick check `fits` does not pass; `checkpoint`,
for each state of a state dict, before anything is copied; the CUDA path. What has passed is
remembered (`known_group`), and the native kernel proves once more, in C, that all addresses lie
inside their storages.
"""

import math
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from afor.control import FIELDS, ControlSettings, Sums

MOMENTS = ("exp_avg", "exp_avg_sq")
STATE = (*MOMENTS, "control", "step")  # the entries of the state of a parameter
_CONTROL_SHAPE = torch.Size([len(FIELDS)])
_CONTROL_DTYPES = (torch.float32, torch.float64)
_STEP_SHAPE = torch.Size()
_device, _layout = attrgetter("device"), attrgetter("layout")


PLAIN = (Tensor, torch.nn.Parameter)  # a subclass may keep its numbers elsewhere


class StepTensors(NamedTuple):
    """Parallel lists, with one entry for each parameter that takes part in a step."""

    params: list[Tensor]
    grads: list[Tensor]
    exp_avgs: list[Tensor]
    exp_avg_sqs: list[Tensor]
    controls: list[Tensor]  # see `control.FIELDS`
    steps: list[Tensor]  # step counts

    @classmethod
    def empty(cls) -> "StepTensors":
        """Return six empty lists."""
        return cls([], [], [], [], [], [])

    def select(self, wanted: Sequence[bool]) -> "StepTensors":
        """Return the lists restricted to the wanted positions."""
        if all(wanted):
            return self
        return StepTensors(
            *([t for t, w in zip(column, wanted, strict=True) if w] for column in self)
        )

    def by_device_and_dtype(self) -> list["StepTensors"]:
        """Split the lists by device and dtypes of the parameters and moments."""
        pairs = zip(self.params, self.exp_avgs, strict=True)
        keys = [(p.device, p.dtype, m.dtype) for p, m in pairs]
        if len(set(keys)) <= 1:
            return [self] if keys else []
        return [self.select([k == key for k in keys]) for key in dict.fromkeys(keys)]


class StepOptions(NamedTuple):
    """The options of a step of one parameter group."""

    settings: ControlSettings
    lr: float | Tensor
    weight_decay: float
    maximize: bool = False
    differentiable: bool = False  # let autograd run through the step
    grad_scale: Tensor | None = None  # of GradScaler: divides the gradients, for `fused`
    found_inf: Tensor | None = None  # of GradScaler: nothing changes if it is not zero
    check_fused: bool = True  # check the CUDA kernels before their first step on a device

    def gradient_factor(self) -> float:
        """Return the sign of the gradients divided by GradScaler's scale; a host sync."""
        sign = -1.0 if self.maximize else 1.0
        return sign if self.grad_scale is None else sign / self.grad_scale.item()

    def is_skipped(self) -> bool:
        """Return True if GradScaler skips the step; a host sync."""
        return self.found_inf is not None and self.found_inf.item() != 0.0


class Implementation:
    """A step on some tensors, in two halves; shards complete their sums in between.

    It is made of `StepTensors` and `StepOptions`, in that order. Gradients are never modified.
    """

    tensors: StepTensors

    def sums(self) -> Sums:
        """Return the five sums of each tensor; only first moments may have been updated then."""
        raise NotImplementedError

    def finish(self, sums: Sums) -> None:
        """Advance the control states with the sums of whole tensors and update, in place."""
        raise NotImplementedError

    def step(self) -> None:
        """Take the step on tensors that are not sharded."""
        self.finish(self.sums())


def is_plain(tensors: Sequence[Tensor]) -> bool:
    """Return True if no tensor is of a subclass."""
    return all(type(t) in PLAIN for t in tensors)


# -------------------------------------------------------------------------- what does not fit


def fits(p: Tensor, grad: Tensor, state: dict[str, Any]) -> bool:
    """Return True if gradient and state are certain to fit the parameter.

    This is quick. When it returns False, `find_problem` says what is wrong, if anything is.
    """
    try:
        exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
        control, step = state["control"], state["step"]
        tensors = (p, grad, exp_avg, exp_avg_sq, control, step)
        return (
            p.shape == grad.shape == exp_avg.shape == exp_avg_sq.shape
            and grad.dtype == p.dtype
            and exp_avg.dtype in (p.dtype, torch.float32)
            and exp_avg_sq.dtype == exp_avg.dtype
            and p.is_complex() == exp_avg.is_complex()
            and control.shape == _CONTROL_SHAPE
            and control.dtype in _CONTROL_DTYPES
            and step.shape == _STEP_SHAPE
            and step.dtype == torch.float32
            and set(map(_device, tensors)) == {p.device}
            and set(map(_layout, tensors)) == {torch.strided}
            and all(map(is_inside_storage, tensors))
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
        value = state.get(name)
        if value is None:
            return f"{name} is missing"
        if not isinstance(value, Tensor):
            return f"{name} is a {type(value).__name__}, expected a tensor"
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
    begin = tensor.storage_offset() * tensor.element_size()
    return begin + span(tensor) <= tensor.untyped_storage().nbytes()


def span(tensor: Tensor) -> int:
    """Return the number of bytes from the first element to the end of the last."""
    elements = tensor.numel()
    if elements and not tensor.is_contiguous():
        sizes = zip(tensor.shape, tensor.stride(), strict=True)
        elements = sum((size - 1) * stride for size, stride in sizes) + 1
    return elements * tensor.element_size()


def checked_rate(lr: Tensor) -> Tensor:
    """Return a learning rate; raise RuntimeError if its storage was freed.

    The compiler traces a step with tensors of its own, which have no storage to look at.
    """
    if not torch.compiler.is_compiling() and not is_inside_storage(lr):
        raise RuntimeError("AFOR cannot step: lr has no storage any more; set it anew")
    return lr


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


def _describe_shape(name: str, tensor: Tensor, expected: torch.Size, verb: str) -> str:
    return f"{name} has shape {tuple(tensor.shape)}, {verb} {tuple(expected)}"
