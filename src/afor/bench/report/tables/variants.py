"""Build the ablation and sensitivity tables: AFOR with one change at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.registry import OPTIMIZERS
from afor.bench.report.tables.comparisons import comparison_record
from afor.bench.report.tables.formats import Column, Row, Table, TableCell
from afor.bench.report.tables.parts import (
    MISSING,
    condition_record,
    condition_text,
    partial,
    verdict_mark,
    verdict_note,
)
from afor.bench.stats.comparisons import Comparison
from afor.bench.stats.groups import Condition, Conditions
from afor.bench.stats.labels import method_label, metric_style, signed, task_label
from afor.bench.stats.results import Results
from afor.bench.stats.sensitivity import LABELS, NOT_VARIED, default_of, varied_conditions

ColumnKey = tuple[str, str, str]  # dataset, backbone, metric
ByMetric = Mapping[str, Results]  # the results that a column of this metric shows
Record = dict[str, object]
Compared = dict[tuple[str, str, str, str], Comparison]  # by column and method


def ablation_table(results: Results, *, reference: str = "afor") -> Table:
    """Return the variants of one method with their change against it, as Table IV.

    Replicates of the reference are listed below it, without a verdict: their change is that of
    another seed. The verdicts on the variants are Holm-corrected over all variants of a column.
    """
    conditions = results.conditions
    variants = variants_of(conditions, reference)
    columns = _columns(results, reference)
    if not variants or not columns:
        raise ConfigError(
            f"No variant of {reference!r} stands beside it here. The preset `ablation` runs them: "
            "`afor run ablation`."
        )
    replicates = dict.fromkeys(
        c.method for c in conditions.values() if c.is_replicate and c.original == reference
    )
    by_metric = dict.fromkeys(results.metrics, results)
    compared = _compared(by_metric, columns, variants, reference)
    compared |= {  # each alone: a replicate is no hypothesis of the family
        key: comparison
        for replicate in replicates
        for key, comparison in _compared(by_metric, columns, [replicate], reference).items()
    }
    rows, records = [], []
    for name in [reference, *replicates, *variants]:
        row, row_records = _row(
            by_metric, columns, name, method_label(name), compared, has_verdict=name in variants
        )
        rows.append(Row(row.label, row.cells, rule=name == variants[0]))
        records += row_records
    return Table(
        name="ablation",
        title=f"Variants of {method_label(reference)}: mean ± SD (change)",
        columns=_headings(columns),
        rows=tuple(rows),
        label="Variant",
        notes=_notes([c for k, c in compared.items() if k[-1] in variants]),
        records=tuple(records),
    )


def sensitivity_table(results: Results) -> Table:
    """Return the mean for every value of each varied setting, with its change from the default."""
    settings: dict[str, dict[float, str]] = {}
    for condition in results.conditions.values():
        if varied := condition.role.varied:
            settings.setdefault(varied[0], {})[varied[1]] = condition.method
    columns = _columns(results, "afor")
    if not settings or not columns:
        raise ConfigError(NOT_VARIED)
    varied_names = [name for names in settings.values() for name in names.values()]
    by_metric = {
        metric: replace(results, conditions=varied_conditions(results.conditions, metric))
        for metric in results.metrics
    }
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
        notes=_notes(list(compared.values())),
        records=tuple(records),
    )


def variants_of(conditions: Conditions, reference: str = "afor") -> list[str]:
    """Return the methods that differ from the reference in their settings alone."""
    names = dict.fromkeys(o for _, _, o in conditions)
    return [n for n in names if n in OPTIMIZERS and OPTIMIZERS[n].variant_of == reference]


def _columns(results: Results, reference: str) -> list[ColumnKey]:
    tasks = [(d, b) for d, b in results.tasks if (d, b, reference) in results.conditions]
    return [(d, b, m) for d, b in tasks for m in results.metrics]


def _headings(columns: Sequence[ColumnKey]) -> tuple[Column, ...]:
    return tuple(Column(metric_style(m).label, task_label(d, b)) for d, b, m in columns)


def _compared(
    by_metric: ByMetric, columns: Sequence[ColumnKey], names: Sequence[str], reference: str
) -> Compared:
    return {
        (*column, c.method): c
        for column in columns
        for c in by_metric[column[2]].against(reference, names, *column)
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
        condition = by_metric[metric].conditions.get((dataset, backbone, name))
        if condition is None or not condition.has(metric):
            texts.append(MISSING)
            continue
        comparison = compared.get((dataset, backbone, metric, name))
        text = condition_text(condition, metric)
        if comparison:
            text += f" ({signed(metric_style(metric).gain_scale * comparison.gain)})"
        mark = verdict_mark(comparison) if has_verdict else ""
        texts.append(TableCell(text, mark=mark, partial=partial(condition)))
        records.append(_record(condition, metric, comparison, has_verdict=has_verdict))
    return Row(label, tuple(texts)), records


def _notes(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    return (verdict_note(comparisons),) if comparisons else ()


def _record(
    condition: Condition, metric: str, comparison: Comparison | None, *, has_verdict: bool
) -> Record:
    compared = comparison_record(comparison) if comparison else {}
    if not has_verdict:
        compared |= {"verdict": None, "what": "", "sure": "", "then": ""}
    return {**compared, **condition_record(condition, metric)}
