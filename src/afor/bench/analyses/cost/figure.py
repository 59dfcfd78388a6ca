"""The figure of a step's time over the number of parameters, absolute and relative to Adam's."""

from collections.abc import Mapping, Sequence
from typing import Any

from afor.bench.analyses.cost.table import column_label
from afor.bench.report.figures import style

HEIGHT_MM = 112


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
