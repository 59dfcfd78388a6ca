"""Muon on matrices, with AdamW for the rest: torch's Muon takes tensors of two dimensions only."""

from typing import Any

import torch
from torch import Tensor

from afor.bench.optimizers.stepwise import (
    DecayRate,
    Options,
    Steps,
    StepwiseOptimizer,
    adamw_step,
)


class MuonAdamW(StepwiseOptimizer):
    """Muon (Jordan 2024) on matrices and convolution kernels, AdamW on biases, norms and scales.

    A kernel is a matrix with a row per output channel. Steps of Muon are scaled to the size of
    AdamW's, so that one learning rate serves both (torch's `match_rms_adamw`).

    Args:
        params, lr, weight_decay: As for torch's AdamW.
        betas, eps: Of AdamW.
        momentum: Of Muon.
        nesterov: Whether Muon's momentum is Nesterov's.
        ns_steps: Newton-Schulz iterations that make Muon's step orthogonal.
        kernels: Whether Muon also trains tensors of more than two dimensions.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        momentum: DecayRate = 0.95,
        nesterov: bool = True,
        ns_steps: Steps = 5,
        kernels: bool = True,
    ) -> None:
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum": momentum, "nesterov": nesterov, "ns_steps": ns_steps, "kernels": kernels,
        }  # fmt: skip
        super().__init__(params, defaults)

    def new_state(self, param: Tensor, group: Options) -> Options:
        """Return the state of a tensor before its first step."""
        return {"step": 0} if _is_matrix(param, group) else super().new_state(param, group)

    def update(self, param: Tensor, grad: Tensor, state: Options, group: Options) -> None:
        """Take one step on one tensor."""
        if _is_matrix(param, group):
            _muon_step(param, grad, state, group)
        else:
            adamw_step(param, grad, state, group)


def _is_matrix(param: Tensor, group: Options) -> bool:
    return param.dim() == 2 or (param.dim() > 2 and group["kernels"])


def _muon_step(param: Tensor, grad: Tensor, state: Options, group: Options) -> None:
    """Let torch's Muon take its step on a tensor as a matrix, with the state that is kept here."""
    if not param.numel():
        return
    matrix = torch.nn.Parameter(param.reshape(len(param), -1))
    matrix.grad = grad.reshape(len(param), -1)
    muon = torch.optim.Muon(
        [matrix],
        lr=group["lr"],
        weight_decay=group["weight_decay"],
        momentum=group["momentum"],
        nesterov=group["nesterov"],
        ns_steps=group["ns_steps"],
        adjust_lr_fn="match_rms_adamw",
    )
    if "momentum_buffer" in state:
        muon.state[matrix]["momentum_buffer"] = state["momentum_buffer"]
    muon.step()  # type: ignore[no-untyped-call]
    state["momentum_buffer"] = muon.state[matrix]["momentum_buffer"]
    param.copy_(matrix.reshape(param.shape))
