"""AdamW whose beta2 is a Kalman gain, estimated for each tensor from its gradients.

Let y_t be the logarithm of the mean squared gradient of a tensor. The rule takes it for a level
that wanders, seen through noise (a local level model):

    y_t = x_t + e_t,  Var e = r          x_t = x_{t-1} + w_t,  Var w = q

Differences over one and over L steps tell the two variances apart, because

    V_1 = Var(y_t - y_{t-1}) = q + 2r    V_L = Var(y_t - y_{t-L}) = L·q + 2r

so q = (V_L - V_1) / (L - 1) and r = (V_1 - q) / 2. The best linear estimate of the level is then an
exponential average whose gain is, in its steady state,

    K = (sqrt(λ² + 4λ) - λ) / 2,  λ = q / r

and beta2 = 1 - K, kept within [beta2_min, beta2_max]. V_1 and V_L are exponential averages
themselves, so two standard errors of V_L under pure noise are taken off q: a tensor whose level
does not move gets beta2_max.
"""

import math
from typing import Any

from torch import Tensor

from afor.bench.optimizers.stepwise import (
    Options,
    StepwiseOptimizer,
    adamw_update,
    require_at_least,
)

SMALLEST = 1e-38  # of the mean squared gradient, so that its logarithm exists
STANDARD_ERRORS = 2.0  # by which the level must be seen to move


class KalmanAdamW(StepwiseOptimizer):
    """AdamW with one beta2 per tensor, from a Kalman gain.

    Args:
        params, lr, eps, weight_decay: As for torch's AdamW.
        betas: Decay rates of the two moments; the second holds until 2·lag gradients were seen.
        beta2_min: Smallest beta2.
        beta2_max: Largest beta2.
        lag: Number of steps L between the gradients that are compared.
        memory: Decay rate of the averages V_1 and V_L.

    Example:
        >>> import torch
        >>> layer = torch.nn.Linear(2, 1)
        >>> KalmanAdamW(layer.parameters(), lr=1e-3).defaults["beta2_min"]
        0.9
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        beta2_min: float = 0.9,
        beta2_max: float = 0.9997,
        lag: int = 32,
        memory: float = 0.999,
    ) -> None:
        require_at_least("lag", lag, 2)
        if not 0.0 <= beta2_min <= beta2_max < 1.0:
            raise ValueError(
                f"expected 0 <= beta2_min <= beta2_max < 1, got {beta2_min} and {beta2_max}"
            )
        if not 0.0 < memory < 1.0:
            raise ValueError(f"memory must be between 0 and 1, got {memory}")
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        rule = {"beta2_min": beta2_min, "beta2_max": beta2_max, "lag": lag, "memory": memory}
        super().__init__(params, defaults | rule)

    def new_state(self, param: Tensor, group: Options) -> Options:
        """Return the state of a tensor before its first step."""
        return super().new_state(param, group) | {
            "correction2": 0.0,  # sum of the weights in exp_avg_sq
            "levels": [],  # the last lag + 1 values of y
            "variances": [0.0, 0.0],  # V_1 and V_L, biased towards zero
            "compared": 0,  # number of differences in V_L
        }

    def update(self, param: Tensor, grad: Tensor, state: Options, group: Options) -> None:
        """Take one step on one tensor."""
        beta1, beta2 = group["betas"][0], _next_beta2(state, grad, group)
        state["beta2"] = beta2
        state["correction2"] = beta2 * state["correction2"] + (1 - beta2)
        first = state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
        second = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        corrections = 1 - beta1 ** state["step"], state["correction2"]
        adamw_update(param, (first, second), corrections, group)


def kalman_gain(level_variance: float, noise_variance: float) -> float:
    """Return the steady-state gain of a level of variance q per step seen through noise r.

    >>> kalman_gain(0.0, 1.0), round(kalman_gain(1.0, 1.0), 3), kalman_gain(1.0, 0.0)
    (0.0, 0.618, 1.0)
    """
    if noise_variance <= 0.0:
        return 1.0 if level_variance > 0.0 else 0.0
    ratio = level_variance / noise_variance
    return (math.sqrt(ratio * ratio + 4 * ratio) - ratio) / 2


def _next_beta2(state: Options, grad: Tensor, group: Options) -> float:
    """Add the gradient to the statistics of its tensor and return the tensor's beta2."""
    lag, memory = group["lag"], group["memory"]
    levels, variances = state["levels"], state["variances"]
    levels.append(math.log(max(float(grad.square().mean()), SMALLEST)))
    if len(levels) <= lag:
        return float(group["betas"][1])
    for i, difference in enumerate((levels[-1] - levels[-2], levels[-1] - levels[0])):
        variances[i] = memory * variances[i] + (1 - memory) * difference * difference
    del levels[0]
    state["compared"] += 1
    if state["compared"] < lag:
        return float(group["betas"][1])
    weight = 1 - memory ** state["compared"]
    one, lagged = (variance / weight for variance in variances)
    # Under pure noise, differences over L steps are correlated at distance L alone (by -1/2), which
    # makes the variance of their mean square 3 V² / N.
    terms = min(state["compared"], (1 + memory) / (1 - memory))
    error = STANDARD_ERRORS * lagged * math.sqrt(3 / terms)
    level_variance = max(0.0, (lagged - one - error) / (lag - 1))
    gain = kalman_gain(level_variance, max(0.0, (one - level_variance) / 2))
    return float(min(max(1 - gain, group["beta2_min"]), group["beta2_max"]))
