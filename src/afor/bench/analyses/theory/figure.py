"""Where Theorem 1 says something, on the toy problem; what a run's second moment remembers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from afor.bench.analyses.theory.memory_weights import weights
from afor.bench.report.figures.style import (
    BLACK,
    BLUE,
    CYCLE,
    GREY,
    VERMILION,
    house_style,
    new_figure,
    plain,
)
from afor.bench.training.controller_trace import layer_group

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from afor.bench.analyses.theory.toy import ToyVerdict

DEFAULT_EPS = 1e-8  # Sec. IV-C
DEFAULT_LR = 1e-3  # Table II, DEAP
LAYERS = tuple(color for color in CYCLE if color != BLACK)
FIXED = (0.99, 0.999)  # beta2_min and beta2_init, Sec. III-C


def toy_figure(sweeps: Mapping[float, Sequence["ToyVerdict"]]) -> Any:
    """Draw the permitted learning rate and the bound over eps, one curve per weight decay."""
    with house_style():
        figure, axes = new_figure(108, rows=2, sharex=True)
        rates, bounds = axes[:, 0]
        for (decay, sweep), color, marker in zip(
            sweeps.items(), (BLUE, VERMILION), "os", strict=False
        ):
            eps = [v.given.eps for v in sweep]
            style = {"color": color, "marker": marker, "markersize": 3}
            label = f"λ = {decay:g}"
            rates.plot(eps, [v.lr for v in sweep], label=label, **style)
            bounds.plot(eps, [v.bound.total for v in sweep], label=f"bound, {label}", **style)
            seen = [float(v.run.grad_sq.mean()) for v in sweep]
            style.update(linestyle=":", markerfacecolor="white", linewidth=0.8)
            bounds.plot(eps, seen, label=f"what happened, {label}", **style)
        trivial = next(iter(sweeps.values()))[0].given.trivial_bound
        rates.axhline(DEFAULT_LR, color=GREY, linewidth=0.8)
        rates.annotate(
            "a usual learning rate, 0.001", (1.2e-8, DEFAULT_LR), xytext=(0, 2),
            textcoords="offset points", color=GREY, fontsize=6,
        )  # fmt: skip
        bounds.axhline(trivial, color=BLACK, linewidth=0.8)
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
            axis.axvline(DEFAULT_EPS, color=GREY, linewidth=0.6, linestyle="--")
        handles, labels = bounds.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def memory_figure(beta2: "NDArray[np.float64]", tensors: Sequence[str], title: str) -> Any:
    """Draw Lemma 1's weights at the last step, one curve per layer, over the age of a gradient."""
    import numpy as np

    steps = len(beta2)
    age = np.arange(steps)[::-1]
    groups = list(dict.fromkeys(layer_group(name) for name in tensors))
    with house_style():
        figure, axes = new_figure(70)
        axis = axes[0, 0]
        for decay, style in zip(FIXED, ("--", ":"), strict=True):
            fixed = weights(np.full(steps, decay))
            axis.plot(
                age, fixed, color=BLACK, linestyle=style, linewidth=0.9, label=f"β₂ = {decay:g}"
            )
        for position, group in enumerate(groups):
            own = [i for i, name in enumerate(tensors) if layer_group(name) == group]
            mean = np.mean([weights(beta2[:, i]) for i in own], axis=0)
            axis.plot(
                age,
                mean,
                color=LAYERS[position % len(LAYERS)],
                linestyle="-" if position < len(LAYERS) else "-.",
                label=plain(group),
            )
        axis.set(xlabel="age of the gradient (steps)", ylabel="weight in the second moment")
        axis.set_title(plain(title))
        axis.set_ylim(bottom=0)
        axis.grid(True)
        figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
