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
from afor.bench.stats.groups import Condition, Conditions, dataset_runs, task_conditions
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
        rows += _reference_rows(results, dataset, columns)
    return Table(
        name="main",
        title="Scores: mean ± SD over units"
        if results.remarks
        else "Results under the cross-subject protocol: mean ± SD over folds",
        columns=tuple(Column(metric_style(m).label, backbone_label(b)) for b, m in columns),
        rows=tuple(rows),
        lead=tuple(answer.lines for answer in answers(results)),
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
        link=condition.name,
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


def _reference_rows(
    results: Results, dataset: str, columns: Sequence[tuple[str, str]]
) -> list[Row]:
    """Return what needs no network: the linear model, the majority class and the chance level."""
    texts: dict[str, list[str]] = {LINEAR: [], "Majority class": [], "Chance level": []}
    for backbone, metric in columns:
        style, task = metric_style(metric), (dataset, backbone)
        linear = results.linear(*task, metric) if task in results.tasks else None
        level = reference_levels(results.conditions, *task, metric)
        mean, sd, _ = level.majority if level else (math.nan, math.nan, 0)
        chance = f"{style.text(level.chance)} ({level.source})" if level else "nan"
        cells = (style.text(*linear[:2]) if linear else "nan", style.text(mean, sd), chance)
        for row, text in zip(texts.values(), cells, strict=True):
            row.append(text)
    rows = [
        Row(label, tuple(MISSING if "nan" in text else TableCell(text) for text in row))
        for label, row in texts.items()
        if not all("nan" in text for text in row)
    ]
    return [replace(row, rule=row is rows[0]) for row in rows]


def _dataset_heading(conditions: Conditions, dataset: str) -> str:
    classes = {run.classes for run in dataset_runs(conditions, dataset)}
    counts = [str(count) for count in sorted(classes) if count > 1]
    return dataset_label(dataset) + (f" ({'/'.join(counts)} classes)" if counts else "")
