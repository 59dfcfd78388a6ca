"""Draw the gain over the reference against beta2, with the rules beside it."""

from collections.abc import Sequence
from typing import Any

from afor.bench.analyses.headroom.compute import Headroom, MethodGap
from afor.bench.report.figures.style import (
    BLACK,
    CYCLE,
    GREY,
    SHAPES,
    house_style,
    new_figure,
    plain,
)
from afor.bench.stats.labels import backbone_label, dataset_label, metric_label, metric_style


def headroom_figure(results: Sequence[Headroom]) -> Any:
    """Draw one panel per data set, backbone and metric: constants to the left, rules to the right.

    Bars are 95 % intervals over folds or draws; the band is the interval of the best constant.
    """
    with house_style():
        figure, axes = new_figure(14 + 38 * len(results), rows=len(results))
        for axis, result in zip(axes[:, 0], results, strict=True):
            _panel(axis, result)
        first = results[0]
        figure.supxlabel(
            f"bars: 95 % over {first.units}; settings chosen on the other half\n"
            "grey band: best constant",
            fontsize=6,
            color="#444444",
        )
    return figure


def _panel(axis: Any, result: Headroom) -> None:
    scale = metric_style(result.metric).gain_scale
    best = result.best_constant.over_reference
    axis.axhspan(scale * best.low, scale * best.high, color="#E8E8E8", linewidth=0, zorder=0)
    axis.axhline(scale * best.gain, color=GREY, linewidth=0.8, linestyle=(0, (3, 1.5)))
    axis.axhline(0, color=BLACK, linewidth=0.7)
    positions = range(len(result.constants))
    gains = [scale * method.over_reference.gain for method in result.constants]
    axis.plot(positions, gains, color=BLACK, linewidth=0.9)
    for position, method in zip(positions, result.constants, strict=True):
        _point(axis, position, method, scale, BLACK, "o")
    start = len(result.constants) + 0.5
    for number, rule in enumerate(result.rules):
        color, shape = CYCLE[number % len(CYCLE)], SHAPES[(number + 1) % len(SHAPES)]
        _point(axis, start + number, rule, scale, color, shape)
    if result.rules:
        axis.axvline(start - 0.75, color="#BBBBBB", linewidth=0.6)
    labels = [f"{method.beta2:g}" for method in result.constants]
    labels += [plain(rule.method) for rule in result.rules]
    ticks = [*positions, *(start + number for number in range(len(result.rules)))]
    axis.set_xticks(ticks, labels, rotation=35, ha="right", rotation_mode="anchor")
    unit = metric_style(result.metric).gain_unit
    label = plain(metric_label(result.metric))
    axis.set_ylabel(f"{label} gain over\n{result.reference:g} ({unit})")
    axis.set_title(plain(f"{dataset_label(result.dataset)}, {backbone_label(result.backbone)}"))
    axis.set_title(plain(result.study), loc="right", fontsize=6.5, fontweight="normal")
    axis.grid(axis="y")


def _point(
    axis: Any, position: float, method: MethodGap, scale: float, color: str, shape: str
) -> None:
    gap = method.over_reference
    axis.plot([position] * 2, [scale * gap.low, scale * gap.high], color=color, linewidth=1.2)
    axis.plot(position, scale * gap.gain, marker=shape, color=color, markersize=4)
