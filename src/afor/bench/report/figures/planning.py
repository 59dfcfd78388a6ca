"""Draw the p-values of relabelled copies, and power over folds and draws."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.report.figures import style
from afor.bench.stats.design.calibration import Calibration
from afor.bench.stats.design.power import POWER
from afor.bench.stats.labels import block_label, optimizer_label

GREY, DARK = "#9A9A9A", "#4D4D4D"
TITLE_WIDTH = 52  # letters of a title that fit above a figure


@style.house_style()
def calibration_figure(calibrations: Sequence[Calibration]) -> Any:
    """Draw the distribution of p between identical methods, one panel per method and metric.

    Where the procedure is calibrated the curve does not rise above the diagonal. Marks show the
    pairs of copies under their own names.
    """
    columns = 2 if len(calibrations) > 1 else 1
    rows = -(-len(calibrations) // columns)
    figure, axes = style.new_figure(12 + 44 * rows, rows=rows, columns=columns, sharey=True)
    for axis, made in zip(axes.flat, calibrations, strict=False):
        axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--")
        p = np.sort(made.p_values)
        share = np.arange(1, len(p) + 1) / len(p)
        axis.step(np.r_[0, p, 1], np.r_[0, share, 1], where="post", color=style.CYCLE[0])
        trained = [value for *_, value in made.trained]
        axis.plot(
            trained, [0.02] * len(trained), linestyle="", marker="|", markersize=7,
            markeredgewidth=1.4, color=style.VERMILION, clip_on=False,
        )  # fmt: skip
        axis.axvline(made.level, color=DARK, linewidth=0.6, linestyle=":")
        names = " = ".join(optimizer_label(name) for name in made.copies)
        lines = (names, block_label(made.dataset, made.backbone, made.metric))
        width = TITLE_WIDTH // columns
        wrapped = [part for line in lines for part in textwrap.wrap(line, width)]
        axis.set_title("\n".join(map(style.plain, wrapped)), fontsize=6.5)
        axis.set_xlabel("two-sided p")
        low, high = made.false_positives.interval
        axis.annotate(
            f"p < {made.level:g}: {100 * made.false_positives.value:.1f} %\n"
            f"({100 * low:.1f}–{100 * high:.1f})",
            (0.97, 0.14), xycoords="axes fraction", ha="right", fontsize=6, color=DARK,
        )  # fmt: skip
        axis.set(xlim=(0, 1), ylim=(0, 1))
    for axis in list(axes.flat)[len(calibrations) :]:
        axis.set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel("share of studies")
    figure.supxlabel(
        "curve: relabelled copies; dashed: exact test; marks: the copies as trained", **style.NOTE
    )
    return figure


@style.house_style()
def power_figure(
    panels: Mapping[str, NDArray[np.float64]],
    folds: Sequence[int],
    draws: Sequence[int],
    *,
    title: str,
    pilot: int,
    power: float = POWER,
) -> Any:
    """Draw power over folds, one line per number of draws and one panel per goal in words.

    A panel is the power by (folds, draws). The wanted power and the folds of the pilot are marked.
    """
    figure, axes = style.new_figure(18 + 46 * len(panels), rows=len(panels), sharex=True)
    for axis, (goal, grid) in zip(axes[:, 0], panels.items(), strict=True):
        axis.axhline(100 * power, color=GREY, linewidth=0.8, linestyle="--")
        axis.axvline(pilot, color=GREY, linewidth=0.8, linestyle=":")
        for j, count in enumerate(draws):
            axis.plot(
                folds, 100 * grid[:, j], color=style.color_at(j), markersize=3,
                marker=style.shape_at(j), label=f"{count} draw{'s' * (count > 1)}",
            )  # fmt: skip
        axis.set_title(f"{style.plain(title)}\n{style.plain(goal)}", fontsize=6.5)
        axis.set_ylabel("power (%)")
        axis.set_ylim(0, 102)
        axis.grid(axis="y")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside upper left", ncols=5, columnspacing=1.0, handlelength=1.4,
    )  # fmt: skip
    axes[-1, 0].set_xlabel("folds")
    axes[-1, 0].set_xscale("log")
    ticks = [n for n in (5, 10, 20, 50, 100, 200, 500, 1000, 2000) if folds[0] <= n <= folds[-1]]
    axes[-1, 0].set_xticks(ticks, map(str, ticks))
    axes[-1, 0].minorticks_off()
    figure.supxlabel(f"dashed: {100 * power:g} %; dotted: folds of the pilot", **style.NOTE)
    return figure
