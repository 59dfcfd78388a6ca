"""Show the headroom of beta2 as a table."""

import math
from collections.abc import Sequence

from afor.bench.analyses.headroom.compute import Gap, Headroom, MethodGap
from afor.bench.report.tables.formats import Row, Table, TableCell, columns_of
from afor.bench.stats.labels import block_label, metric_style, metric_text, signed

RECORDED = ("study", "dataset", "backbone", "metric", "reference", "units", "count")


def headroom_table(results: Sequence[Headroom]) -> Table:
    """Return every constant and rule beside the reference and beside the best constant."""
    rows: list[Row] = []
    for result in results:
        unit = metric_style(result.metric).gain_unit
        block = block_label(result.dataset, result.backbone, result.metric)
        units = f"gains in {unit}; {result.count} {result.units}"
        rows.append(Row(f"{result.study}: {block} ({units})", heading=True))
        rows += [_row(result, method) for method in result.constants]
        rows.append(_row(result, result.best_constant, rule=True))
        rows += [_row(result, method, rule=i == 0) for i, method in enumerate(result.rules)]
    reference = f"{results[0].reference:g}" if results else "0.999"
    labels = ["score", f"over {reference}", "95 %", "over best", "95 %", "recovered", "lr"]
    left_out = sorted({name for result in results for name in result.left_out})
    notes = [
        "Learning rate, and constant of the row `best constant`, are chosen on one half of the "
        "folds or draws and scored on the other, both ways. Positive is better. *: the interval "
        "excludes zero. recovered: share of what the best constant gains, where it gains.",
        *([f"Left out, because runs diverged or failed: {', '.join(left_out)}."] * bool(left_out)),
    ]
    return Table(
        name="headroom",
        title=f"Headroom of β₂: what constants and rules gain over β₂ = {reference}",
        columns=columns_of(*labels),
        rows=tuple(rows),
        notes=tuple(notes),
        records=tuple(record for result in results for record in headroom_records(result)),
    )


def headroom_records(result: Headroom) -> list[dict[str, object]]:
    """Return one flat record per method, unrounded."""
    methods = [
        *(("constant", method) for method in result.constants),
        ("best constant", result.best_constant),
        *(("rule", method) for method in result.rules),
    ]
    records: list[dict[str, object]] = []
    for category, method in methods:
        recovered = result.recovered(method)
        records.append(
            {
                **{name: getattr(result, name) for name in RECORDED},
                "kind": category,
                "method": method.method,
                "beta2": method.beta2,
                "score": method.score,
                **_gap_record("over_reference", method.over_reference),
                **_gap_record("over_best_constant", method.over_best_constant),
                "recovered": None if math.isnan(recovered) else recovered,
                "chosen": "; ".join(method.choices),
            }
        )
    return records


def _gap_record(name: str, gap: Gap) -> dict[str, float]:
    return {f"gain_{name}": gap.gain, f"low_{name}": gap.low, f"high_{name}": gap.high}


def _row(result: Headroom, method: MethodGap, *, rule: bool = False) -> Row:
    scale = metric_style(result.metric).gain_scale
    recovered = result.recovered(method)
    is_constant = method.beta2 is not None
    cells = [
        TableCell(metric_text(result.metric, method.score)),
        *_gap_cells(method.over_reference, scale, blank=method.beta2 == result.reference),
        *_gap_cells(method.over_best_constant, scale, blank=method is result.best_constant),
        TableCell("–" if math.isnan(recovered) or is_constant else f"{100 * recovered:.0f} %"),
        TableCell(" / ".join(text.removeprefix("lr ") for text in method.choices)),
    ]
    return Row(method.method, tuple(cells), rule=rule)


def _gap_cells(gap: Gap, scale: float, *, blank: bool) -> list[TableCell]:
    if blank:
        return [TableCell("–"), TableCell("–")]
    interval = f"{signed(scale * gap.low)} to {signed(scale * gap.high)}"
    return [TableCell(signed(scale * gap.gain), star=gap.is_decided), TableCell(interval)]
