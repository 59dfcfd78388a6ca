"""Draw how far another seed moves a fold, beside what another optimizer does."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from afor.bench.common.errors import ConfigError
from afor.bench.report.figures import style
from afor.bench.stats.comparisons import BASELINE, blocks_of
from afor.bench.stats.design.seed_noise import NO_COPIES, SeedNoise, copy_differences, seed_noise
from afor.bench.stats.groups import Conditions, block_of, mean_sd, paired_gains
from afor.bench.stats.labels import block_label, gain_label, gain_scale, optimizer_label

DARK = "#4D4D4D"


@style.house_style()
def noise_figure(
    conditions: Conditions,
    metric: str = "accuracy",
    *,
    baseline: str = BASELINE,
    optimizers: Sequence[str] | None = None,
) -> Any:
    """Draw the fold differences of one method under other seeds and of other optimizers.

    The first row of a panel pools all pairs of copies; the others are gains over the baseline under
    the same seeds, paired by fold. A label gives the SD of a fold.
    """
    blocks = [seed_noise(conditions, d, b, metric) for d, b in blocks_of(conditions)]
    measured = [noise for noise in blocks if noise is not None]
    if not measured:
        raise ConfigError(NO_COPIES)
    panels = [(noise, _gains(conditions, noise, baseline, optimizers)) for noise in measured]
    scale = gain_scale(metric)
    rows = [1 + len(gains) for _, gains in panels]
    height, ratios = 17 + sum(8 + 5 * count for count in rows), [1 + count for count in rows]
    figure, axes = style.new_figure(height, rows=len(rows), sharex=True, height_ratios=ratios)
    for axis, (noise, gains) in zip(axes[:, 0], panels, strict=True):
        axis.axvline(0, color="black", linewidth=0.7, zorder=1)
        same = copy_differences(conditions, noise.dataset, noise.backbone, metric)
        _strip(axis, 0, [scale * d for d in same], DARK, "o", mean=False)
        labels = [f"other seed (SD {scale * noise.spread:.2f})"]
        for row, (name, gain) in enumerate(gains, start=1):
            color, marker = style.color_of(name, row), style.marker_of(name, row)
            _strip(axis, row, [scale * d for d in gain], color, marker, mean=True)
            _, sd, _ = mean_sd(gain)
            labels.append(f"{optimizer_label(name)} (SD {scale * sd:.2f})")
        style.name_rows(axis, labels)
        axis.spines["left"].set_visible(False)
        block = style.plain(block_label(noise.dataset, noise.backbone))
        axis.set_title(f"{block}\nn = {noise.folds} folds")
    axes[-1, 0].set_xlabel(style.plain(gain_label(metric, baseline)))
    figure.supxlabel(
        "small: one fold; large: mean over folds\n"
        "other seed: one optimizer under two seeds, every pair, both signs\n"
        "the others ran under the same seeds as the baseline",
        **style.NOTE,
    )
    return figure


def _gains(
    conditions: Conditions, noise: SeedNoise, baseline: str, optimizers: Sequence[str] | None
) -> list[tuple[str, list[float]]]:
    """Return the paired fold differences of every optimizer that is not a control."""
    block = {c.optimizer: c for c in block_of(conditions, noise.dataset, noise.backbone)}
    base = block.get(baseline)
    if base is None or not base.has(noise.metric):
        raise ConfigError(
            f"The baseline {baseline!r} has no finished run on {noise.dataset}/{noise.backbone}. "
            f"Choose another with --baseline; here: {', '.join(block)}."
        )
    names = optimizers or [o for o, c in block.items() if not c.is_copy and not c.role.varied]
    gains = []
    for name in names:
        condition = block.get(name)
        if condition is not None and name != baseline and condition.has(noise.metric):
            gains.append((name, paired_gains(condition, base, noise.metric)[1].tolist()))
    return gains


def _strip(
    axis: Any, row: int, values: Sequence[float], color: str, marker: str, *, mean: bool
) -> None:
    """Draw one dot per fold, spread over the row in the order of their values, and their mean."""
    if not values:
        return
    # Van der Corput's sequence gives neighbouring values different heights, reproducibly.
    heights = [_corput(i + 1) - 0.5 for i in range(len(values))]
    ordered = np.sort(np.asarray(values))
    axis.scatter(
        ordered, row + 0.5 * np.array(heights), s=5, color=color, alpha=0.55, linewidth=0, zorder=2
    )
    if mean:
        axis.plot(
            math.fsum(values) / len(values), row, marker=marker, markersize=5, color=color,
            markeredgecolor="white", markeredgewidth=0.6, zorder=3,
        )  # fmt: skip


def _corput(number: int) -> float:
    value, share = 0.0, 0.5
    while number:
        value += share * (number & 1)
        number >>= 1
        share /= 2
    return value
