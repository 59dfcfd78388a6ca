"""Theorem 1 (Sec. VI) in numbers, on a toy problem with known constants, and Lemma 1.

    python docs/figures/theory.py        # the table of docs/analyses/theory.md and its picture

The toy is logistic regression on bounded features. Per window the gradient is (p - y) x with
|p - y| < 1, so every element is below the largest |x|; the Hessian is at most X'X / 4n; sampling
with replacement gives the noise; the loss is at least 0. Each constant names its equation.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from afor import AFOR
from afor.bench.report.figures import style
from afor.control import FIELDS

Floats = NDArray[np.float64]
WINDOWS, FEATURES, BATCH = 512, 10, 32
SWEEP_EPS = tuple(10.0**k for k in (-8, -7, -6, -5, -4, -3, -2, -1, -0.5, 0, 0.5, 1))
MAX_FITS = 8  # trainings to find a learning rate that its own drift permits
DEFAULT_EPS = 1e-8  # Sec. IV-C
DEFAULT_LR = 1e-3  # Table II, DEAP
SWEEP_LOOKS: tuple[dict[str, Any], ...] = (
    {"color": style.BLUE, "marker": "o"},
    {"color": style.VERMILION, "marker": "s"},
)
STEPS = 500
PICTURE = Path(__file__).parents[1] / "images" / "theory_toy.png"
# The rows of the page: eps, weight decay, and a learning rate (0: the largest that is permitted).
ROWS = {
    "as AFOR is used": (1e-8, 1e-4, 1e-3),
    "no weight decay": (1e-8, 0.0, 1e-3),
    "ε = 1, no weight decay": (1.0, 0.0, 0.0),
}


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
        raise ValueError("steps, lr and eps must be above 0, weight_decay 0 or above")
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


def weights(beta2: ArrayLike) -> NDArray[np.float64]:
    """Return the weight of each squared gradient in the corrected second moment, oldest first.

    Eq. (afor_convex_form), pi_{t,i} at the last step of the trace. They are not negative and sum
    to 1.

    >>> weights([0.5, 0.5]).round(4).tolist()
    [0.3333, 0.6667]
    """
    trace = _checked(beta2)
    later = np.append(np.cumprod(trace[:0:-1])[::-1], 1.0)  # product of the decays after each step
    raw: NDArray[np.float64] = (1.0 - trace) * later
    return raw / (1.0 - np.prod(trace))


def memory_length(beta2: ArrayLike) -> NDArray[np.float64]:
    """Return the effective memory at every step: the weighted mean age of a gradient, plus one.

    For a constant decay it tends to 1 / (1 - beta2), the paper's 100 to 1000 steps (Sec. III-C).

    >>> memory_length([0.5, 0.5]).round(4).tolist()
    [1.0, 1.3333]
    """
    trace = _checked(beta2)
    lengths = np.empty(len(trace))
    aged = total = 0.0  # sums of weight * (age + 1) and of weights, before the bias correction
    for step, decay in enumerate(trace.tolist()):
        aged = decay * (aged + total) + (1.0 - decay)
        total = decay * total + (1.0 - decay)
        lengths[step] = aged / total
    return lengths


def direction_bound(beta2: ArrayLike, beta1: float = 0.9) -> NDArray[np.float64]:
    """Return at every step a bound on |m| / sqrt(v), both corrected, whatever the gradients were.

    The paper bounds it by G / eps. Here it is sqrt(sum of w² / pi), by Cauchy-Schwarz, over the
    weights w of the first moment (Eq. afor_momentum_weights) and pi of the second.

    >>> direction_bound([0.999, 0.999])[0].round(6).item()
    1.0
    """
    trace = _checked(beta2)
    bounds = np.empty(len(trace))
    quotient = total = 0.0  # sum of w² / pi, and of the weights pi, before the correction
    power = 1.0
    for step, decay in enumerate(trace.tolist()):
        earlier = beta1 * beta1 / decay * quotient if quotient else 0.0
        quotient = earlier + (1.0 - beta1) ** 2 / (1.0 - decay)
        total = decay * total + (1.0 - decay)
        power *= beta1
        bounds[step] = math.sqrt(quotient * total) / (1.0 - power)
    return bounds


def _checked(beta2: ArrayLike) -> NDArray[np.float64]:
    trace = np.asarray(beta2, dtype=np.float64)
    if trace.ndim != 1 or trace.size == 0:
        raise ValueError(f"a trace of beta2 is one number per step, found shape {trace.shape}")
    if not bool(np.all((trace > 0.0) & (trace < 1.0))):
        wrong = trace[~((trace > 0.0) & (trace < 1.0))][0]
        raise ValueError(f"beta2 must lie between 0 and 1 at every step, found {wrong}")
    return trace


@style.house_style()
def toy_figure(sweeps: Mapping[float, Sequence[ToyVerdict]]) -> Any:
    """Draw the permitted learning rate and the bound over eps: `sweep_eps` by weight decay."""
    figure, axes = style.new_figure(108, rows=2, sharex=True)
    rates, bounds = axes[:, 0]
    for (decay, sweep), look in zip(sweeps.items(), SWEEP_LOOKS, strict=False):
        eps = [v.assumptions.eps for v in sweep]
        look = {**look, "markersize": 3}
        label = f"λ = {decay:g}"
        rates.plot(eps, [v.lr for v in sweep], label=label, **look)
        bounds.plot(eps, [v.bound.total for v in sweep], label=f"bound, {label}", **look)
        measured = [float(v.run.grad_sq.mean()) for v in sweep]
        look.update(linestyle=":", markerfacecolor="white", linewidth=0.8)
        bounds.plot(eps, measured, label=f"what happened, {label}", **look)
    trivial = next(iter(sweeps.values()))[0].assumptions.trivial_bound
    rates.axhline(DEFAULT_LR, color=style.GREY, linewidth=0.8)
    rates.annotate(
        "a usual learning rate, 0.001", (1.2e-8, DEFAULT_LR), xytext=(0, 2),
        textcoords="offset points", color=style.GREY, fontsize=6,
    )  # fmt: skip
    bounds.axhline(trivial, color=style.BLACK, linewidth=0.8)
    bounds.annotate(
        "N G²: holds without a theorem", (1.2e-8, trivial), xytext=(0, 2),
        textcoords="offset points", fontsize=6,
    )  # fmt: skip
    rates.set(xscale="log", yscale="log", ylabel="largest learning rate")
    rates.set_title("a  What the theorem permits")
    rates.legend(loc="lower right")
    bounds.set(yscale="log", xlabel="ε (AFOR's default: 10⁻⁸)", ylabel="mean squared gradient")
    bounds.set_title("b  What it then promises")
    for axis in (rates, bounds):
        axis.grid(True)
        axis.axvline(DEFAULT_EPS, color=style.GREY, linewidth=0.6, linestyle="--")
    style.legend_below(figure, bounds, 2)
    return figure


def row(toy: Toy, eps: float, weight_decay: float, lr: float, steps: int = STEPS) -> list[str]:
    """Return what the theorem says at one setting, as the cells of the page."""
    judged = judge_toy(toy, eps=eps, weight_decay=weight_decay, steps=steps, lr=lr)
    largest = judged.constants.largest_lr
    bound = finite_bound(judged.assumptions, judged.constants, largest).total
    orders = math.log10(bound / judged.assumptions.trivial_bound)
    factor = judged.lr / largest
    return [
        f"{judged.lr:.3g}",
        f"{largest:.2g}",
        f"{factor:.1g}" if factor > 1.0 else "–",
        f"{bound:.3g}",
        f"{judged.assumptions.trivial_bound:.3g}",
        f"{orders:.1f} orders" if orders > 0 else "**informative**",
        f"{judged.run.grad_sq.mean():.2g}",
    ]


def main() -> None:
    """Print the rows of the page and draw the bound over eps."""
    toy = make_toy()
    for name, settings in ROWS.items():
        print("| " + " | ".join([name, *row(toy, *settings)]) + " |")
    sweeps = {decay: sweep_eps(toy, weight_decay=decay, steps=STEPS) for decay in (0.0, 1e-4)}
    style.save_figure(toy_figure(sweeps), PICTURE, dpi=200)
    print(PICTURE)


if __name__ == "__main__":
    main()
