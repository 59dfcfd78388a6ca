"""Build the tables of comparisons with the baseline: on each task, and pooled over tasks."""

import math
from dataclasses import asdict

from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.formats import Column, Row, Table, TableCell, columns_of
from afor.bench.report.tables.parts import verdict_note
from afor.bench.report.verdicts import answers, interval_text, verdict_of, verdict_word
from afor.bench.stats.comparisons import Comparison, Judged
from afor.bench.stats.design.power import needed_folds
from afor.bench.stats.inference.paired_tests import smallest_p
from afor.bench.stats.labels import (
    dataset_label,
    method_label,
    metric_style,
    p_text,
    signed,
    task_label,
)
from afor.bench.stats.pooling import PooledComparison
from afor.bench.stats.results import Results

ONE_TASK = "Fewer than two tasks are compared here: there is nothing to pool."
CHANCE_NOTE = (
    "Chance level of the mean over folds: for Acc the majority class, or the 95 % limit of as many "
    "guesses if that is higher; for NLL and Brier the class frequencies of the training subjects; "
    "for others the best answers without a signal. ° not better than guessing: exact one-sided "
    "test over folds, 5 %."
)


def comparison_table(results: Results) -> Table:
    """Return every comparison with the baseline: verdict, gain, interval, p-values, effect."""
    comparisons = results.needed_comparisons()
    rows: list[Row] = []
    heading = ""
    for c in comparisons:
        if heading != (heading := task_label(c.dataset, c.backbone, c.metric)):
            unit = metric_style(c.metric).gain_unit
            named = "" if unit == "points" else f", in {unit}"
            rows.append(Row(f"{heading}: {c.folds} folds{named}", heading=True))
        scale = metric_style(c.metric).gain_scale
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
        rows.append(Row(method_label(c.method), cells))
    return Table(
        name="comparisons",
        title=f"Gain over {method_label(results.baseline)}, paired over folds (points)",
        columns=(
            *columns_of("verdict", "gain", "95 % interval"),
            *(Column(p, test) for test in ("different", "equal") for p in ("p", "Holm")),
            *columns_of("d_z", "W/T/L"),
        ),
        rows=tuple(rows),
        lead=tuple(
            answer.lines
            for metric in results.metrics
            for answer in answers(results.showing([metric]))
        ),
        notes=(
            *family_notes(results, has_signs=False),
            "The interval inverts the permutation test and is not corrected for the number of "
            "comparisons. different: two-sided p; equal: the larger p of two one-sided tests at "
            "the margin. d_z: mean over SD of the paired differences. W/T/L: folds won, tied, "
            "lost.",
        ),
        records=tuple(comparison_record(c) for c in comparisons),
    )


def pooled_table(results: Results) -> Table:
    """Return every method compared with the baseline over all tasks.

    Raises:
        ConfigError: There are fewer than two tasks.
    """
    if not results.pooled:
        raise ConfigError(ONE_TASK)
    rows: list[Row] = []
    heading = ""
    for c in results.pooled:
        style = metric_style(c.metric)
        unit = "" if style.gain_unit == "points" else f", in {style.gain_unit}"
        tasks, datasets = len(c.tasks), c.datasets
        counts = f"{tasks} tasks"
        if datasets < tasks:
            counts += f" on {datasets} data set{'s' * (datasets > 1)}"
        if heading != (heading := f"Over tasks, {style.label}: {counts}{unit}"):
            rows.append(Row(heading, heading=True))
        rows.append(Row(method_label(c.method), _pooled_cells(c)))
    return Table(
        name="pooled",
        title=f"Gain over {method_label(results.baseline)}, pooled over tasks (points)",
        columns=(
            *columns_of("verdict", "gain", "95 % interval", "prediction", "I²"),
            *(Column(test, "Holm p") for test in ("different", "equal")),
            *columns_of("W/T/L"),
        ),
        rows=tuple(rows),
        notes=_pooling_notes(results),
        records=tuple(_pooled_record(c) for c in results.pooled),
    )


def _pooled_cells(c: PooledComparison) -> tuple[TableCell, ...]:
    scale = metric_style(c.metric).gain_scale
    heterogeneity = "–" if math.isnan(c.i_squared) else f"{100 * c.i_squared:.0f} %"
    return (
        TableCell(verdict_word(c)),
        TableCell(signed(scale * c.gain), partial="" if c.complete else "incomplete"),
        TableCell(interval_text(*c.interval, scale)),
        TableCell(interval_text(*c.prediction, scale)),
        TableCell(heterogeneity),
        *(
            TableCell(p_text(p))
            for p in (c.evidence.p_different_holm, c.evidence.p_equivalent_holm)
        ),
        TableCell("/".join(map(str, c.won_tied_lost))),
    )


def _pooling_notes(results: Results) -> tuple[str, ...]:
    notes = []
    if any(c.datasets < len(c.tasks) for c in results.pooled):
        notes.append(
            "Backbones on one data set share its subjects: their differences are averaged fold by "
            "fold, and a data set counts once."
        )
    if any(c.datasets > 1 for c in results.pooled):
        notes.append(
            "Data sets are pooled by a random-effects model (Paule-Mandel, Knapp-Hartung). "
            "prediction: 95 % interval of the gain on a further data set, from three data sets on. "
            "I²: share of the variance between data sets that chance within them does not explain."
        )
    if any(c.datasets == 1 for c in results.pooled):
        notes.append("With one data set the test is the exact one over its folds.")
    if blind := max(c.blind for c in results.pooled):
        notes.append(
            f"Left out: up to {blind} tasks on which neither method is better than guessing."
        )
    family = max(c.family for c in results.pooled)
    correction = f"over {family} comparisons" if family > 1 else "of one comparison: none"
    return (*notes, f"Holm's correction {correction}. W/T/L: tasks won, tied, lost.")


def family_notes(results: Results, *, has_signs: bool) -> tuple[str, ...]:
    """Explain the tests behind the verdicts, what so many folds can show, and the controls."""
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
            after = f", after Holm {p_text(min(1.0, smallest * family))}" if family > 1 else ""
            notes.append(
                f"{dataset_label(dataset)}: n = {n} fold{'s' * (n != 1)}, smallest attainable "
                f"two-sided p {p_text(smallest)}{after}.{verdict}"
            )
    if results.controls:
        names = ", ".join(map(method_label, results.controls))
        notes.append(f"Controls, not compared: {names}.")
    return tuple(notes)


def verdict_value(c: Judged) -> str | None:
    """Return the verdict as a record has it; None before all runs are there."""
    return c.decision.value if c.decision else None


def _record(c: Comparison | PooledComparison) -> dict[str, object]:
    """Return what a record of any comparison holds: the evidence, and the verdict in words."""
    evidence = asdict(c.evidence)
    del evidence["decision"]  # it says nothing while runs are missing
    ends = {
        f"{name}_{end}": value
        for name in ("interval", "inner_interval")
        for end, value in zip(("low", "high"), evidence.pop(name), strict=True)
    }
    names = ("metric", "method", "baseline", "family", "done", "expected", "complete")
    return {
        "verdict": verdict_value(c),
        **{name: getattr(c, name) for name in names},
        **dict(zip(("wins", "ties", "losses"), c.won_tied_lost, strict=True)),
        "gain": evidence.pop("mean"),
        **evidence,
        **ends,
        **asdict(verdict_of(c)),
    }


def comparison_record(c: Comparison) -> dict[str, object]:
    """Return what a record of a comparison on one task holds."""
    folds = needed_folds(c) if c.complete else None
    return {
        "dataset": c.dataset,
        "backbone": c.backbone,
        **_record(c),
        "effect": c.effect,
        "above_guessing": c.learned.above if c.learned else None,
        "baseline_above_guessing": c.base_learned.above if c.base_learned else None,
        "folds_needed_low": folds[0] if folds else None,
        "folds_needed_high": folds[1] if folds else None,
    }


def _pooled_record(c: PooledComparison) -> dict[str, object]:
    low, high = c.prediction
    return {
        **_record(c),
        "tasks": len(c.tasks),
        "datasets": c.datasets,
        "prediction_low": low,
        "prediction_high": high,
        "tau": c.tau,
        "i_squared": c.i_squared,
        "blind": c.blind,
    }
