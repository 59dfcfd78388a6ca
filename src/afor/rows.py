"""Small tensors of the for-loop, laid end to end: each operator runs once for a row of them.

On CPU the time of a small tensor goes into calling operators. A row of tensors is copied into flat
tensors, updated there and copied back; each element goes through the same arithmetic.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from afor.sums import positions, segment_sums
from afor.torch_private import flatten, foreach_copy_, unflatten

Numbers = Sequence[float] | Sequence[Tensor]  # of each tensor of a row


class Row:
    """Small tensors end to end, on CPU. None of them is written to before `finish`."""

    def __init__(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        exp_avgs: list[Tensor],
        exp_avg_sqs: list[Tensor],
        *,
        beta1: float,
        maximize: bool,
        work: torch.dtype,
        wide: torch.dtype,
    ) -> None:
        self.tensors = [*exp_avgs, *params, *exp_avg_sqs]
        self.sizes = tuple(p.numel() for p in params)
        if params[0].dtype == grads[0].dtype == work == exp_avgs[0].dtype:
            flat = flatten([*grads, *self.tensors]).view(4, -1)
        else:
            columns = (grads, exp_avgs, params, exp_avg_sqs)
            flat = torch.stack([flatten(column).to(work) for column in columns])
        self.grad, self.momentum, self.param, self.square = flat.unbind()
        self.flat = flat[1:]
        if maximize:
            self.grad.neg_()
        grad, before = flat[:2].to(wide, copy=True).unbind()
        moved = self.momentum.lerp_(self.grad, 1.0 - beta1).abs()
        self.sums = segment_sums(grad, before, moved, self.sizes, wide)

    def finish(
        self,
        forgetting: Numbers,
        scale: Numbers,
        shift: Numbers,
        *,
        lr: float | Tensor,
        weight_decay: float,
        largest: float,
    ) -> None:
        """Update moments and parameters, and write them back."""
        numbers = [*forgetting, *scale, *shift]
        if isinstance(numbers[0], Tensor):
            table = torch.stack(numbers).to(self.flat.dtype)
        else:
            table = torch.tensor(numbers, dtype=self.flat.dtype)
        table = table.view(3, -1).index_select(1, positions(self.sizes))
        weight, factor, denominator = table.unbind()
        self.square.clamp_max_(largest).lerp_(self.grad.square_(), weight)
        denominator.addcmul_(self.square.sqrt(), factor)
        if weight_decay != 0.0:
            self.param.mul_(1.0 - lr * weight_decay)
        if isinstance(lr, Tensor):
            self.param.sub_((self.momentum / denominator).mul_(lr))
        else:
            self.param.addcdiv_(self.momentum, denominator, value=-lr)
        foreach_copy_(self.tensors, unflatten(self.flat.view(-1), self.tensors))
