"""A problem whose constants are known: logistic regression on bounded features.

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
    constants,
    finite_bound,
)
from afor.bench.common.errors import ConfigError
from afor.control import FIELDS

Floats = NDArray[np.float64]
WINDOWS, FEATURES, BATCH = 512, 10, 32
SWEEP_EPS = tuple(10.0**k for k in (-8, -7, -6, -5, -4, -3, -2, -1, -0.5, 0, 0.5, 1))
FITS = 8  # the drift depends on the learning rate and the other way round


@dataclass(frozen=True)
class Toy:
    """Features and labels; known constants follow from them."""

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
    """What AFOR did on it: squared true gradients, drift, beta2, one value per step."""

    grad_sq: Floats
    drift_sq: Floats
    beta2: Floats


@dataclass(frozen=True)
class ToyVerdict:
    """The theorem beside what happened, at one eps and weight decay."""

    given: Assumptions
    found: Constants
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
    """Train from zero with AFOR, keeping the true gradient of every step."""
    if steps < 1 or not lr > 0 or not eps > 0 or weight_decay < 0:
        raise ConfigError("steps, lr and eps must be above 0, weight_decay 0 or above.")
    parameter = torch.nn.Parameter(torch.zeros(FEATURES, dtype=torch.float64))
    weights = parameter.detach().numpy()  # the same memory
    optimizer = AFOR([parameter], lr=lr, eps=eps, weight_decay=weight_decay)
    beta1 = optimizer.defaults["betas"][0]
    draw = np.random.default_rng(seed)
    forgetting = FIELDS.index("forgetting")
    average = np.zeros(FEATURES)  # of the true gradients, as m is of the others
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
    """Evaluate the theorem at `lr`, or at the largest it permits (0).

    The drift of a run enters the constants, and the learning rate the drift: the run is repeated
    with what its own drift permits until the condition holds.
    """
    given = assumptions_of(toy, np.zeros(steps), eps=eps, weight_decay=weight_decay)
    rate = lr or constants(given).largest_lr
    for _ in range(FITS):
        run = run_toy(toy, rate, eps=eps, weight_decay=weight_decay, steps=steps)
        given = replace(given, drift_sq=run.drift_sq)
        found = constants(given)
        if lr or rate <= found.largest_lr:
            break
        rate = 0.95 * found.largest_lr
    return ToyVerdict(given, found, rate, finite_bound(given, found, rate), run)


def sweep_eps(
    toy: Toy, *, weight_decay: float, steps: int, eps: tuple[float, ...] = SWEEP_EPS
) -> list[ToyVerdict]:
    """Judge the theorem at its largest learning rate over a range of eps."""
    return [judge_toy(toy, eps=e, weight_decay=weight_decay, steps=steps) for e in eps]
