"""Build the ablation and sensitivity tables: AFOR with one change at a time."""

import math
from collections.abc import Sequence

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.registry import OPTIMIZERS
from afor.bench.report.tables.formats import Column, Row, Table, TableCell
from afor.bench.report.tables.parts import (
    MISSING,
    NO_CONTROLS_NOTE,
    NOISE_NOTE,
    condition_text,
    incomplete_note,
    partial,
)
from afor.bench.stats.comparisons import blocks_of
from afor.bench.stats.groups import Condition, Conditions, paired_gains
from afor.bench.stats.labels import (
    PAPER_METRICS,
    backbone_label,
    dataset_label,
    gain_scale,
    metric_label,
    optimizer_label,
    signed,
)
from afor.bench.stats.noise_floor import noise_floor
from afor.bench.stats.paired_tests import sign_flip_p, two_sided_p
from afor.bench.stats.sensitivity import LABELS, NOT_VARIED, default_of

ColumnKey = tuple[str, str, str]  # dataset, backbone, metric
Record = dict[str, object]


def ablation_table(
    conditions: Conditions, metrics: Sequence[str] = PAPER_METRICS, *, reference: str = "afor"
) -> Table:
    """Return the variants of one optimizer with their change against it, as Table IV.

    Controls of the reference are listed below it: their change is noise, and the last row gives
    the noise floor.
    """
    variants = variants_of(conditions, reference)
    columns = _columns(conditions, metrics, reference)
    if not variants or not columns:
        raise ConfigError(
            f"No variant of {reference!r} stands beside it here. The preset `ablation` runs them: "
            "`afor run ablation`."
        )
    copies = dict.fromkeys(
        c.optimizer for c in conditions.values() if c.is_control and c.method == reference
    )
    rows, records = [], []
    for name in [reference, *copies, *variants]:
        row, row_records = _row(conditions, columns, name, reference, optimizer_label(name))
        rows.append(Row(row.label, row.cells, rule=name == variants[0]))
        records += row_records
    return Table(
        name="ablation",
        title=f"Variants of {optimizer_label(reference)}: mean ± SD (change)",
        columns=_headings(columns),
        rows=(*rows, *_noise_row(conditions, columns)),
        label="Variant",
        notes=_notes(conditions, columns),
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
    rows, records = [], []
    for setting, names in settings.items():
        rows.append(Row(LABELS[setting], heading=True))
        default = default_of(setting)
        for value, name in sorted({**names, default: "afor"}.items()):
            label = f"{value:g} (default)" if value == default else f"{value:g}"
            row, made = _row(conditions, columns, name, "afor", label)
            rows.append(row)
            records += [{**record, "setting": setting, "value": value} for record in made]
    return Table(
        name="sensitivity",
        title="AFOR with one setting varied: mean ± SD (change from the default)",
        columns=_headings(columns),
        rows=(*rows, *_noise_row(conditions, columns)),
        label="Setting",
        notes=_notes(conditions, columns),
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
    return tuple(
        Column(metric_label(m), f"{dataset_label(d)}, {backbone_label(b)}") for d, b, m in columns
    )


def _row(
    conditions: Conditions, columns: Sequence[ColumnKey], name: str, reference: str, label: str
) -> tuple[Row, list[Record]]:
    texts, records = [], []
    for dataset, backbone, metric in columns:
        condition, base = (
            conditions.get((dataset, backbone, name)),
            conditions[dataset, backbone, reference],
        )
        if condition is None or not condition.has(metric):
            texts.append(MISSING)
            continue
        change = _change(conditions, condition, base, metric)
        text = condition_text(condition, metric)
        if name != reference and change["folds"]:
            text += f" ({signed(gain_scale(metric) * float(str(change['change'])))})"
        inside = name != reference and change["inside_noise"] is True
        texts.append(TableCell(text, inside_noise=inside, partial=partial(condition)))
        records.append(change)
    return Row(label, tuple(texts)), records


def _noise_row(conditions: Conditions, columns: Sequence[ColumnKey]) -> list[Row]:
    floors = [noise_floor(conditions, *column) for column in columns]
    if not any(floors):
        return []
    texts = [
        TableCell(f"±{gain_scale(floor.metric) * floor.bound:.2f}") if floor else MISSING
        for floor in floors
    ]
    return [Row("Noise floor (95 %)", tuple(texts), rule=True)]


def _notes(conditions: Conditions, columns: Sequence[ColumnKey]) -> tuple[str, ...]:
    has_floor = any(noise_floor(conditions, *column) for column in columns)
    return (NOISE_NOTE if has_floor else NO_CONTROLS_NOTE, *incomplete_note(conditions))


def _change(conditions: Conditions, condition: Condition, base: Condition, metric: str) -> Record:
    folds, d = paired_gains(condition, base, metric)
    mean, sd, _ = condition.summary(metric)
    floor = noise_floor(conditions, condition.dataset, condition.backbone, metric)
    change = float(d.mean()) if folds else math.nan
    return {
        "dataset": condition.dataset,
        "backbone": condition.backbone,
        "variant": condition.optimizer,
        "metric": metric,
        "mean": mean,
        "sd": sd,
        "change": change,
        "p_lower": sign_flip_p(-d) if folds else math.nan,
        "p_two_sided": two_sided_p(d) if folds else math.nan,
        "noise_floor": floor.bound if floor else None,
        "inside_noise": abs(change) <= floor.bound if floor and folds else None,
        "folds": len(folds),
        "done": condition.done,
        "expected": condition.expected,
    }
