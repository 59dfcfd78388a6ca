"""Draw the gain over the reference against beta2, with the rules beside it."""

import math
from collections.abc import Sequence
from typing import Any

from afor.bench.analyses.headroom.compute import Headroom, MethodScore
from afor.bench.report.figures import style
from afor.bench.stats.labels import block_label, metric_style


@style.house_style()
def headroom_figure(results: Sequence[Headroom]) -> Any:
    """Draw one panel per data set, backbone and metric: constants to the left, rules to the right.

    Bars are exact 95 % intervals over folds or draws, from six on; the band is the interval of the
    best constant.
    """
    figure, axes = style.new_figure(14 + 38 * len(results), rows=len(results))
    for axis, result in zip(axes[:, 0], results, strict=True):
        _panel(axis, result)
    bars = f"bars: exact 95 % over {results[0].units}; settings chosen on the other half"
    figure.supxlabel(f"{bars}\ngrey band: best constant", **style.NOTE)
    return figure


def _panel(axis: Any, result: Headroom) -> None:
    look = metric_style(result.metric)
    scale = look.gain_scale
    best = result.best_constant
    low, high = best.interval
    if math.isfinite(low):
        axis.axhspan(scale * low, scale * high, color="#E8E8E8", linewidth=0, zorder=0)
    axis.axhline(scale * best.gain, color=style.GREY, linewidth=0.8, linestyle=(0, (3, 1.5)))
    axis.axhline(0, color=style.BLACK, linewidth=0.7)
    positions = range(len(result.constants))
    gains = [scale * method.gain for method in result.constants]
    axis.plot(positions, gains, color=style.BLACK, linewidth=0.9)
    for position, method in zip(positions, result.constants, strict=True):
        _point(axis, position, method, scale, style.BLACK, "o")
    start = len(result.constants) + 0.5
    for number, rule in enumerate(result.rules):
        color, shape = (style.color_at(number), style.shape_at(number + 1))
        _point(axis, start + number, rule, scale, color, shape)
    if result.rules:
        axis.axvline(start - 0.75, color="#BBBBBB", linewidth=0.6)
    labels = [f"{method.beta2:g}" for method in result.constants]
    labels += [style.plain(rule.method) for rule in result.rules]
    ticks = [*positions, *(start + number for number in range(len(result.rules)))]
    axis.set_xticks(ticks, labels, rotation=35, ha="right", rotation_mode="anchor")
    axis.set_ylabel(f"{style.plain(look.label)} gain over\n{result.reference:g} ({look.gain_unit})")
    names = (result.study, block_label(result.dataset, result.backbone))
    axis.set_title("\n".join(map(style.plain, names)))
    axis.grid(axis="y")


def _point(
    axis: Any, position: float, method: MethodScore, scale: float, color: str, shape: str
) -> None:
    ends = [scale * end for end in method.interval]
    if math.isfinite(ends[0]):
        axis.plot([position] * 2, ends, color=color, linewidth=1.2)
    axis.plot(position, scale * method.gain, marker=shape, color=color, markersize=4)
