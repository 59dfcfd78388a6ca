"""The figure of AFOR's memory in one run: when its controller becomes active."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator
from numpy.typing import NDArray

from afor.bench.analyses.adaptation.memory import (
    COMPARED,
    PARTED,
    Memory,
    active_share,
    active_step,
)
from afor.bench.analyses.step_log import FloatArray, Steps
from afor.bench.report.figures import style
from afor.bench.report.figures.curves import DASHES
from afor.monitor import AWAKE

BINS = 48  # bins of steps to average in, evenly on a logarithmic scale
LEAST_SHOWN = 1e-3  # percent: smaller distances are rounding errors
LEAST_SIGMA = 1e-3
STYLES = {
    "printed": {"color": style.VERMILION, "linewidth": 1.5},
    "calibrated": {"color": style.CYCLE[0], "linewidth": 1.2, "linestyle": DASHES[1]},
    "inactive": {"color": style.CYCLE[2], "linewidth": 1.2, "linestyle": DASHES[4]},
    "longest": {"color": "#444444", "linewidth": 1.0, "linestyle": DASHES[2]},
    "nudged": {"color": style.GREY, "linewidth": 0.9, "linestyle": DASHES[3]},
}


@style.house_style()
def memory_figure(memory: Memory) -> Any:
    """Draw |z|, beta2, sigma and the active share over steps, and the distance from AdamW."""
    figure = style.empty_figure(172)
    grid = figure.add_gridspec(5, 2, height_ratios=[1, 1, 0.8, 0.8, 1.15])
    last = max(len(memory.printed), 2)
    rows: list[list[Any]] = []
    for number in range(4):
        left = figure.add_subplot(grid[number, 0])
        rows.append([left, figure.add_subplot(grid[number, 1], sharey=left)])
    forms = ((memory.printed, "AFOR as printed"), (memory.calibrated, "calibrated statistics"))
    for column, (steps, title) in enumerate(forms):
        rows[0][column].set_title(title)
        _column([row[column] for row in rows], steps)
        for row in rows:
            row[column].set(xscale="log", xlim=(1, last))
            row[column].grid(axis="y")
            row[column].tick_params(labelleft=column == 0, labelbottom=row is rows[-1])
            row[column].xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        rows[-1][column].set_xlabel("step")
    rows[0][0].set(ylabel="|ζ|, mean of steps")
    rows[1][0].set(ylabel="β₂", ylim=memory.printed.beta2_range)
    rows[2][0].set(ylabel="σ of the score", yscale="log", ylim=(LEAST_SIGMA, 1.5))
    rows[3][0].set(ylabel="active (%)", ylim=(0, 100))
    _distances(figure.add_subplot(grid[4, :]), memory, last)
    title = "layer groups; band: range over their tensors"
    style.legend_below(figure, rows[0][0], 4, handlelength=2.6, title=title, title_fontsize=6.5)
    figure.align_ylabels()
    figure.suptitle(style.plain(memory.label), fontsize=7, x=0.01, ha="left")
    return figure


def _column(axes: Sequence[Any], steps: Steps) -> None:
    zscore, beta2, spread, active = axes
    for number, (group, members) in enumerate(steps.groups.items()):
        color, dash = style.color_at(number), DASHES[number % len(DASHES)]
        for axis, values in (
            (zscore, np.abs(steps["zscore"])),
            (beta2, steps["beta2"]),
            (spread, steps["score_std"]),
        ):
            at, means = log_means(values[:, members])
            axis.plot(at, means.mean(axis=1), color=color, linestyle=dash, label=style.plain(group))
            if len(members) > 1:  # the range over the tensors of the group
                axis.fill_between(
                    at, means.min(axis=1), means.max(axis=1), color=color, alpha=0.12, linewidth=0
                )
    at, share = log_means(100 * active_share(steps)[:, None])
    active.plot(at, share[:, 0], color="black")
    low, high = steps.beta2_range
    zscore.axhline(AWAKE, color=style.GREY, linestyle=":", zorder=0)
    beta2.axhline((low + high) / 2, color=style.GREY, linestyle=":", zorder=0)
    for axis in axes:
        axis.axvspan(1, max(steps.warmup_steps, 1), color="#F2F2F2", zorder=-1, linewidth=0)
    for axis, level in ((zscore, AWAKE), (beta2, (low + high) / 2)):
        axis.annotate(
            f"{level:g}", (1.01, level), xycoords=("axes fraction", "data"), ha="left",
            va="center", fontsize=5.5, color="#555555", annotation_clip=False,
        )  # fmt: skip
    if steps.warmup_steps > 1:
        zscore.text(1.15, 0.97, "warm-up", transform=zscore.get_xaxis_transform(), va="top",
                    fontsize=6, color="#555555")  # fmt: skip
    since = active_step(steps)
    words = f"half active from step {since}" if since else "never half active"
    active.text(
        0.98, 0.92, words, transform=active.transAxes, ha="right", va="top", fontsize=6,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8},
    )  # fmt: skip


def _distances(axis: Any, memory: Memory, last: int) -> None:
    for name, values in memory.distances.items():
        label = COMPARED[name]
        if name == "longest":
            label = f"AdamW {memory.printed.beta2_range[1]:g}"
        # The distance is 0 before the first difference, which a logarithmic scale cannot show.
        shown = np.where(values > 0, 100 * values, np.nan)
        axis.plot(memory.marks, shown, label=label, **STYLES[name])
    axis.axhline(100 * PARTED, color=style.GREY, linestyle=":", zorder=0)
    axis.set(xscale="log", yscale="log", xlabel="step", ylabel="distance (%)")
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_major_locator(LogLocator(numticks=9))
    axis.set_title(f"parameters: distance from AdamW {memory.middle:g}, of the way it travelled")
    axis.set(xlim=(1, last), ylim=(LEAST_SHOWN, None))
    axis.legend(loc="lower right", ncols=2, handlelength=2.6)
    axis.grid(axis="y")


def log_means(values: FloatArray, bins: int = BINS) -> tuple[NDArray[np.float64], FloatArray]:
    """Average (steps, tensors) over bins that are even on a logarithmic scale of steps.

    Returns the middle step of each bin and the means, (bins, tensors).

    >>> log_means(np.array([[1.0], [2.0], [4.0], [6.0]]), bins=2)[1].ravel().tolist()
    [1.5, 5.0]
    """
    edges = np.unique(np.geomspace(1, len(values) + 1, bins + 1).round().astype(np.int64))
    means = np.stack([values[a - 1 : b - 1].mean(axis=0) for a, b in pairwise(edges)])
    return np.sqrt(edges[:-1] * (edges[1:] - 1.0)), means
