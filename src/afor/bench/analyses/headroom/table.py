"""Show the headroom of beta2 as tables."""

from collections.abc import Sequence
from itertools import groupby

from afor.bench.analyses.headroom.compute import Headroom, MethodScore
from afor.bench.report.tables.formats import Row, Table, columns_of, text_row
from afor.bench.report.verdicts import interval_text
from afor.bench.stats.inference.decisions import PairedDecision
from afor.bench.stats.labels import block_label, metric_style, metric_text, signed

RECORDED = ("study", "dataset", "backbone", "metric", "reference", "units", "count")


def headroom_tables(results: Sequence[Headroom]) -> list[Table]:
    """Return one table for each study, data set and backbone, with its metrics one below another.

    Every constant and rule is compared with the reference, every rule also with the best constant.
    """
    groups = groupby(results, key=lambda result: (result.study, result.dataset, result.backbone))
    return [_table(list(group)) for _, group in groups]


def headroom_records(result: Headroom) -> list[dict[str, object]]:
    """Return one flat record per method, unrounded."""
    methods = [
        *(("constant", method) for method in result.constants),
        ("best constant", result.best_constant),
        *(("rule", method) for method in result.rules),
    ]
    return [
        {
            **{name: getattr(result, name) for name in RECORDED},
            "kind": category,
            "method": method.method,
            "beta2": method.beta2,
            "score": method.score,
            **_decision_record("over_reference", method.over_reference),
            **_decision_record("over_best_constant", method.over_best_constant),
            "chosen": "; ".join(method.choices),
        }
        for category, method in methods
    ]


def _table(results: Sequence[Headroom]) -> Table:
    first = results[0]
    rows: list[Row] = []
    for result in results:
        look = metric_style(result.metric)
        rows.append(Row(f"{look.label} ({look.gain_unit})", heading=True))
        rows += [
            _row(result.metric, method)
            for method in (*result.constants, result.best_constant, *result.rules)
        ]
    left_out = sorted({name for result in results for name in result.left_out})
    notes = [
        f"Learning rate, and constant of the row `best constant`, are chosen on one half of the "
        f"{first.units} and scored on the other, both ways. Positive is better, with exact 95 % "
        f"intervals over {first.units}. Better, worse and equivalent are decided after Holm's "
        "correction over the methods of a column.",
        *([f"Left out, because runs diverged or failed: {', '.join(left_out)}."] * bool(left_out)),
    ]
    block = block_label(first.dataset, first.backbone)
    return Table(
        name="headroom",
        title=f"Headroom of β₂: {first.study}, {block}, {first.count} {first.units}",
        columns=columns_of("score", f"over {first.reference:g}", "over best constant", "lr"),
        rows=tuple(rows),
        notes=tuple(notes),
        records=tuple(record for result in results for record in headroom_records(result)),
    )


def _row(metric: str, method: MethodScore) -> Row:
    return text_row(
        method.method,
        [
            metric_text(metric, method.score),
            _decision_text(method.over_reference, metric),
            _decision_text(method.over_best_constant, metric),
            " / ".join(method.choices),
        ],
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
