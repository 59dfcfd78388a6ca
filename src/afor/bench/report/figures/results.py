"""Draw results: gain over the baseline, paired folds, mean ranks."""

import math
from collections.abc import Sequence
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.report.figures import style
from afor.bench.report.tables.side import ONE_TASK, ranks_caption
from afor.bench.stats.comparisons import Comparison, Ranks
from afor.bench.stats.groups import mean_sd
from afor.bench.stats.labels import (
    dataset_label,
    gain_label,
    method_label,
    metric_style,
    signed,
    task_label,
)


@style.house_style()
def gain_figure(comparisons: Sequence[Comparison]) -> Any:
    """Draw the gain over the baseline per data set, its spread, and the margin of equivalence.

    `comparisons` are by one metric. With several backbones: their mean and SD, as the paper's Fig.
    2, and each of them as a dot. With one: the mean over folds and its exact 95 % interval.
    """
    metric, baseline = comparisons[0].metric, comparisons[0].baseline
    names = list(dict.fromkeys(c.method for c in comparisons))
    datasets = list(dict.fromkeys(c.dataset for c in comparisons))
    several = len({c.backbone for c in comparisons}) > 1
    height = 12 + len(datasets) * (9 + 4.2 * len(names))
    figure, axes = style.new_figure(height, rows=len(datasets), sharex=True)
    for axis, dataset in zip(axes[:, 0], datasets, strict=True):
        of_dataset = [c for c in comparisons if c.dataset == dataset]
        if (margin := of_dataset[0].evidence.margin) is not None:  # what counts as equivalent
            bound = metric_style(metric).gain_scale * margin
            axis.axvspan(-bound, bound, color="#D9D9D9", linewidth=0, zorder=0)
        axis.axvline(0, color="black", linewidth=0.7)
        for row, name in enumerate(names):
            _gain_row(axis, row, name, [c for c in of_dataset if c.method == name], several)
        style.name_rows(axis, [method_label(name) for name in names])
        axis.spines["left"].set_visible(False)
        folds = max(c.folds for c in of_dataset)
        axis.set_title(style.plain(f"{dataset_label(dataset)} (n = {folds} folds)"))
    axes[-1, 0].set_xlabel(style.plain(gain_label(metric, baseline)))
    spread = "SD over backbones; dots: backbones" if several else "exact 95 % interval"
    margin = comparisons[0].evidence.margin
    band = f"\ngrey band: equal within {metric_style(metric).margin_text(margin)}" if margin else ""
    hollow = "\nhollow: runs are missing" if not all(c.complete for c in comparisons) else ""
    figure.supxlabel(f"bars: {spread}{band}{hollow}", **style.NOTE)
    return figure


@style.house_style()
def folds_figure(comparison: Comparison) -> Any:
    """Draw each fold's two results joined by a line, sorted by the gain."""
    c, look = comparison, metric_style(comparison.metric)
    rows = sorted(c.pairs, key=lambda row: row.gain, reverse=True)
    figure, axes = style.new_figure(22 + 2.7 * len(rows))
    axis = axes[0, 0]
    for number, row in enumerate(rows):
        color, dash = (style.BLUE, "-") if row.gain >= 0 else (style.VERMILION, (0, (2, 1)))
        ends, height = [look.scale * row.theirs, look.scale * row.ours], [number, number]
        axis.plot(ends, height, color=color, linestyle=dash, linewidth=1.2, zorder=1)
    axis.scatter(
        [look.scale * row.theirs for row in rows], range(len(rows)), s=11, facecolor="white",
        edgecolor="black", linewidth=0.7, zorder=2, label=style.plain(method_label(c.baseline)),
    )  # fmt: skip
    axis.scatter(
        [look.scale * row.ours for row in rows], range(len(rows)), s=13, color="black", zorder=3,
        label=style.plain(method_label(c.method)),
    )  # fmt: skip
    style.name_rows(axis, [row.label for row in rows], fontsize=5.5)
    axis.set_xlabel(style.plain(metric_style(c.metric).with_unit))
    gain = signed(look.gain_scale * c.gain)
    axis.set_title(style.plain(task_label(c.dataset, c.backbone)))
    text = f"mean gain {gain}; better in {c.won_tied_lost[0]} of {len(rows)}"
    style.set_right_title(axis, text)
    figure.legend(loc="outside lower center", ncols=2, handletextpad=0.2)
    return figure


@style.house_style()
def rank_figure(ranks: Ranks) -> Any:
    """Draw mean ranks on a line; those a bar joins are closer than the critical difference.

    Raises:
        ConfigError: Fewer than two tasks are complete.
    """
    if len(ranks.tasks) < 2:
        raise ConfigError(ONE_TASK)
    order = sorted(range(len(ranks.methods)), key=lambda i: ranks.mean_ranks[i])
    values = [ranks.mean_ranks[i] for i in order]
    half = (len(order) + 1) // 2
    bars = _cliques(values, ranks.critical_difference)
    top = 0.9 + 0.32 * len(bars)
    figure, axes = style.new_figure(25 + 3.6 * (half + len(bars)))
    axis = axes[0, 0]
    axis.set_xlim(len(order) + 0.05, 0.95)  # the best stands to the right
    axis.set_ylim(-top - 0.55 * half, 0.9)
    axis.spines[["left", "bottom"]].set_visible(False)
    axis.spines["top"].set_visible(True)
    axis.spines["top"].set_position(("data", 0))
    axis.xaxis.set_ticks_position("top")
    axis.set_xticks(range(1, len(order) + 1))
    axis.set_yticks([])
    for position, i in enumerate(order):
        right = position < half
        depth = position if right else len(order) - 1 - position
        level = -top - 0.55 * depth
        edge = 0.95 if right else len(order) + 0.05
        name = ranks.methods[i]
        color = style.color_of(name, i)
        axis.plot([values[position]] * 2, [0, level], color=color, linewidth=0.9)
        axis.plot([values[position], edge], [level] * 2, color=color, linewidth=0.9)
        text = f"{method_label(name)} {values[position]:.2f}"
        axis.annotate(
            style.plain(text), (edge, level), xytext=(3 if right else -3, 0),
            textcoords="offset points", va="center", ha="left" if right else "right",
            annotation_clip=False,
        )  # fmt: skip
    for number, (low, high) in enumerate(bars):
        level = -0.45 - 0.32 * number
        axis.plot([low - 0.04, high + 0.04], [level] * 2, color="black", linewidth=2.2)
    if not math.isnan(ranks.critical_difference):
        end = len(order)
        axis.plot([end, end - ranks.critical_difference], [0.75] * 2, color=style.GREY, marker="|")
        axis.annotate(
            f"critical difference {ranks.critical_difference:.2f}",
            (end - ranks.critical_difference, 0.75), xytext=(4, 0),
            textcoords="offset points", va="center", **style.NOTE,
        )  # fmt: skip
    # One line of it is wider than a column.
    caption = style.plain(ranks_caption(ranks)).replace("; ", "\n")
    figure.supxlabel(caption, **style.NOTE)
    return figure


def _gain_row(axis: Any, row: int, name: str, comparisons: list[Comparison], several: bool) -> None:
    if not comparisons:
        return
    color, marker = style.color_of(name, row), style.marker_of(name, row)
    scale = metric_style(comparisons[0].metric).gain_scale
    gains = [scale * c.gain for c in comparisons]
    mean, sd, _ = mean_sd(gains)
    if several:
        low, high = mean - sd, mean + sd
        axis.scatter(gains, [row + 0.26] * len(gains), s=3, color=color, alpha=0.7, linewidth=0)
    else:
        low, high = (scale * end for end in comparisons[0].interval)
    if math.isfinite(low) and math.isfinite(high):
        axis.plot([low, high], [row, row], color=color, linewidth=1.3)
    complete = all(c.complete for c in comparisons)
    axis.plot(
        mean, row, marker=marker, markersize=4.2, color=color, markeredgewidth=0.9,
        markerfacecolor=color if complete else "white",
    )  # fmt: skip


def _cliques(values: Sequence[float], difference: float) -> list[tuple[float, float]]:
    """Return the widest ranges of sorted ranks within one critical difference."""
    spans: list[tuple[float, float]] = []
    for i, low in enumerate(values):
        close = [v for v in values[i:] if v - low < difference]
        if len(close) > 1 and (not spans or close[-1] > spans[-1][1]):
            spans.append((low, close[-1]))
    return spans
