"""Build the main table, in the form of the paper's Table III."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from afor.bench.report.tables.comparisons import family_notes, verdict_value
from afor.bench.report.tables.formats import Column, Row, Table, TableCell
from afor.bench.report.tables.parts import (
    MISSING,
    condition_record,
    condition_text,
    partial,
    verdict_mark,
)
from afor.bench.report.verdicts import answers
from afor.bench.stats.comparisons import Comparison
from afor.bench.stats.groups import Condition, Conditions, task_conditions
from afor.bench.stats.guessing import learned, reference_levels
from afor.bench.stats.labels import (
    backbone_label,
    dataset_label,
    method_label,
    metric_style,
)
from afor.bench.stats.results import Results

GUESSES_MARK = "°"
LINEAR = "Linear model"
LINEAR_NOTE = (
    "Linear model: log-variance of each channel and logistic regression on the same splits, not "
    "compared and not ranked."
)


def main_table(results: Results) -> Table:
    """Return mean ± SD over folds for every method, as the paper's Table III.

    Replicates and controls are listed below the others, without a verdict.
    """
    conditions, names, controls = results.conditions, results.methods, results.controls
    datasets = list(dict.fromkeys(d for d, _ in results.tasks))
    backbones = list(dict.fromkeys(b for _, b in results.tasks))
    columns = [(b, m) for b in backbones for m in results.metrics]
    comparisons = {(c.dataset, c.backbone, c.metric, c.method): c for c in results.comparisons}
    rows, records = [], []
    for dataset in datasets:
        rows.append(Row(_dataset_heading(conditions, dataset), heading=True))
        ranks = {column: _top_two(conditions, dataset, *column, names) for column in columns}
        for name in [*names, *controls]:
            cells = []
            for backbone, metric in columns:
                condition = conditions.get((dataset, backbone, name))
                comparison = comparisons.get((dataset, backbone, metric, name))
                rank = ranks[backbone, metric].get(name, 0)
                cells.append(_result_cell(condition, metric, comparison, rank))
                if condition is not None and condition.has(metric):
                    records.append(_record(condition, metric, comparison, rank))
            if any((dataset, b, name) in conditions for b in backbones):
                is_first_control = bool(controls) and name == controls[0]
                rows.append(Row(method_label(name), tuple(cells), rule=is_first_control))
        linear = _linear_row(results, dataset, columns)
        references = _reference_rows(conditions, dataset, columns)
        rows += [*linear, *(replace(row, rule=row.rule and not linear) for row in references)]
    return Table(
        name="main",
        title="Scores: mean ± SD over units"
        if results.remarks
        else "Results under the cross-subject protocol: mean ± SD over folds",
        columns=tuple(Column(metric_style(m).label, backbone_label(b)) for b, m in columns),
        rows=tuple(rows),
        lead=tuple(
            answer.lines
            for answer in answers(results.comparisons, results.metrics[0], results.pooled)
        ),
        notes=(
            *family_notes(results, has_signs=True),
            *([LINEAR_NOTE] if any(row.label == LINEAR for row in rows) else []),
        ),
        records=tuple(records),
    )


def _top_two(
    conditions: Conditions, dataset: str, backbone: str, metric: str, names: Sequence[str]
) -> dict[str, int]:
    """Return the ranks 1 and 2 of complete conditions; one that only guesses has none."""
    members = [c for c in task_conditions(conditions, dataset, backbone) if c.method in names]
    means = {
        c.method: c.summary(metric)[0]
        for c in members
        if c.complete and c.has(metric) and not _guesses(c, metric)
    }
    levels = sorted(set(means.values()), reverse=metric_style(metric).sign > 0)[:2]
    # A single method is not marked as best.
    return {n: levels.index(m) + 1 for n, m in means.items() if m in levels and len(means) > 1}


def _guesses(condition: Condition, metric: str) -> bool:
    """Tell whether a complete condition is not better than guessing."""
    made = learned(condition, metric) if condition.complete else None
    return made is not None and made.above is False


def _result_cell(
    condition: Condition | None, metric: str, comparison: Comparison | None, rank: int
) -> TableCell:
    if condition is None:
        return MISSING
    if not condition.has(metric):
        return TableCell("–", partial=partial(condition))
    return TableCell(
        condition_text(condition, metric),
        best=rank == 1,
        second=rank == 2,
        mark=verdict_mark(comparison) + GUESSES_MARK * _guesses(condition, metric),
        partial=partial(condition),
        link=f"{condition.dataset}/{condition.backbone}/{condition.method}",
    )


def _record(
    condition: Condition, metric: str, comparison: Comparison | None, rank: int
) -> Mapping[str, object]:
    tested = learned(condition, metric)
    return {
        **condition_record(condition, metric),
        "place": rank or None,
        "gain": comparison.gain if comparison else None,
        "verdict": verdict_value(comparison) if comparison else None,
        "guessing": tested.level if tested else None,
        "p_above_guessing": tested.p if tested else None,
        "above_guessing": tested.above if tested else None,
    }


def _linear_row(results: Results, dataset: str, columns: Sequence[tuple[str, str]]) -> list[Row]:
    """Return the row of the linear model, or nothing if none was fitted."""
    found = [
        results.linear(dataset, b, m) if (dataset, b) in results.tasks else None for b, m in columns
    ]
    cells = [
        TableCell(metric_style(metric).text(*made[:2])) if made else MISSING
        for made, (_, metric) in zip(found, columns, strict=True)
    ]
    return [Row(LINEAR, tuple(cells), rule=True)] if any(found) else []


def _reference_rows(
    conditions: Conditions, dataset: str, columns: Sequence[tuple[str, str]]
) -> list[Row]:
    levels = [reference_levels(conditions, dataset, b, m) for b, m in columns]
    if not any(levels):
        return []
    majority, chance = [], []
    for level, (_, metric) in zip(levels, columns, strict=True):
        mean, sd, _ = level.majority if level else (math.nan, math.nan, 0)
        style, value = metric_style(metric), level.chance if level else math.nan
        majority.append(MISSING if math.isnan(mean) else TableCell(style.text(mean, sd)))
        text = f"{style.text(value)} ({level.source if level else ''})"
        chance.append(MISSING if math.isnan(value) else TableCell(text))
    return [Row("Majority class", tuple(majority), rule=True), Row("Chance level", tuple(chance))]


def _dataset_heading(conditions: Conditions, dataset: str) -> str:
    classes = {
        run.classes
        for (d, _, _), c in conditions.items()
        if d == dataset
        for run in c.runs.values()
    }
    counts = [str(count) for count in sorted(classes) if count > 1]
    return dataset_label(dataset) + (f" ({'/'.join(counts)} classes)" if counts else "")
