"""MARS (Yuan 2025), AdamW form: AdamW on a gradient corrected by its change since the last step.

The correction is the variance reduction of STORM, scaled by gamma. As in the authors' runs it uses
the gradient of the previous batch instead of a second pass over the same batch, so its only cost is
a copy of the gradient.
"""

from typing import Any

import torch
from torch import Tensor

from afor.bench.optimizers.stepwise import (
    AtLeastZero,
    DecayRate,
    Options,
    StepwiseOptimizer,
    adamw_step,
    require_at_least,
)


class MARS(StepwiseOptimizer):
    """MARS-AdamW with decoupled weight decay, on every tensor.

    Args:
        params, lr, betas, eps, weight_decay: As for torch's AdamW.
        gamma: Scale of the correction of the gradient.
        matrices_only: Use MARS on tensors of two dimensions and AdamW on all others, which is the
            default of the authors' class.
        lr_rest: Learning rate of AdamW; it is scaled like `lr` by a schedule.
        betas_rest: Decay rates of AdamW.
        weight_decay_rest: Weight decay of AdamW.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 3e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        gamma: AtLeastZero = 0.025,
        matrices_only: bool = False,
        lr_rest: float = 3e-3,
        betas_rest: tuple[DecayRate, DecayRate] = (0.9, 0.95),
        weight_decay_rest: AtLeastZero = 0.1,
    ) -> None:
        require_at_least("lr_rest", lr_rest, 0.0)
        if matrices_only and lr == 0.0:
            raise ValueError("lr must be above 0 with matrices_only: lr_rest is kept as a ratio")
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "gamma": gamma, "matrices_only": matrices_only,
            "lr_rest_ratio": lr_rest / lr if lr else 0.0,
            "betas_rest": betas_rest, "weight_decay_rest": weight_decay_rest,
        }  # fmt: skip
        super().__init__(params, defaults)

    def new_state(self, param: Tensor, group: Options) -> Options:
        """Return the state of a tensor before its first step."""
        state = super().new_state(param, group)
        if _uses_mars(param, group):
            # Paper: x_1 = x_0, so the first correction is zero. Here: the previous
            # gradient starts at zero because the authors' code does so.
            state["previous_grad"] = torch.zeros_like(param)
        return state

    def update(self, param: Tensor, grad: Tensor, state: Options, group: Options) -> None:
        """Take one step on one tensor."""
        if _uses_mars(param, group):
            beta1, _ = group["betas"]
            direction = corrected(grad, state["previous_grad"], beta1, group["gamma"])
            state["previous_grad"].copy_(grad)  # the cost of MARS: a copy, not a reference
            adamw_step(param, direction, state, group)
        else:
            rest = {
                "lr": group["lr"] * group["lr_rest_ratio"], "betas": group["betas_rest"],
                "eps": group["eps"], "weight_decay": group["weight_decay_rest"],
            }  # fmt: skip
            adamw_step(param, grad, state, rest)


def _uses_mars(param: Tensor, group: Options) -> bool:
    """Return whether MARS trains a tensor; AdamW trains the others."""
    return param.dim() == 2 or not group["matrices_only"]


def corrected(grad: Tensor, previous: Tensor, beta1: float, gamma: float) -> Tensor:
    """Return c_t = g + γ·β₁/(1−β₁)·(g − g_prev), scaled down to norm 1 if it is longer."""
    change = (grad - previous).mul_(gamma * beta1 / (1 - beta1)).add_(grad)
    return change.div_(change.norm().clamp_min(1.0))
