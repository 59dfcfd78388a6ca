"""AFC, the adaptive forgetting controller: five sums of each tensor in, its decay coefficient out.

The for-loop and the foreach implementation share this code; the native kernels repeat it in C and
Triton, and `reference.py` follows the paper's equations one by one. `_advance` works on vectors,
for all tensors of a group at once on their device, and on the floats of one tensor (`OnFloats`):
on CPU one torch operator on twelve numbers takes as long as twelve Python floats.

The control state of a tensor is a vector of nine numbers, in the order of `FIELDS`.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

FIELDS = (
    "noise_fast",  # n^f
    "noise_slow",  # n^s
    "agreement",  # c-bar
    "score_mean",  # mu
    "score_var",  # sigma^2
    "score",  # rho, of the last step
    "zscore",  # zeta, of the last step
    "forgetting",  # 1 - beta2, of the last step: beta2 itself would lose digits in float32
    "correction",  # 1 - C, tracked directly: no cancellation in the first steps
)
_HELD = FIELDS.index("forgetting")  # a step with a non-finite gradient changes none before it
_ZSCORE = FIELDS.index("zscore")
_TINY = 1e-300  # below any product of norms that matters; keeps sqrt differentiable at zero


class ControlSettings(NamedTuple):
    """The controller settings of one parameter group; see `AFOR` for their meaning."""

    beta1: float = 0.9
    beta2: float = 0.999  # beta2^init, the longest memory
    eps: float = 1e-8
    beta2_min: float = 0.99
    direction_weight: float = 1.0  # w
    direction_decay: float = 0.9  # Eq. (dir)
    warmup_steps: int = 100  # T_w
    fast_channel: bool = True
    normalization: str = "self"
    fixed_mean: float = 1.0  # mu_fix, Sec. V-C
    fixed_scale: float = 2.0  # s_fix, Sec. V-C
    zscore_clip: float = 5.0  # Eq. (zscore)
    correction: str = "cumulative"
    statistics: str = "paper"

    @property
    def is_constant(self) -> bool:
        """Whether beta2 has no range to adapt in: the update is AdamW's."""
        return self.beta2_min == self.beta2


_OPTIONS = ControlSettings._fields[2:]  # these have the same name in a parameter group


def control_settings(group: dict[str, Any]) -> ControlSettings:
    """Return the controller settings of a parameter group."""
    beta1, beta2 = group["betas"]
    return ControlSettings(beta1, beta2, *[group[name] for name in _OPTIONS])


class Sums(NamedTuple):
    """The five sums that RASS needs, each a vector of shape (tensors,).

    All five add up over chunks, threads and shards of a tensor; n counts the whole tensor.
    """

    residual: Tensor  # sum |g - m| / n
    momentum: Tensor  # sum |m'| / n, m' the new first moment
    grad_sq: Tensor  # sum g^2
    momentum_sq: Tensor  # sum m^2
    product: Tensor  # <g, m>


class Coefficients(NamedTuple):
    """The coefficients of the update: vectors of shape (tensors,), or lists of numbers."""

    forgetting: Any  # 1 - beta2
    denominator_scale: Any  # (1 - beta1^t) / sqrt(1 - C)
    denominator_shift: Any  # eps (1 - beta1^t)


class OnFloats:
    """The functions of torch that the controller calls, on floats; NaN propagates as in torch."""

    sqrt = staticmethod(math.sqrt)
    expm1 = staticmethod(math.expm1)
    maximum = staticmethod(max)

    @staticmethod
    def lerp(start: float, end: float, weight: float) -> float:
        """Interpolate from the nearer end, as torch does."""
        if weight < 0.5:
            return start + weight * (end - start)
        return end - (end - start) * (1.0 - weight)

    @staticmethod
    def addcmul(x: float, first: float, second: float, *, value: float) -> float:
        """Return ``x + value * first * second``."""
        return x + value * first * second

    @staticmethod
    def sigmoid(x: float) -> float:
        """Return ``1 / (1 + exp(-x))``, for any x."""
        if x >= 0.0:
            return 1.0 / (1.0 + math.exp(-x))
        power = math.exp(x)
        return power / (1.0 + power)

    @staticmethod
    def clamp_min(x: float, low: float) -> float:
        """Return x, or low if x is below it."""
        return low if x < low else x

    @staticmethod
    def clamp_max(x: float, high: float) -> float:
        """Return x, or high if x is above it."""
        return high if x > high else x

    @staticmethod
    def clamp(x: float, low: float, high: float) -> float:
        """Return x clipped to the range."""
        return min(max(x, low), high)


def initial_control(settings: ControlSettings) -> list[float]:
    """Return the control state of a tensor that has seen no gradient (Algorithm 1, line 1)."""
    score_var = 1.0 if settings.statistics == "paper" else 0.0
    return [0.0, 0.0, 1.0, 0.0, score_var, 0.0, 0.0, 1.0 - settings.beta2, 0.0]


def advance(
    control: Tensor,
    step: Tensor,
    sums: Sums,
    s: ControlSettings,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Coefficients]:
    """Advance the control state of all tensors by one step.

    Args:
        control: Control state of shape (9, tensors), in the dtype of the sums.
        step: Step count of each tensor, this step included, in the dtype of the sums.
        sums: The five sums of each tensor.
        s: Controller settings.
        dtype: Dtype of the results; None keeps that of ``control``.

    Returns:
        The new control state, (9, tensors), and the coefficients of the update.
    """
    guarded = s.eps == 0.0 or torch.is_grad_enabled()  # avoid division by zero and sqrt'(0)
    held, others = _advance(control, step, sums, s, torch, guarded=guarded)
    table = torch.cat((held, torch.stack(others))).to(dtype or control.dtype)
    size = len(FIELDS)
    return table[:size], Coefficients(table[_HELD], table[size], table[size + 1])


def advance_floats(
    control: Sequence[float], step: float, sums: Sequence[float], s: ControlSettings
) -> tuple[Sequence[float], tuple[float, float, float, float]]:
    """Advance the control state of one tensor by one step, with Python floats.

    Returns:
        The first seven fields (unchanged if the gradient is not finite), and the tuple
        (forgetting, correction, denominator scale, denominator shift).
    """
    return _advance(control, step, sums, s, OnFloats, guarded=s.eps == 0.0)


def _advance(
    control: Any, step: Any, sums: Any, s: ControlSettings, on: Any, *, guarded: bool
) -> tuple[Any, tuple[Any, Any, Any, Any]]:
    """Return what `advance_floats` returns; ``on`` is torch, or `OnFloats` for floats."""
    noise_fast, noise_slow, agreement, score_mean, score_var, _, _, _, correction = control
    residual, momentum, grad_sq, momentum_sq, product = sums
    slow = 1.0 - s.beta2

    # RASS: Eqs. (noise_inst) to (score)
    noise_fast = on.lerp(noise_fast, residual, 1.0 - s.beta1)
    noise_slow = on.lerp(noise_slow, residual, slow)
    norms = grad_sq * momentum_sq
    if guarded:
        norms = on.clamp_min(norms, _TINY)
    cosine = on.clamp_min(product / (on.sqrt(norms) + s.eps), 0.0)
    agreement = on.lerp(agreement, cosine, 1.0 - s.direction_decay)
    noise = on.maximum(noise_fast, noise_slow) if s.fast_channel else noise_slow
    if guarded:
        noise = on.clamp_min(noise, _TINY)
    ratio = momentum / (noise + s.eps)  # rho^m
    if s.direction_weight == 1.0:
        score = ratio * agreement  # rho
    else:
        discount = agreement * s.direction_weight + (1.0 - s.direction_weight)
        score = on.clamp_min(ratio * discount, 0.0)

    # AFC: Eqs. (zscore_stats) and (zscore)
    score_mean = on.lerp(score_mean, score, slow)
    if s.statistics == "paper":
        delta = score - score_mean
        score_var = on.lerp(score_var, delta * delta, slow)
        spread = score_var
    else:
        weight = one_minus_power(s.beta2, step, on)
        delta = score - score_mean / weight
        score_var = on.lerp(score_var, delta * delta, slow)
        spread = score_var / weight
    if s.normalization == "self":
        spread = spread + s.eps
        if guarded:
            spread = on.clamp_min(spread, _TINY)
        zscore = on.clamp(delta / on.sqrt(spread), -s.zscore_clip, s.zscore_clip)
    else:
        zscore = (score - s.fixed_mean) / s.fixed_scale

    # A non-finite gradient spoils the moments, as in AdamW, but never the control state.
    new = (noise_fast, noise_slow, agreement, score_mean, score_var, score, zscore)
    # Neither does a decay without a range to adapt in, so that nobody needs the sums.
    finite = residual + cosine < math.inf  # neither is negative; NaN compares false
    held = control[:_HELD] if s.is_constant else _choose(finite, new, control[:_HELD])

    # Eqs. (beta2_raw), (gate), (cumprod), with q = 1 - beta2 built directly
    span = s.beta2 - s.beta2_min
    if s.warmup_steps > 0:
        span = on.clamp_max(step * (span / s.warmup_steps), span)  # gamma times the range
    forgetting = on.sigmoid(-held[_ZSCORE]) * span + slow  # 1 - beta2
    correction = on.addcmul(correction + forgetting, correction, forgetting, value=-1.0)  # 1 - C

    bias2 = correction if s.correction == "cumulative" else one_minus_power(s.beta2, step, on)
    bias1 = one_minus_power(s.beta1, step, on)
    return held, (forgetting, correction, bias1 / on.sqrt(bias2), bias1 * s.eps)


def _choose(condition: bool | Tensor, values: tuple[Any, ...], otherwise: Any) -> Any:
    """Return ``values`` where the condition holds and ``otherwise`` elsewhere."""
    if isinstance(condition, bool):
        return values if condition else otherwise
    return torch.where(condition, torch.stack(values), otherwise)


def one_minus_power(decay: float, step: Any, on: Any = torch) -> Any:
    """Return ``1 - decay ** step`` without cancellation."""
    return -on.expm1(step * (math.log(decay) if decay > 0.0 else -math.inf))
