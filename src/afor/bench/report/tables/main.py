"""Build the main table, in the form of the paper's Table III, and the table of comparisons."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from afor.bench.report.tables.formats import Column, Row, Table, TableCell, columns_of
from afor.bench.report.tables.parts import (
    MISSING,
    condition_text,
    partial,
    verdict_mark,
    verdict_note,
)
from afor.bench.report.verdicts import answers, interval_text, verdict_sentence, verdict_word
from afor.bench.stats.comparisons import Comparison
from afor.bench.stats.design.power import needed_folds
from afor.bench.stats.groups import Condition, Conditions, block_of
from afor.bench.stats.guessing import learned, reference_levels
from afor.bench.stats.inference.paired_tests import smallest_p
from afor.bench.stats.labels import (
    backbone_label,
    better_sign,
    block_label,
    dataset_label,
    gain_scale,
    metric_label,
    metric_style,
    metric_text,
    optimizer_label,
    p_text,
    signed,
)
from afor.bench.stats.results import Results

GUESSES_MARK = "°"
LINEAR = "Linear model"
LINEAR_NOTE = (
    "Linear model: log-variance of each channel and logistic regression on the same splits, not "
    "compared and not ranked."
)
CHANCE_NOTE = (
    "Chance level of the mean over folds: for Acc the majority class, or the 95 % limit of as many "
    "guesses if that is higher; for NLL and Brier the class frequencies of the training subjects; "
    "for others the best answers without a signal. ° not better than guessing: exact one-sided "
    "test over folds, 5 %."
)


def main_table(results: Results) -> Table:
    """Return mean ± SD over folds for every optimizer, as the paper's Table III.

    Replicates and controls are listed below the others, without a verdict.
    """
    conditions, names, controls = results.conditions, results.methods, results.controls
    datasets = list(dict.fromkeys(d for d, _ in results.tasks))
    backbones = list(dict.fromkeys(b for _, b in results.tasks))
    columns = [(b, m) for b in backbones for m in results.metrics]
    comparisons = {(c.dataset, c.backbone, c.metric, c.optimizer): c for c in results.comparisons}
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
                rows.append(Row(optimizer_label(name), tuple(cells), rule=is_first_control))
        linear = _linear_row(results, dataset, columns)
        references = _reference_rows(conditions, dataset, columns)
        rows += [*linear, *(replace(row, rule=row.rule and not linear) for row in references)]
    return Table(
        name="main",
        title="Scores: mean ± SD over units"
        if results.remarks
        else "Results under the cross-subject protocol: mean ± SD over folds",
        columns=tuple(Column(metric_label(m), backbone_label(b)) for b, m in columns),
        rows=tuple(rows),
        lead=tuple(
            answer.text
            for answer in answers(results.comparisons, results.metrics[0], results.pooled)
        ),
        notes=(
            *_notes(results, has_signs=True),
            *([LINEAR_NOTE] if any(row.label == LINEAR for row in rows) else []),
        ),
        records=tuple(records),
    )


def comparison_table(results: Results) -> Table:
    """Return every comparison with the baseline: verdict, gain, interval, p-values, effect."""
    comparisons = results.needed_comparisons()
    rows: list[Row] = []
    heading = ""
    for c in comparisons:
        if heading != (heading := block_label(c.dataset, c.backbone, c.metric)):
            unit = metric_style(c.metric).gain_unit
            named = "" if unit == "points" else f", in {unit}"
            rows.append(Row(f"{heading}: {c.folds} folds{named}", heading=True))
        scale = gain_scale(c.metric)
        texts = [
            interval_text(*c.interval, scale),
            p_text(c.evidence.p_two_sided),
            p_text(c.evidence.p_different_holm),
            p_text(c.evidence.p_equivalent),
            p_text(c.evidence.p_equivalent_holm),
            "–" if math.isnan(c.effect) else signed(c.effect),
            "/".join(map(str, c.won_tied_lost)),
        ]
        missing = "" if c.complete else f"{c.done}/{c.expected}"
        gain = TableCell(signed(scale * c.gain), partial=missing)
        cells = (TableCell(verdict_word(c)), gain, *map(TableCell, texts))
        rows.append(Row(optimizer_label(c.optimizer), cells))
    lead = [
        answer.text
        for metric in results.metrics
        for answer in answers(
            [c for c in comparisons if c.metric == metric], metric, results.pooled
        )
    ]
    return Table(
        name="comparisons",
        title=f"Gain over {optimizer_label(results.baseline)}, paired over folds (points)",
        columns=(
            *columns_of("verdict", "gain", "95 % interval"),
            *(Column(p, test) for test in ("different", "equal") for p in ("p", "Holm")),
            *columns_of("d_z", "W/T/L"),
        ),
        rows=tuple(rows),
        lead=tuple(lead),
        notes=(
            *_notes(results, has_signs=False),
            "The interval inverts the permutation test and is not corrected for the number of "
            "comparisons. different: two-sided p; equal: the larger p of two one-sided tests at "
            "the margin. d_z: mean over SD of the paired differences. W/T/L: folds won, tied, "
            "lost.",
        ),
        records=tuple(_flat(c) for c in comparisons),
    )


def _top_two(
    conditions: Conditions, dataset: str, backbone: str, metric: str, names: Sequence[str]
) -> dict[str, int]:
    """Return the ranks 1 and 2 of complete conditions; one that only guesses has none."""
    members = [c for c in block_of(conditions, dataset, backbone) if c.optimizer in names]
    means = {
        c.optimizer: c.summary(metric)[0]
        for c in members
        if c.complete and c.has(metric) and not _guesses(c, metric)
    }
    levels = sorted(set(means.values()), reverse=better_sign(metric) > 0)[:2]
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
        link=f"{condition.dataset}/{condition.backbone}/{condition.optimizer}",
    )


def _record(
    condition: Condition, metric: str, comparison: Comparison | None, rank: int
) -> Mapping[str, object]:
    mean, sd, n = condition.summary(metric)
    tested = learned(condition, metric)
    return {
        "dataset": condition.dataset,
        "backbone": condition.backbone,
        "optimizer": condition.optimizer,
        "metric": metric,
        "mean": mean,
        "sd": sd,
        "folds": n,
        "done": condition.done,
        "expected": condition.expected,
        "place": rank or None,
        "gain": comparison.gain if comparison else None,
        "verdict": _verdict_value(comparison) if comparison else None,
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
        TableCell(metric_text(metric, *made[:2])) if made else MISSING
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
        majority.append(MISSING if math.isnan(mean) else TableCell(metric_text(metric, mean, sd)))
        value = level.chance if level else math.nan
        text = f"{metric_text(metric, value)} ({level.source if level else ''})"
        chance.append(MISSING if math.isnan(value) else TableCell(text))
    return [Row("Majority class", tuple(majority), rule=True), Row("Chance level", tuple(chance))]


def _notes(results: Results, *, has_signs: bool) -> tuple[str, ...]:
    notes = []
    comparisons = results.comparisons
    if comparisons:
        notes.append(verdict_note(comparisons, has_signs=has_signs))
        if has_signs and any(c.learned or c.base_learned for c in comparisons):
            notes.append(CHANCE_NOTE)
        for dataset in dict.fromkeys(c.dataset for c in comparisons):
            of_dataset = [c for c in comparisons if c.dataset == dataset]
            n, family = max(c.folds for c in of_dataset), max(c.family for c in of_dataset)
            smallest = 2 * smallest_p(n)
            possible = any(c.can_be_significant for c in of_dataset)
            verdict = "" if possible else " So few folds cannot show a difference."
            notes.append(
                f"{dataset_label(dataset)}: n = {n} fold{'s' * (n != 1)}, smallest attainable "
                f"two-sided p {p_text(smallest)}, after Holm {p_text(min(1.0, smallest * family))}."
                f"{verdict}"
            )
    if results.controls:
        names = ", ".join(map(optimizer_label, results.controls))
        notes.append(f"Controls, not compared: {names}.")
    return tuple(notes)


def _dataset_heading(conditions: Conditions, dataset: str) -> str:
    classes = {
        run.classes
        for (d, _, _), c in conditions.items()
        if d == dataset
        for run in c.runs.values()
    }
    counts = [str(count) for count in sorted(classes) if count > 1]
    return dataset_label(dataset) + (f" ({'/'.join(counts)} classes)" if counts else "")


def _verdict_value(comparison: Comparison) -> str | None:
    return comparison.decision.value if comparison.decision else None


def _flat(comparison: Comparison) -> Mapping[str, object]:
    evidence = asdict(comparison.evidence)
    del evidence["decision"]  # it says nothing while runs are missing
    low, high = evidence.pop("interval")
    inner_low, inner_high = evidence.pop("inner_interval")
    names = ("dataset", "backbone", "metric", "optimizer", "baseline", "family", "done", "expected")
    folds = needed_folds(comparison) if comparison.complete else None
    return {
        "verdict": _verdict_value(comparison),
        **{name: getattr(comparison, name) for name in names},
        **dict(zip(("wins", "ties", "losses"), comparison.won_tied_lost, strict=True)),
        "effect": comparison.effect,
        "gain": evidence.pop("mean"),
        **evidence,
        "interval_low": low,
        "interval_high": high,
        "inner_interval_low": inner_low,
        "inner_interval_high": inner_high,
        "complete": comparison.complete,
        "above_guessing": comparison.learned.above if comparison.learned else None,
        "baseline_above_guessing": (
            comparison.base_learned.above if comparison.base_learned else None
        ),
        "folds_needed_low": folds[0] if folds else None,
        "folds_needed_high": folds[1] if folds else None,
        "sentence": verdict_sentence(comparison),
    }
