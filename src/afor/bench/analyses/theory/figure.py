"""Figures of Theorem 1 on the toy problem, and of the weights in a run's second moment."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.analyses.theory.memory_weights import weights
from afor.bench.analyses.theory.toy import ToyVerdict
from afor.bench.report.figures import style
from afor.bench.training.controller_trace import layer_group

DEFAULT_EPS = 1e-8  # Sec. IV-C
DEFAULT_LR = 1e-3  # Table II, DEAP
SWEEP_LOOKS: tuple[dict[str, Any], ...] = (
    {"color": style.BLUE, "marker": "o"},
    {"color": style.VERMILION, "marker": "s"},
)
LAYER_COLORS = tuple(color for color in style.CYCLE if color != style.BLACK)
FIXED_BETA2 = (0.99, 0.999)  # beta2_min and beta2_init, Sec. III-C


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


@style.house_style()
def memory_figure(beta2: NDArray[np.float64], tensors: Sequence[str], title: str) -> Any:
    """Draw Lemma 1's weights at the last step over the age of a gradient, one curve per layer.

    `beta2` is the trace of every tensor, (steps, tensors).
    """
    steps = len(beta2)
    age = np.arange(steps)[::-1]
    groups = list(dict.fromkeys(layer_group(name) for name in tensors))
    figure, axes = style.new_figure(70)
    axis = axes[0, 0]
    for decay, look in zip(FIXED_BETA2, ("--", ":"), strict=True):
        fixed = weights(np.full(steps, decay))
        axis.plot(
            age, fixed, color=style.BLACK, linestyle=look, linewidth=0.9, label=f"β₂ = {decay:g}"
        )
    for position, group in enumerate(groups):
        members = [i for i, name in enumerate(tensors) if layer_group(name) == group]
        mean = np.mean([weights(beta2[:, i]) for i in members], axis=0)
        color = LAYER_COLORS[position % len(LAYER_COLORS)]
        look = "-" if position < len(LAYER_COLORS) else "-."
        axis.plot(age, mean, color=color, linestyle=look, label=style.plain(group))
    axis.set(xlabel="age of the gradient (steps)", ylabel="weight in the second moment")
    axis.set_title(style.plain(title))
    axis.set_ylim(bottom=0)
    axis.grid(True)
    style.legend_below(figure, axis, 3)
    return figure
