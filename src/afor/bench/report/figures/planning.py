"""Draw power over folds and repetitions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.report.figures import style
from afor.bench.stats.design.power import POWER

GREY = "#9A9A9A"


@style.house_style()
def power_figure(
    panels: Mapping[str, NDArray[np.float64]],
    folds: Sequence[int],
    repetitions: Sequence[int],
    *,
    title: str,
    pilot: int,
    power: float = POWER,
) -> Any:
    """Draw power over folds, one line per number of repetitions and one panel per goal in words.

    A panel is the power by (folds, repetitions); wanted power and folds of the pilot are marked.
    """
    figure, axes = style.new_figure(18 + 46 * len(panels), rows=len(panels), sharex=True)
    for axis, (goal, grid) in zip(axes[:, 0], panels.items(), strict=True):
        axis.axhline(100 * power, color=GREY, linewidth=0.8, linestyle="--")
        axis.axvline(pilot, color=GREY, linewidth=0.8, linestyle=":")
        for j, count in enumerate(repetitions):
            axis.plot(
                folds, 100 * grid[:, j], color=style.color_at(j), markersize=3,
                marker=style.marker_at(j), label=f"{count} repetition{'s' * (count > 1)}",
            )  # fmt: skip
        axis.set_title(f"{style.plain(title)}\n{style.plain(goal)}", fontsize=6.5)
        axis.set_ylabel("power (%)")
        axis.set_ylim(0, 102)
        axis.grid(axis="y")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside upper left", ncols=3, columnspacing=1.0, handlelength=1.4,
    )  # fmt: skip
    axes[-1, 0].set_xlabel("folds")
    axes[-1, 0].set_xscale("log")
    ticks = [n for n in (5, 10, 20, 50, 100, 200, 500, 1000, 2000) if folds[0] <= n <= folds[-1]]
    axes[-1, 0].set_xticks(ticks, map(str, ticks))
    axes[-1, 0].minorticks_off()
    figure.supxlabel(f"dashed: {100 * power:g} %; dotted: folds of the pilot", **style.NOTE)
    return figure
