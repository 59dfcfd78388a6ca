"""Show the headroom of beta2: tables, and the gain over the reference against beta2."""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from afor.bench.analyses.headroom.compute import Headroom, MethodScore
from afor.bench.report.figures import style
from afor.bench.report.tables.formats import Row, Table, columns_of, text_row
from afor.bench.report.verdicts import interval_text
from afor.bench.stats.inference.decisions import PairedDecision
from afor.bench.stats.labels import metric_style, signed, task_label

RECORDED = ("study", "dataset", "backbone", "metric", "reference", "units", "count")


def headroom_tables(results: Sequence[Headroom]) -> list[Table]:
    """Return one table for each study, data set and backbone, with its metrics one below another.

    Every constant and rule is compared with the reference, every rule also with the best constant.
    """
    groups = groupby(results, key=lambda result: (result.study, result.dataset, result.backbone))
    return [_table(list(group)) for _, group in groups]


def _table(results: Sequence[Headroom]) -> Table:
    first = results[0]
    rows: list[Row] = []
    records: list[dict[str, object]] = []
    for result in results:
        look = metric_style(result.metric)
        rows.append(Row(f"{look.label} ({look.gain_unit})", heading=True))
        names = {name: getattr(result, name) for name in RECORDED}
        for category, method in (
            *(("constant", method) for method in result.constants),
            ("best constant", result.best_constant),
            *(("rule", method) for method in result.rules),
        ):
            over = (method.over_reference, method.over_best_constant)
            texts = (_decision_text(made, result.metric) for made in over)
            cells = (look.text(method.score), *texts, " / ".join(method.choices))
            rows.append(text_row(method.method, cells))
            records.append(
                {
                    **names,
                    "kind": category,
                    "method": method.method,
                    "beta2": method.beta2,
                    "score": method.score,
                    **_decision_record("over_reference", method.over_reference),
                    **_decision_record("over_best_constant", method.over_best_constant),
                    "chosen": "; ".join(method.choices),
                }
            )
    left_out = sorted({name for result in results for name in result.left_out})
    notes = [
        f"Learning rate, and constant of the row `best constant`, are chosen on one half of the "
        f"{first.units} and scored on the other, both ways. Positive is better, with exact 95 % "
        f"intervals over {first.units}. Better, worse and equivalent are decided after Holm's "
        "correction over the methods of a column.",
        *([f"Left out, because runs diverged or failed: {', '.join(left_out)}."] * bool(left_out)),
    ]
    task = task_label(first.dataset, first.backbone)
    return Table(
        name="headroom",
        title=f"Headroom of β₂: {first.study}, {task}, {first.count} {first.units}",
        columns=columns_of("score", f"over {first.reference:g}", "over best constant", "lr"),
        rows=tuple(rows),
        notes=tuple(notes),
        records=tuple(records),
    )


def _decision_text(made: PairedDecision | None, metric: str) -> str:
    if made is None:
        return "–"
    scale = metric_style(metric).gain_scale
    low, high = made.interval
    interval = interval_text(low + 0.0, high + 0.0, scale)  # no negative zero
    return f"{signed(scale * made.mean)} ({interval}), {made.decision}"


def _decision_record(name: str, made: PairedDecision | None) -> dict[str, object]:
    if made is None:
        values: tuple[object, ...] = (None,) * 5
    else:
        values = (made.mean, *made.interval, made.p_different_holm, str(made.decision))
    names = ("gain", "low", "high", "p_holm", "decision")
    return {f"{key}_{name}": value for key, value in zip(names, values, strict=True)}


@style.house_style()
def headroom_figure(results: Sequence[Headroom]) -> Any:
    """Draw one panel per data set, backbone and metric: constants to the left, rules to the right.

    Bars are exact 95 % intervals over folds or repetitions, from six on; the band is the interval
    of the best constant.
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
        color, shape = (style.color_at(number), style.marker_at(number + 1))
        _point(axis, start + number, rule, scale, color, shape)
    if result.rules:
        axis.axvline(start - 0.75, color="#BBBBBB", linewidth=0.6)
    labels = [f"{method.beta2:g}" for method in result.constants]
    labels += [style.plain(rule.method) for rule in result.rules]
    ticks = [*positions, *(start + number for number in range(len(result.rules)))]
    axis.set_xticks(ticks, labels, rotation=35, ha="right", rotation_mode="anchor")
    axis.set_ylabel(f"{style.plain(look.label)} gain over\n{result.reference:g} ({look.gain_unit})")
    names = (result.study, task_label(result.dataset, result.backbone))
    axis.set_title("\n".join(map(style.plain, names)))
    axis.grid(axis="y")


def _point(
    axis: Any, position: float, method: MethodScore, scale: float, color: str, shape: str
) -> None:
    ends = [scale * end for end in method.interval]
    if math.isfinite(ends[0]):
        axis.plot([position] * 2, ends, color=color, linewidth=1.2)
    axis.plot(position, scale * method.gain, marker=shape, color=color, markersize=4)
