"""Buffers in which the for-loop updates small tensors together, kept between steps.

On CPU the time of a small tensor goes into calling operators. `Row` copies the tensors of a group
into flat tensors, so that each operator runs once for all of them; `ControlTable` does the same for
their control states, which Python reads and writes as floats. Allocating the buffers and the views
of them takes as long as the rest of the step, so a `Pool` keeps them.
"""

import threading
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from afor.control import FIELDS, Coefficients
from afor.sums import positions, reduce_segments, sum_dtype
from afor.torch_private import foreach_copy_

MAX_KEPT = 1 << 18  # elements in all rows that are kept; a row takes 84 bytes for each in float32


class _Poolable(Protocol):
    key: tuple[Any, ...]
    elements: int


Kept = TypeVar("Kept", bound=_Poolable)


class Pool(threading.local, Generic[Kept]):
    """Objects of one thread kept for later steps; each belongs to one step at a time."""

    def __init__(self, build: Callable[..., Kept]) -> None:
        self._build = build
        self._free: dict[tuple[Any, ...], list[Kept]] = {}
        self._elements = 0  # in all of them

    def take(self, *arguments: Any) -> Kept:
        """Return an object built with these arguments that no other step uses."""
        key = (*arguments, torch.is_inference_mode_enabled())  # its tensors stay in this mode
        free = self._free.get(key)
        if free:
            kept = free.pop()
            self._elements -= kept.elements
        else:
            kept = self._build(*arguments)
            kept.key = key
        return kept

    def give_back(self, kept: Kept) -> None:
        """Keep an object for the next step that asks for its arguments."""
        if self._elements + kept.elements > MAX_KEPT:
            self._free, self._elements = {}, 0
        self._free.setdefault(kept.key, []).append(kept)
        self._elements += kept.elements


class SharedNumbers:
    """Numbers in memory that Python reads and writes without calling an operator of torch."""

    def __init__(self, count: int, dtype: torch.dtype) -> None:
        self._code, dtype = ("f", dtype) if dtype == torch.float32 else ("d", torch.float64)
        self._memory = array(self._code, [0.0]) * count
        self.tensor = torch.frombuffer(self._memory, dtype=dtype)

    def read(self) -> list[float]:
        """Return the numbers."""
        return self._memory.tolist()

    def write(self, numbers: Sequence[float]) -> None:
        """Replace all numbers."""
        self._memory[:] = array(self._code, numbers)


class ControlTable:
    """The control states and step counts of some tensors, as floats."""

    key: tuple[Any, ...]

    def __init__(self, tensors: int, dtype: torch.dtype) -> None:
        self.elements = tensors
        self._numbers = SharedNumbers((len(FIELDS) + 1) * tensors, dtype)
        controls, steps = torch.split(self._numbers.tensor, [len(FIELDS) * tensors, tensors])
        self._views = [*controls.view(tensors, -1).unbind(), *steps.unbind()]

    def read(self, stored: list[Tensor]) -> list[float]:
        """Return the numbers of the control states, then the step counts."""
        foreach_copy_(self._views, stored)
        return self._numbers.read()

    def write(self, stored: list[Tensor], numbers: list[float]) -> None:
        """Store new numbers, in the same order."""
        self._numbers.write(numbers)
        foreach_copy_(stored, self._views)


class Row:
    """Small tensors, concatenated.

    They are copied into flat tensors, updated there and copied back; each element goes through the
    arithmetic of the for-loop. No tensor is modified before `finish`.
    """

    key: tuple[Any, ...]

    def __init__(self, shapes: tuple[torch.Size, ...], work: torch.dtype) -> None:
        self._sizes = tuple(shape.numel() for shape in shapes)
        self._tensors: list[Tensor] = []
        self.elements = elements = sum(self._sizes)
        cpu = torch.device("cpu")
        flat = torch.empty((4, elements), dtype=work, device=cpu)
        self._views = [
            piece.view(shape)
            for column in flat.unbind()
            for piece, shape in zip(torch.split(column, list(self._sizes)), shapes, strict=True)
        ]
        self._grad, self._momentum, self._param, self._square = flat.unbind()
        self._read = flat[:2]  # gradient and first moment
        self._wide = torch.empty((2, elements), dtype=sum_dtype(cpu), device=cpu)
        self._wide_grad, self._wide_momentum = self._wide.unbind()
        terms = torch.empty((5, elements), dtype=sum_dtype(cpu), device=cpu)
        self._terms = terms.view(-1)
        self._residual, self._moved, _, _, self._product = terms.unbind()
        self._absolute, self._squares = terms[:2], terms[2:4]
        self._numbers = SharedNumbers(3 * len(shapes), work)
        self._coefficients = torch.empty((3, elements), dtype=work, device=cpu)

    def begin(self, *lists: list[Tensor], beta1: float, maximize: bool) -> Tensor:
        """Copy params, grads, exp_avgs and exp_avg_sqs; return the five sums, (5, tensors)."""
        params, grads, exp_avgs, exp_avg_sqs = lists
        self._tensors = [*exp_avgs, *params, *exp_avg_sqs]
        foreach_copy_(self._views, [*grads, *self._tensors])
        if maximize:
            self._grad.neg_()
        self._wide.copy_(self._read)
        torch.sub(self._wide_grad, self._wide_momentum, out=self._residual)
        self._moved.copy_(self._momentum.lerp_(self._grad, 1.0 - beta1))
        self._absolute.abs_()
        torch.mul(self._wide, self._wide, out=self._squares)
        torch.mul(self._wide_grad, self._wide_momentum, out=self._product)
        return reduce_segments(self._terms, self._sizes)

    def finish(
        self, coefficients: Coefficients, *, lr: float | Tensor, weight_decay: float, largest: float
    ) -> None:
        """Update moments and parameters and copy them back."""
        numbers = [number for column in coefficients for number in column]
        if isinstance(numbers[0], Tensor):
            table = torch.stack(numbers).to(self._param.dtype)
        else:
            self._numbers.write(numbers)
            table = self._numbers.tensor
        places = positions(self._sizes)
        torch.index_select(table.view(3, -1), 1, places, out=self._coefficients)
        weight, factor, denominator = self._coefficients.unbind()
        self._square.clamp_max_(largest).lerp_(self._grad.square_(), weight)
        denominator.addcmul_(self._square.sqrt(), factor)
        if weight_decay != 0.0:
            self._param.mul_(1.0 - lr * weight_decay)
        if isinstance(lr, Tensor):
            self._param.sub_((self._momentum / denominator).mul_(lr))
        else:
            self._param.addcdiv_(self._momentum, denominator, value=-lr)
        foreach_copy_(self._tensors, self._views[len(self._sizes) :])
        self._tensors = []


ROWS = Pool(Row)
TABLES = Pool(ControlTable)
