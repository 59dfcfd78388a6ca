"""A toy problem with known constants: logistic regression on bounded features.

Per window the gradient is (p - y) x with |p - y| < 1, so every element is below the largest |x|;
the Hessian is at most X'X / 4n; sampling with replacement gives the noise; the loss is at least 0.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from afor import AFOR
from afor.bench.analyses.theory.theorem import (
    Assumptions,
    Bound,
    Constants,
    derive_constants,
    finite_bound,
)
from afor.bench.common.errors import ConfigError
from afor.control import FIELDS

Floats = NDArray[np.float64]
WINDOWS, FEATURES, BATCH = 512, 10, 32
SWEEP_EPS = tuple(10.0**k for k in (-8, -7, -6, -5, -4, -3, -2, -1, -0.5, 0, 0.5, 1))
MAX_FITS = 8  # trainings to find a learning rate that its own drift permits


@dataclass(frozen=True)
class Toy:
    """Features and labels, and the constants that follow from them."""

    features: Floats  # (windows, features), all within [-1, 1]
    labels: Floats  # (windows,), 0 or 1

    @property
    def smoothness(self) -> float:
        """Return the largest eigenvalue of X'X / 4n."""
        gram = self.features.T @ self.features / (4 * len(self.features))
        return float(np.linalg.eigvalsh(gram)[-1])

    @property
    def gradient_bound(self) -> float:
        """Return the largest feature."""
        return float(np.abs(self.features).max())

    @property
    def noise_sq(self) -> float:
        """Return a bound on the mean squared noise of a batch drawn with replacement."""
        return float(np.square(self.features).sum(axis=1).mean()) / BATCH

    def gradient(self, weights: Floats, rows: NDArray[np.int64] | None = None) -> Floats:
        """Return the gradient over all windows, or over some."""
        x = self.features if rows is None else self.features[rows]
        y = self.labels if rows is None else self.labels[rows]
        error: Floats = 0.5 * (1.0 + np.tanh(0.5 * (x @ weights))) - y  # the logistic function
        return x.T @ error / len(x)


@dataclass(frozen=True)
class ToyRun:
    """A training with AFOR: squared true gradients, drift and beta2, one value per step."""

    grad_sq: Floats
    drift_sq: Floats
    beta2: Floats


@dataclass(frozen=True)
class ToyVerdict:
    """The bound of the theorem and a training, at one eps and weight decay."""

    assumptions: Assumptions
    constants: Constants
    lr: float
    bound: Bound
    run: ToyRun


def make_toy(seed: int = 0) -> Toy:
    """Draw the features evenly from [-1, 1] and the labels from a logistic model."""
    draw = np.random.default_rng(seed)
    features = draw.uniform(-1.0, 1.0, (WINDOWS, FEATURES))
    chance = 1.0 / (1.0 + np.exp(-features @ draw.standard_normal(FEATURES)))
    return Toy(features, (draw.random(WINDOWS) < chance).astype(np.float64))


def run_toy(
    toy: Toy, lr: float, *, eps: float, weight_decay: float, steps: int, seed: int = 0
) -> ToyRun:
    """Train from zero weights with AFOR and record the true gradient of every step."""
    if steps < 1 or not lr > 0 or not eps > 0 or weight_decay < 0:
        raise ConfigError("steps, lr and eps must be above 0, weight_decay 0 or above.")
    parameter = torch.nn.Parameter(torch.zeros(FEATURES, dtype=torch.float64))
    weights = parameter.detach().numpy()  # the same memory
    optimizer = AFOR([parameter], lr=lr, eps=eps, weight_decay=weight_decay)
    beta1 = optimizer.defaults["betas"][0]
    draw = np.random.default_rng(seed)
    forgetting = FIELDS.index("forgetting")
    average = np.zeros(FEATURES)  # of the true gradients, with the weights of the first moment
    grad_sq, drift_sq, beta2 = np.empty((3, steps))
    for step in range(steps):
        true = toy.gradient(weights)  # u_t
        average += (1.0 - beta1) * (true - average)
        drift = average / (1.0 - beta1 ** (step + 1)) - true
        drift_sq[step], grad_sq[step] = drift @ drift, true @ true
        rows = draw.integers(WINDOWS, size=BATCH)
        parameter.grad = torch.from_numpy(toy.gradient(weights, rows))
        optimizer.step()
        beta2[step] = 1.0 - optimizer.state[parameter]["control"][forgetting].item()
    return ToyRun(grad_sq, drift_sq, beta2)


def assumptions_of(toy: Toy, drift_sq: Floats, *, eps: float, weight_decay: float) -> Assumptions:
    """Return the known constants with the drift of a run."""
    return Assumptions(
        smoothness=toy.smoothness,
        gradient_bound=toy.gradient_bound,
        noise_sq=toy.noise_sq,
        drift_sq=drift_sq,
        gap=math.log(2.0),  # from zero weights to a loss that is at least 0
        parameters=FEATURES,
        start_norm=0.0,
        eps=eps,
        weight_decay=weight_decay,
    )


def judge_toy(
    toy: Toy, *, eps: float, weight_decay: float, steps: int, lr: float = 0.0
) -> ToyVerdict:
    """Evaluate the theorem on the toy problem and train on it.

    The drift of a training enters the constants, and the learning rate changes the drift. So the
    training is repeated with the learning rate that its drift permits until the condition holds. A
    learning rate of 0 stands for the largest that the theorem permits.
    """
    assumptions = assumptions_of(toy, np.zeros(steps), eps=eps, weight_decay=weight_decay)
    rate = lr or derive_constants(assumptions).largest_lr
    for _ in range(MAX_FITS):
        run = run_toy(toy, rate, eps=eps, weight_decay=weight_decay, steps=steps)
        assumptions = replace(assumptions, drift_sq=run.drift_sq)
        constants = derive_constants(assumptions)
        if lr or rate <= constants.largest_lr:
            break
        rate = 0.95 * constants.largest_lr
    return ToyVerdict(assumptions, constants, rate, finite_bound(assumptions, constants, rate), run)


def sweep_eps(
    toy: Toy, *, weight_decay: float, steps: int, eps: tuple[float, ...] = SWEEP_EPS
) -> list[ToyVerdict]:
    """Evaluate the theorem at its largest learning rate for each eps; see `judge_toy`."""
    return [judge_toy(toy, eps=e, weight_decay=weight_decay, steps=steps) for e in eps]
