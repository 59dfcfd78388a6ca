"""Other rules for beta2: Kourkoutas-beta, which adapts it, and schedules over the steps.

Both divide the second moment by what its weights sum to, 1 minus the product of all beta2 so far,
unless a method says otherwise.
"""

from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from afor.bench.optimizers.stepwise import (
    AtLeastZero,
    DecayRate,
    Options,
    StepwiseOptimizer,
    adamw_update,
    moments,
)


class Kourkoutas(StepwiseOptimizer):
    """Kourkoutas-beta (Kassinos, arXiv 2508.12996), one beta2 per tensor, decoupled weight decay.

    With n the norm of a tensor's gradient and e its running mean, e ← α e + (1 - α) n, the ratio
    r = n / (e + tiny) gives the spike s = r / (1 + r) and
    β₂ = β₂_max - (β₂_max - β₂_min) s. A burst lowers β₂, where AFOR as printed raises it.

    Args:
        params, lr, eps, weight_decay: As for torch's AdamW.
        betas: β₁ and β₂_max.
        beta2_min: The smallest β₂.
        alpha: Decay rate of the running mean of norms.
        tiny: Added to the running mean.
        warmup_steps: Steps at the middle of the two β₂ before the rule begins.
        correction: How the moments are divided because they started at zero: by 1 - β₂_max^t, by
            the exact sum of weights, or not at all.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        beta2_min: AtLeastZero = 0.88,
        alpha: DecayRate = 0.93,
        tiny: AtLeastZero = 1e-8,
        warmup_steps: Annotated[int, Field(ge=0)] = 0,
        correction: Literal["beta2max", "exact", "none"] = "beta2max",
    ) -> None:
        if beta2_min > betas[1]:
            raise ValueError(f"beta2_min must be at most {betas[1]}, found {beta2_min}")
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "beta2_min": beta2_min, "alpha": alpha, "tiny": tiny, "warmup_steps": warmup_steps,
            "correction": correction,
        }  # fmt: skip
        super().__init__(params, defaults)

    def new_state(self, param: Tensor, group: Options) -> Options:
        """Return the state of a tensor before its first step."""
        return {**super().new_state(param, group), "mean_norm": 0.0, "product": 1.0}

    def update(self, param: Tensor, grad: Tensor, state: Options, group: Options) -> None:
        """Take one step on one tensor."""
        beta1, beta2_max = group["betas"]
        norm = float(grad.norm())
        state["mean_norm"] = group["alpha"] * state["mean_norm"] + (1 - group["alpha"]) * norm
        spread = beta2_max - group["beta2_min"]
        if state["step"] <= group["warmup_steps"]:
            beta2 = beta2_max - 0.5 * spread
        else:
            level = state["mean_norm"] + group["tiny"]
            # r / (1 + r) with r = norm / level; level is 0 only if tiny and all gradients are.
            beta2 = beta2_max - spread * (norm / (level + norm) if level + norm else 0.0)
        state["product"] *= beta2
        corrections = {
            "beta2max": (1 - beta1 ** state["step"], 1 - beta2_max ** state["step"]),
            "exact": (1 - beta1 ** state["step"], 1 - state["product"]),
            "none": (1.0, 1.0),
        }[group["correction"]]
        adamw_update(param, moments(state, grad, beta1, beta2), corrections, group)


class ScheduledAdamW(StepwiseOptimizer):
    """AdamW whose beta2 follows the number of the step, the same for all tensors.

    Args:
        params, lr, eps, weight_decay: As for torch's AdamW.
        betas: β₁; β₂ is not used.
        schedule: `nosadam` (Huang 2019): β₂ = B_{t-1} / B_t with B_t = Σ k^-exponent, and m is not
            divided by what its weights sum to. `power`: β₂ = 1 - t^-exponent.
        exponent: Of the schedule.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        schedule: Literal["nosadam", "power"] = "power",
        exponent: AtLeastZero = 0.8,
    ) -> None:
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "schedule": schedule, "exponent": exponent,
        }  # fmt: skip
        super().__init__(params, defaults)

    def new_state(self, param: Tensor, group: Options) -> Options:
        """Return the state of a tensor before its first step."""
        return {**super().new_state(param, group), "weights": 0.0}

    def update(self, param: Tensor, grad: Tensor, state: Options, group: Options) -> None:
        """Take one step on one tensor."""
        beta1, _ = group["betas"]
        weight = state["step"] ** -group["exponent"]
        if group["schedule"] == "nosadam":
            beta2 = state["weights"] / (state["weights"] + weight)
            state["weights"] += weight
            correction = 1.0
        else:
            beta2, correction = 1 - weight, 1 - beta1 ** state["step"]
        # The first beta2 is 0: the weights of the second moment always sum to 1.
        adamw_update(param, moments(state, grad, beta1, beta2), (correction, 1.0), group)
