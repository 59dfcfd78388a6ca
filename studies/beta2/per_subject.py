"""AdamW with a second moment for each known subject: a ceiling for rules that adapt beta2.

A rule that adapts beta2 can at best notice that another subject has begun. This optimizer is told
so, and keeps the squared gradients of different subjects apart. It is no method for practice.
"""

from typing import Any

import torch
from torch import Tensor

from afor.bench.optimizers.stepwise import (
    Options,
    StepwiseOptimizer,
    adamw_update,
    require_at_least,
)


class PerSubjectAdamW(StepwiseOptimizer):
    """AdamW whose second moment belongs to the subject of the batch; the first is shared.

    The moment of a new subject starts at the one in use before, with the weight of `prior_steps`
    gradients, and is corrected for the weights it lacks as in Adam.

    Args:
        params, lr, betas, eps, weight_decay: As for torch's AdamW.
        prior_steps: Weight of the moment before, in steps; 0 starts every subject at zero.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        prior_steps: int = 10,
    ) -> None:
        require_at_least("prior_steps", prior_steps, 0)
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "prior_steps": prior_steps})
        self._subject = 0

    def for_subject(self, subject: int) -> None:
        """Take the next step on windows of this subject."""
        self._subject = subject

    def new_state(self, param: Tensor, group: Options) -> Options:  # noqa: ARG002
        """Return the state of a tensor before its first step."""
        return {
            "step": 0,
            "exp_avg": torch.zeros_like(param),
            "second": {},  # by subject
            "steps": {},  # by subject, those of the prior included
            "before": self._subject,
        }

    def update(self, param: Tensor, grad: Tensor, state: Options, group: Options) -> None:
        """Take one step on one tensor."""
        beta1, beta2 = group["betas"]
        if self._subject not in state["second"]:
            self._begin_subject(state, param, beta2, group["prior_steps"])
        state["before"] = self._subject
        state["steps"][self._subject] += 1
        first = state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
        second = state["second"][self._subject]
        second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        corrections = 1 - beta1 ** state["step"], 1 - beta2 ** state["steps"][self._subject]
        adamw_update(param, (first, second), corrections, group)

    def _begin_subject(self, state: Options, param: Tensor, beta2: float, prior_steps: int) -> None:
        before = state["before"]
        if before in state["second"] and prior_steps:
            weight = (1 - beta2**prior_steps) / (1 - beta2 ** state["steps"][before])
            state["second"][self._subject] = state["second"][before] * weight
            state["steps"][self._subject] = prior_steps
        else:
            state["second"][self._subject] = torch.zeros_like(param)
            state["steps"][self._subject] = 0
