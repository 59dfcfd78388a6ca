"""Draw how far another seed moves a fold, beside what another method does."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from afor.bench.common.errors import ConfigError
from afor.bench.report.figures import style
from afor.bench.stats.design.seed_noise import NO_REPLICATES, seed_noise
from afor.bench.stats.groups import mean_sd
from afor.bench.stats.labels import gain_label, method_label, metric_style, task_label
from afor.bench.stats.results import Results

DARK = "#4D4D4D"


@style.house_style()
def noise_figure(results: Results) -> Any:
    """Draw the fold differences of one method under other seeds and of other methods.

    The first row of a panel pools all pairs of replicates; the others are gains over the baseline
    under the same seeds, paired by fold. A label gives the SD of the differences.
    """
    metric = results.metrics[0]
    noises = [seed_noise(results.conditions, *task, metric) for task in results.tasks]
    measured = [noise for noise in noises if noise is not None]
    if not measured:
        raise ConfigError(NO_REPLICATES)
    comparisons = results.needed_comparisons(metric)
    scale = metric_style(metric).gain_scale
    panels = []
    for noise in measured:
        task = (noise.dataset, noise.backbone)
        panels.append((noise, [c for c in comparisons if (c.dataset, c.backbone) == task]))
    rows = [1 + len(compared) for _, compared in panels]
    height, ratios = 17 + sum(8 + 5 * count for count in rows), [1 + count for count in rows]
    figure, axes = style.new_figure(height, rows=len(rows), sharex=True, height_ratios=ratios)
    for axis, (noise, compared) in zip(axes[:, 0], panels, strict=True):
        axis.axvline(0, color="black", linewidth=0.7, zorder=1)
        # The order of two replicates is arbitrary: every difference is drawn with both signs.
        both = [scale * sign * d for d in noise.differences for sign in (1, -1)]
        _strip(axis, 0, both, DARK)
        labels = [f"other seed (SD {scale * noise.spread:.2f})"]
        for row, c in enumerate(compared, start=1):
            color = style.color_of(c.method, row)
            gains = [scale * pair.gain for pair in c.pairs]
            _strip(axis, row, gains, color)
            mean, sd, _ = mean_sd(gains)
            axis.plot(
                mean, row, marker=style.marker_of(c.method, row), markersize=5, color=color,
                markeredgecolor="white", markeredgewidth=0.6, zorder=3,
            )  # fmt: skip
            labels.append(f"{method_label(c.method)} (SD {sd:.2f})")
        style.name_rows(axis, labels)
        axis.spines["left"].set_visible(False)
        names = style.plain(task_label(noise.dataset, noise.backbone))
        axis.set_title(f"{names}\nn = {noise.folds} folds")
    axes[-1, 0].set_xlabel(style.plain(gain_label(metric, results.baseline)))
    figure.supxlabel(
        "small: one fold; large: mean over folds\n"
        "other seed: one method under two seeds, every pair, both signs\n"
        "the others ran under the same seeds as the baseline",
        **style.NOTE,
    )
    return figure


def _strip(axis: Any, row: int, values: Sequence[float], color: str) -> None:
    """Draw one dot per fold, neighbouring values at different heights."""
    heights = row + 0.5 * (np.arange(len(values)) * 0.618 % 1 - 0.5)
    axis.scatter(np.sort(values), heights, s=5, color=color, alpha=0.55, linewidth=0, zorder=2)
