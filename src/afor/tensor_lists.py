"""What a step works on: its options, and parallel lists of tensors.

The lists are always these six, with one entry for each parameter that has a gradient: params,
grads, exp_avgs, exp_avg_sqs, controls, state_steps. See `afor.update.afor` for their meaning.
"""

from collections.abc import Callable, Sequence
from typing import TypedDict

import torch
from torch import Tensor

from afor.control import ControlSettings, Sums

Columns = list[list[Tensor]]  # parallel lists
# The second half of a step, called with the sums. Shards complete their sums in between.
Finish = Callable[[Sums], None]


class _RequiredOptions(TypedDict):
    settings: ControlSettings
    lr: float | Tensor
    weight_decay: float


class StepOptions(_RequiredOptions, total=False):
    """The options of a step, those of `afor.update.afor`; the last five may be left out."""

    maximize: bool
    differentiable: bool
    grad_scale: Tensor | None
    found_inf: Tensor | None
    check_fused: bool


def gradient_factor(options: StepOptions) -> float:
    """Return the factor of the gradients: the sign divided by GradScaler's scale; a host sync."""
    sign = -1.0 if options.get("maximize") else 1.0
    scale = options.get("grad_scale")
    return sign if scale is None else sign / scale.item()


def select(columns: Sequence[list[Tensor]], wanted: Sequence[bool]) -> Columns:
    """Return the lists restricted to the wanted positions."""
    return [[t for t, w in zip(column, wanted, strict=True) if w] for column in columns]


def by_device_and_dtype(columns: Columns) -> list[Columns]:
    """Split lists, those of a step first, by device and dtypes of the parameters and moments."""
    keys = [(p.device, p.dtype, m.dtype) for p, m in zip(columns[0], columns[2], strict=True)]
    if len(set(keys)) <= 1:
        return [columns] if keys else []
    return [select(columns, [k == key for k in keys]) for key in dict.fromkeys(keys)]


def multiply_grads(columns: Columns, factor: float) -> Columns:
    """Return the lists of a step with gradients multiplied by a factor."""
    if factor == 1.0:
        return columns
    params, grads, *others = columns
    return [params, [grad * factor for grad in grads], *others]


def is_plain(tensors: Sequence[Tensor]) -> bool:
    """Return True if no tensor is of a subclass, which may keep its numbers elsewhere."""
    return all(type(t) in (Tensor, torch.nn.Parameter) for t in tensors)
