"""Build the ablation and sensitivity tables: AFOR with one change at a time."""

import math
from collections.abc import Mapping, Sequence

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.registry import OPTIMIZERS
from afor.bench.report.tables.formats import Column, Row, Table, TableCell
from afor.bench.report.tables.parts import (
    MISSING,
    condition_text,
    incomplete_note,
    partial,
    verdict_mark,
    verdict_note,
)
from afor.bench.report.verdicts import verdict_sentence
from afor.bench.stats.comparisons import Comparison, blocks_of, compare
from afor.bench.stats.groups import Condition, Conditions
from afor.bench.stats.labels import (
    PAPER_METRICS,
    block_label,
    gain_scale,
    metric_label,
    optimizer_label,
    signed,
)
from afor.bench.stats.sensitivity import LABELS, NOT_VARIED, default_of, varied_conditions

ColumnKey = tuple[str, str, str]  # dataset, backbone, metric
ByMetric = Mapping[str, Conditions]  # the conditions that a column of this metric shows
Record = dict[str, object]
Compared = dict[tuple[str, str, str, str], Comparison]  # by column and optimizer


def ablation_table(
    conditions: Conditions, metrics: Sequence[str] = PAPER_METRICS, *, reference: str = "afor"
) -> Table:
    """Return the variants of one optimizer with their change against it, as Table IV.

    Copies of the reference are listed below it, without a verdict: their change is that of another
    seed. The verdicts on the variants are Holm-corrected over all variants of a column.
    """
    variants = variants_of(conditions, reference)
    columns = _columns(conditions, metrics, reference)
    if not variants or not columns:
        raise ConfigError(
            f"No variant of {reference!r} stands beside it here. The preset `ablation` runs them: "
            "`afor run ablation`."
        )
    copies = dict.fromkeys(
        c.optimizer for c in conditions.values() if c.is_copy and c.method == reference
    )
    by_metric = dict.fromkeys(metrics, conditions)
    compared = _compared(by_metric, columns, variants, reference)
    compared |= {  # each alone: a copy is no hypothesis of the family
        key: comparison
        for copy in copies
        for key, comparison in _compared(by_metric, columns, [copy], reference).items()
    }
    rows, records = [], []
    for name in [reference, *copies, *variants]:
        row, row_records = _row(
            by_metric, columns, name, optimizer_label(name), compared, has_verdict=name in variants
        )
        rows.append(Row(row.label, row.cells, rule=name == variants[0]))
        records += row_records
    return Table(
        name="ablation",
        title=f"Variants of {optimizer_label(reference)}: mean ± SD (change)",
        columns=_headings(columns),
        rows=tuple(rows),
        label="Variant",
        notes=_notes(conditions, [c for k, c in compared.items() if k[-1] in variants]),
        records=tuple(records),
    )


def sensitivity_table(conditions: Conditions, metrics: Sequence[str] = PAPER_METRICS) -> Table:
    """Return the mean for every value of each varied setting, with its change from the default."""
    settings: dict[str, dict[float, str]] = {}
    for condition in conditions.values():
        if varied := condition.role.varied:
            settings.setdefault(varied[0], {})[varied[1]] = condition.optimizer
    columns = _columns(conditions, metrics, "afor")
    if not settings or not columns:
        raise ConfigError(NOT_VARIED)
    varied_names = [name for names in settings.values() for name in names.values()]
    by_metric = {metric: varied_conditions(conditions, metric) for metric in metrics}
    compared = _compared(by_metric, columns, varied_names, "afor")
    rows, records = [], []
    for setting, names in settings.items():
        rows.append(Row(LABELS[setting], heading=True))
        default = default_of(setting)
        for value, name in sorted({**names, default: "afor"}.items()):
            label = f"{value:g} (default)" if value == default else f"{value:g}"
            row, made = _row(by_metric, columns, name, label, compared, has_verdict=True)
            rows.append(row)
            records += [{**record, "setting": setting, "value": value} for record in made]
    return Table(
        name="sensitivity",
        title="AFOR with one setting varied: mean ± SD (change from the default)",
        columns=_headings(columns),
        rows=tuple(rows),
        label="Setting",
        notes=_notes(conditions, list(compared.values())),
        records=tuple(records),
    )


def variants_of(conditions: Conditions, reference: str = "afor") -> list[str]:
    """Return the optimizers that differ from the reference in their settings alone."""
    names = dict.fromkeys(o for _, _, o in conditions)
    return [n for n in names if n in OPTIMIZERS and OPTIMIZERS[n].variant_of == reference]


def _columns(conditions: Conditions, metrics: Sequence[str], reference: str) -> list[ColumnKey]:
    blocks = [(d, b) for d, b in blocks_of(conditions) if (d, b, reference) in conditions]
    return [(d, b, m) for d, b in blocks for m in metrics]


def _headings(columns: Sequence[ColumnKey]) -> tuple[Column, ...]:
    return tuple(Column(metric_label(m), block_label(d, b)) for d, b, m in columns)


def _compared(
    by_metric: ByMetric, columns: Sequence[ColumnKey], names: Sequence[str], reference: str
) -> Compared:
    return {
        (*column, c.optimizer): c
        for column in columns
        for c in compare(by_metric[column[2]], *column, optimizers=names, baseline=reference)
    }


def _row(
    by_metric: ByMetric,
    columns: Sequence[ColumnKey],
    name: str,
    label: str,
    compared: Compared,
    *,
    has_verdict: bool,
) -> tuple[Row, list[Record]]:
    texts, records = [], []
    for dataset, backbone, metric in columns:
        condition = by_metric[metric].get((dataset, backbone, name))
        if condition is None or not condition.has(metric):
            texts.append(MISSING)
            continue
        comparison = compared.get((dataset, backbone, metric, name))
        text = condition_text(condition, metric)
        if comparison:
            text += f" ({signed(gain_scale(metric) * comparison.gain)})"
        mark = verdict_mark(comparison) if has_verdict else ""
        texts.append(TableCell(text, mark=mark, partial=partial(condition)))
        records.append(_record(condition, metric, comparison, has_verdict=has_verdict))
    return Row(label, tuple(texts)), records


def _notes(conditions: Conditions, comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    verdicts = [verdict_note(comparisons)] if comparisons else []
    return (*verdicts, *incomplete_note(conditions))


def _record(
    condition: Condition, metric: str, comparison: Comparison | None, *, has_verdict: bool
) -> Record:
    mean, sd, _ = condition.summary(metric)
    low, high = comparison.interval if comparison else (math.nan, math.nan)
    verdict = comparison.decision if comparison and has_verdict else None
    return {
        "dataset": condition.dataset,
        "backbone": condition.backbone,
        "variant": condition.optimizer,
        "metric": metric,
        "mean": mean,
        "sd": sd,
        "verdict": verdict.value if verdict else None,
        "change": comparison.gain if comparison else math.nan,
        "interval_low": low,
        "interval_high": high,
        "p_two_sided": comparison.p_two_sided if comparison else math.nan,
        "p_different_holm": comparison.evidence.p_different_holm if comparison else math.nan,
        "p_equivalent_holm": comparison.evidence.p_equivalent_holm if comparison else math.nan,
        "sentence": verdict_sentence(comparison) if comparison and has_verdict else None,
        "folds": comparison.folds if comparison else 0,
        "done": condition.done,
        "expected": condition.expected,
    }
