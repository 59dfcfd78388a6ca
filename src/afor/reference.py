"""The paper's equations one by one, in float64: slow and simple, to test every fast path against.

Each function is one numbered equation of the paper and names its label. The implementations share
no code with this module, so an error would have to be made twice to go unnoticed.

>>> import torch
>>> theta = torch.tensor([1.0, -2.0], dtype=torch.float64)
>>> state = ReferenceState.start(theta)
>>> for _ in range(3):
...     theta, scalars = reference_step(theta, 2 * theta, state, lr=0.1)
>>> 0.99 <= scalars.beta2 <= 0.999
True
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class ReferenceState:
    """The state of one tensor between steps (Algorithm 1, line 1)."""

    exp_avg: Tensor  # m
    exp_avg_sq: Tensor  # v
    step: int = 0  # t
    noise_fast: float = 0.0  # n^f
    noise_slow: float = 0.0  # n^s
    agreement: float = 1.0  # c-bar
    score_mean: float = 0.0  # mu
    score_var: float = 1.0  # sigma^2
    decay_product: float = 1.0  # C

    @classmethod
    def start(cls, theta: Tensor, *, statistics: str = "paper") -> "ReferenceState":
        """Return the initial state of Algorithm 1 (calibrated statistics start at zero)."""
        zeros = torch.zeros_like(theta, dtype=torch.float64)
        score_var = 1.0 if statistics == "paper" else 0.0
        return cls(exp_avg=zeros.clone(), exp_avg_sq=zeros.clone(), score_var=score_var)


@dataclass(frozen=True)
class StepScalars:
    """The scalars computed in one step."""

    residual: float
    cosine: float
    ratio: float
    score: float
    zscore: float
    gate: float
    beta2: float


def noise_inst(grad: Tensor, exp_avg: Tensor) -> float:
    """Mean absolute deviation of the gradient from the previous first moment: Eq. (noise_inst)."""
    return (grad - exp_avg).abs().sum().item() / max(grad.numel(), 1)


def noise_dual(previous: float, residual: float, decay: float) -> float:
    """One channel of Eq. (noise_dual)."""
    return decay * previous + (1 - decay) * residual


def cosine(grad: Tensor, exp_avg: Tensor, eps: float) -> float:
    """Cosine with the previous first moment, cut at zero: second line of Eq. (dir)."""
    product = (grad * exp_avg).sum().item()
    norms = math.sqrt((grad * grad).sum().item()) * math.sqrt((exp_avg * exp_avg).sum().item())
    if norms + eps == 0.0:  # only with eps = 0: a zero vector agrees with nothing
        return 0.0
    return max(0.0, product / (norms + eps))


def direction(previous: float, cos: float, decay: float) -> float:
    """Temporal average of the cosine: first line of Eq. (dir)."""
    return decay * previous + (1 - decay) * cos


def magnitude_ratio(exp_avg: Tensor, noise: float, eps: float) -> float:
    """Mean absolute (new) first moment over the noise reference: Eq. (magnitude_ratio)."""
    mean_abs = exp_avg.abs().sum().item() / max(exp_avg.numel(), 1)
    return mean_abs / (noise + eps) if noise + eps > 0.0 else 0.0


def score(ratio: float, agreement: float, direction_weight: float) -> float:
    """Discount the ratio by disagreement: Eq. (score)."""
    return max(ratio * (1 + direction_weight * (agreement - 1)), 0.0)


def sigmoid(x: float) -> float:
    """Logistic function without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def beta2_raw(zscore: float, beta2_min: float, beta2_init: float) -> float:
    """Map the z-score into the admissible range: Eq. (beta2_raw)."""
    return beta2_min + (beta2_init - beta2_min) * sigmoid(zscore)


def gate(step: int, warmup_steps: int) -> float:
    """Linear warm-up: first part of Eq. (gate)."""
    return min(1.0, step / warmup_steps) if warmup_steps > 0 else 1.0


def reference_step(
    theta: Tensor,
    grad: Tensor,
    state: ReferenceState,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    beta2_min: float = 0.99,
    direction_weight: float = 1.0,
    direction_decay: float = 0.9,
    warmup_steps: int = 100,
    fast_channel: bool = True,
    normalization: str = "self",
    fixed_mean: float = 1.0,
    fixed_scale: float = 2.0,
    zscore_clip: float = 5.0,
    correction: str = "cumulative",
    statistics: str = "paper",
) -> tuple[Tensor, StepScalars]:
    """Take one step of Algorithm 1 on one tensor.

    The options are those of `AFOR`. They give the rows of the ablation table:
    ``direction_weight=0`` is *w/o DC*, ``fast_channel=False`` *w/o FC*, ``normalization="fixed"``
    *w/o SRN*, ``warmup_steps=0`` *w/o TSG*, ``correction="fixed"`` *w/o EC*, and
    ``beta2_min=betas[1]`` a fixed decay.

    Returns:
        The updated parameter and the scalars of this step; ``state`` is advanced in place.
    """
    theta, grad = theta.double(), grad.double()
    beta1, beta2_init = betas
    state.step += 1

    # RASS, against the first moment of the step before
    residual = noise_inst(grad, state.exp_avg)  # e_t
    state.noise_fast = noise_dual(state.noise_fast, residual, beta1)
    state.noise_slow = noise_dual(state.noise_slow, residual, beta2_init)
    cos = cosine(grad, state.exp_avg, eps)
    state.agreement = direction(state.agreement, cos, direction_decay)
    state.exp_avg = beta1 * state.exp_avg + (1 - beta1) * grad
    noise = max(state.noise_fast, state.noise_slow) if fast_channel else state.noise_slow
    ratio = magnitude_ratio(state.exp_avg, noise, eps)  # rho^m
    rho = score(ratio, state.agreement, direction_weight)

    # AFC: Eqs. (zscore_stats) and (zscore)
    state.score_mean = beta2_init * state.score_mean + (1 - beta2_init) * rho
    weight = 1.0 if statistics == "paper" else 1 - beta2_init**state.step
    delta = rho - state.score_mean / weight
    state.score_var = beta2_init * state.score_var + (1 - beta2_init) * delta**2
    if normalization == "self":
        spread = math.sqrt(state.score_var / weight + eps)
        zscore = delta / spread if spread > 0.0 else 0.0
        zscore = min(max(zscore, -zscore_clip), zscore_clip)
    else:
        zscore = (rho - fixed_mean) / fixed_scale

    # Eqs. (beta2_raw), (gate), (v_adaptive), (cumprod)
    gamma = gate(state.step, warmup_steps)
    beta2 = gamma * beta2_raw(zscore, beta2_min, beta2_init) + (1 - gamma) * beta2_init
    state.exp_avg_sq = beta2 * state.exp_avg_sq + (1 - beta2) * grad * grad
    state.decay_product *= beta2

    # Eq. (update)
    decay_product = state.decay_product if correction == "cumulative" else beta2_init**state.step
    m_hat = state.exp_avg / (1 - beta1**state.step)
    v_hat = state.exp_avg_sq / (1 - decay_product)
    theta = theta - lr * weight_decay * theta - lr * m_hat / (v_hat.sqrt() + eps)
    return theta, StepScalars(residual, cos, ratio, rho, zscore, gamma, beta2)
