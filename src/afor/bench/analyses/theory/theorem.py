"""Theorem 1 (Sec. VI) in numbers: its constants, its step-size condition, its finite-time bound.

Each line names its equation. Where the assumed constants of a problem come from is not known here.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Assumptions:
    """What Sec. VI assumes about a problem, and the settings of the optimizer."""

    smoothness: float  # L
    gradient_bound: float  # G, on every element of every stochastic gradient
    noise_sq: float  # sigma_g^2, on the mean squared distance from the true gradient
    drift_sq: NDArray[np.float64]  # Delta_t^2 at every step, Eq. (afor_gradient_drift)
    gap: float  # f(theta_0) - f_star
    parameters: int  # N_theta
    start_norm: float  # norm of theta_0
    beta1: float = 0.9
    eps: float = 1e-8
    weight_decay: float = 1e-4  # lambda, Sec. IV-C

    @property
    def trivial_bound(self) -> float:
        """Return N G², which bounds the squared gradient because every element is at most G."""
        return self.parameters * self.gradient_bound**2


@dataclass(frozen=True)
class Constants:
    """The constants of Sec. VI, by the paper's letters."""

    alpha: float  # smallest factor of the preconditioner, 1 / (G + eps)
    largest_factor: float  # M, its largest, 1 / eps
    tracking_sq: NDArray[np.float64]  # kappa_t^2, Eq. (afor_tracking)
    descent: float  # a_0
    growth: float  # b_0
    residual: NDArray[np.float64]  # r_t^0
    decay_norm: float  # chi_lambda
    descent_decayed: float  # a_lambda
    growth_decayed: float  # b_lambda
    largest_lr: float  # a_lambda / (L b_lambda)


@dataclass(frozen=True)
class Bound:
    """The right side of Eq. (afor_finite_bound), term by term."""

    start: float  # from the distance to the optimum; falls with the number of steps
    tracking: float  # from noise and drift
    decay: float  # from weight decay
    curvature: float  # from the step size

    @property
    def total(self) -> float:
        """Return the sum."""
        return self.start + self.tracking + self.decay + self.curvature


def momentum_noise(noise_sq: ArrayLike, beta1: float) -> NDArray[np.float64]:
    """Return sum_i w_{t,i}^2 sigma_i^2 at every step, w the weights of the first moment.

    >>> momentum_noise([1.0, 1.0], beta1=0.5).round(4).tolist()
    [1.0, 0.5556]
    """
    trace = np.asarray(noise_sq, dtype=np.float64)
    sums = np.empty(len(trace))
    total, power = 0.0, 1.0
    for step, value in enumerate(trace.tolist()):
        total = beta1 * beta1 * total + (1.0 - beta1) ** 2 * value
        power *= beta1
        sums[step] = total / (1.0 - power) ** 2
    return sums


def derive_constants(assumptions: Assumptions) -> Constants:
    """Return the constants of Sec. VI that follow from the assumptions."""
    steps = len(assumptions.drift_sq)
    noise = momentum_noise(np.full(steps, assumptions.noise_sq), assumptions.beta1)
    tracking_sq = 2.0 * assumptions.drift_sq + 2.0 * noise  # Eq. (afor_tracking)
    alpha = 1.0 / (assumptions.gradient_bound + assumptions.eps)
    largest = 1.0 / assumptions.eps
    descent = alpha / 2.0
    growth = 2.0 * largest**2 * (1.0 + float(tracking_sq.max()))
    reach = math.sqrt(assumptions.parameters) * assumptions.gradient_bound / assumptions.eps  # D
    decay = assumptions.weight_decay
    decay_norm = decay * max(assumptions.start_norm, reach / decay) if decay else 0.0  # lambda R
    descent_decayed = descent / 2.0
    growth_decayed = 2.0 * growth + 2.0 * decay_norm**2
    return Constants(
        alpha=alpha,
        largest_factor=largest,
        tracking_sq=tracking_sq,
        descent=descent,
        growth=growth,
        residual=largest**2 * tracking_sq / (2.0 * alpha),
        decay_norm=decay_norm,
        descent_decayed=descent_decayed,
        growth_decayed=growth_decayed,
        largest_lr=descent_decayed / (assumptions.smoothness * growth_decayed),
    )


def finite_bound(assumptions: Assumptions, constants: Constants, lr: ArrayLike) -> Bound:
    """Evaluate Eq. (afor_finite_bound), the bound on the mean squared gradient, term by term.

    There is one learning rate, or one per step. The theorem claims the bound only if none exceeds
    `constants.largest_lr`; that is not checked.
    """
    rates = np.broadcast_to(np.asarray(lr, dtype=np.float64), constants.residual.shape)
    total = float(rates.sum())
    a = constants.descent_decayed
    return Bound(
        start=2.0 * assumptions.gap / (a * total),
        tracking=2.0 * float((rates * constants.residual).sum()) / (a * total),
        decay=constants.decay_norm**2 / (constants.descent * a),
        curvature=assumptions.smoothness
        * constants.growth_decayed
        * float((rates**2).sum())
        / (a * total),
    )


def steps_to_inform(assumptions: Assumptions, constants: Constants) -> float:
    """Return how many steps at the largest learning rate bring the bound below the trivial one.

    Infinite if the terms that do not fall with the number of steps already exceed it.
    """
    at_largest = finite_bound(assumptions, constants, constants.largest_lr)
    room = assumptions.trivial_bound - (at_largest.total - at_largest.start)
    return at_largest.start * len(constants.residual) / room if room > 0.0 else math.inf
