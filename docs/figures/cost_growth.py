"""Draw the time of a step over the number of parameters, for the page of costs.

    python docs/figures/cost_growth.py [FILE]

Twelve matrices, as many tensors as EEGNet has, with a thousand to a million parameters together.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from afor.bench.analyses.cost.compute import WEIGHT_DECAY, entrants_of, measure_latency
from afor.bench.analyses.cost.views import column_label
from afor.bench.optimizers.registry import PAPER_OPTIMIZERS
from afor.bench.report.figures import style

IMAGE = Path(__file__).parents[1] / "images" / "cost_growth.png"
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
TENSORS = 12
ROUNDS = 41
HEIGHT_MM = 112


def measure_growth(
    optimizers: Sequence[str] = PAPER_OPTIMIZERS,
    sizes: Sequence[int] = SIZES,
    *,
    rounds: int = ROUNDS,
) -> list[dict[str, Any]]:
    """Measure how the time of a step grows with the number of parameters.

    The parameters are twelve nearly square tensors. Returns one row per size and optimizer: its
    time, and relative to Adam's.
    """
    entrants = entrants_of(optimizers)
    generator = torch.Generator().manual_seed(0)
    rows: list[dict[str, Any]] = []
    for size in sizes:
        side = max(1, round((size / TENSORS) ** 0.5))
        shape = (side, max(1, round(size / TENSORS / side)))
        tensors = nn.ParameterList(torch.randn(shape, generator=generator) for _ in range(TENSORS))
        for tensor in tensors:
            tensor.grad = torch.randn(tensor.shape, generator=generator)
        measured = measure_latency(
            entrants, tensors, None, weight_decay=WEIGHT_DECAY, rounds=rounds
        )
        parameters = TENSORS * shape[0] * shape[1]
        rows += [
            {"parameters": parameters, "optimizer": name, **latency}
            for name, latency in measured.items()
        ]
    return rows


@style.house_style()
def growth_figure(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Draw the rows of `measure_growth`: microseconds above, ratios with their quartiles below."""
    names = list(dict.fromkeys(row["optimizer"] for row in rows))
    figure, axes = style.new_figure(HEIGHT_MM, rows=2, sharex=True)
    time, ratio = axes[:, 0]
    for position, name in enumerate(names):
        of_optimizer = [row for row in rows if row["optimizer"] == name]
        sizes = [row["parameters"] for row in of_optimizer]
        base, _, implementation = name.partition(" ")
        look = {
            "color": style.color_of(base, position),
            "marker": style.marker_of(base, position),
            "linestyle": (0, (3, 1.5)) if implementation else "-",
            "markerfacecolor": "white" if implementation else style.color_of(base, position),
            "markersize": 3,
            "markeredgewidth": 0.7,
            # Parameters alone, without a network, so Sophia's second pass is not in it.
            "label": column_label(name) + (" (step alone)" if name == "sophia" else ""),
        }
        time.plot(sizes, [row["step_us"] for row in of_optimizer], **look)
        if name == "adam":
            ratio.axhline(1.0, color=look["color"], linewidth=0.8)
            continue
        ratio.plot(sizes, [row["latency_ratio"] for row in of_optimizer], **look)
        low = [row["latency_ratio_low"] for row in of_optimizer]
        high = [row["latency_ratio_high"] for row in of_optimizer]
        ratio.fill_between(sizes, low, high, color=look["color"], alpha=0.12, linewidth=0)
    _guide(time, rows)
    time.set(ylabel="time of a step (µs)", xscale="log", yscale="log")
    time.set_title("a  Time of a step")
    ratio.set(xlabel="parameters (in 12 tensors)", ylabel="time / Adam's", yscale="log")
    ratio.set_yticks([0.1, 1, 10], labels=["0.1", "1", "10"])
    ratio.set_title("b  Beside Adam's (band: quartiles of the rounds)")
    for axis in (time, ratio):
        axis.grid(True)
    style.legend_below(figure, time, 3)
    return figure


def _guide(axis: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw the slope of a time that is proportional to the parameters, below all curves."""
    last = max(row["parameters"] for row in rows)
    floor = min(row["step_us"] for row in rows if row["parameters"] == last) / 3
    first = last / 30
    axis.plot(
        [first, last], [floor * first / last, floor], color=style.GREY, linewidth=0.7, linestyle=":"
    )
    axis.annotate(
        "∝ parameters", (first, floor * first / last), xytext=(-2, 0), textcoords="offset points",
        ha="right", va="center", color=style.GREY, fontsize=6,
    )  # fmt: skip


if __name__ == "__main__":
    style.save_figure(growth_figure(measure_growth()), Path(*sys.argv[1:] or [IMAGE]))
