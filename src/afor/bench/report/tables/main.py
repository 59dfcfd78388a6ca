"""Build the main table, in the form of the paper's Table III, and the table of comparisons."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from afor.bench.report.tables.formats import Column, Row, Table, TableCell, columns_of
from afor.bench.report.tables.parts import (
    MISSING,
    condition_text,
    incomplete_note,
    partial,
    verdict_mark,
    verdict_note,
)
from afor.bench.report.verdicts import interval_text, paragraphs, verdict_sentence, verdict_word
from afor.bench.stats.comparisons import (
    BASELINE,
    Comparison,
    blocks_of,
    compare,
    compare_all,
    control_optimizers,
    main_optimizers,
    reference_levels,
)
from afor.bench.stats.groups import Condition, Conditions, block_of
from afor.bench.stats.labels import (
    PAPER_METRICS,
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


def main_table(
    conditions: Conditions,
    metrics: Sequence[str] = PAPER_METRICS,
    *,
    baseline: str = BASELINE,
    optimizers: Sequence[str] | None = None,
) -> Table:
    """Return mean ± SD over folds for every optimizer, as the paper's Table III.

    Copies and controls are listed below the others, without a verdict.
    """
    names = list(optimizers or main_optimizers(conditions))
    controls = [] if optimizers else control_optimizers(conditions)
    datasets = list(dict.fromkeys(d for d, _, _ in conditions))
    backbones = list(dict.fromkeys(b for _, b, _ in conditions))
    columns = [(b, m) for b in backbones for m in metrics]
    comparisons = {
        (c.dataset, c.backbone, c.metric, c.optimizer): c
        for d, b in blocks_of(conditions)
        for m in metrics
        for c in compare(conditions, d, b, m, optimizers=names, baseline=baseline)
    }
    rows, records = [], []
    for dataset in datasets:
        rows.append(Row(_dataset_heading(conditions, dataset), heading=True))
        ranks = {column: _top_two(conditions, dataset, *column, names) for column in columns}
        for name in [*names, *controls]:
            texts = []
            for backbone, metric in columns:
                condition = conditions.get((dataset, backbone, name))
                comparison = comparisons.get((dataset, backbone, metric, name))
                rank = ranks[backbone, metric].get(name, 0)
                texts.append(_result_cell(condition, metric, comparison, rank))
                if condition is not None and condition.has(metric):
                    records.append(_record(condition, metric, comparison, rank))
            if any(conditions.get((dataset, b, name)) for b in backbones):
                is_first_control = bool(controls) and name == controls[0]
                rows.append(Row(optimizer_label(name), tuple(texts), rule=is_first_control))
        rows += _reference_rows(conditions, dataset, columns)
    return Table(
        name="main",
        title="Results under the cross-subject protocol: mean ± SD over folds",
        columns=tuple(Column(metric_label(m), backbone_label(b)) for b, m in columns),
        rows=tuple(rows),
        lead=tuple(paragraphs([c for c in comparisons.values() if c.metric == metrics[0]])),
        notes=_main_notes(
            conditions, list(comparisons.values()), baseline, controls, has_signs=True
        ),
        records=tuple(records),
    )


def comparison_table(
    conditions: Conditions,
    metrics: Sequence[str] = PAPER_METRICS,
    *,
    baseline: str = BASELINE,
    optimizers: Sequence[str] | None = None,
) -> Table:
    """Return every comparison with the baseline: verdict, gain, intervals, p-values, effect."""
    comparisons = compare_all(conditions, metrics, optimizers=optimizers, baseline=baseline)
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
            interval_text(*c.bca_interval, scale),
            p_text(c.p),
            p_text(c.p_holm),
            p_text(c.p_two_sided),
            p_text(c.evidence.p_different_holm),
            p_text(c.evidence.p_equivalent),
            p_text(c.evidence.p_equivalent_holm),
            "–" if math.isnan(c.effect) else signed(c.effect),
            f"{c.wins}/{c.ties}/{c.losses}",
        ]
        missing = "" if c.complete else f"{c.done}/{c.expected}"
        gain = TableCell(signed(scale * c.gain), star=c.significant, partial=missing)
        cells = (TableCell(verdict_word(c)), gain, *map(TableCell, texts))
        rows.append(Row(optimizer_label(c.optimizer), cells))
    columns = (
        *columns_of("verdict", "gain"),
        *(Column(interval, "95 % interval") for interval in ("exact", "BCa")),
        *(Column(p, test) for test in ("better", "different", "equal") for p in ("p", "Holm")),
        *columns_of("d_z", "W/T/L"),
    )
    controls = [] if optimizers else control_optimizers(conditions)
    return Table(
        name="comparisons",
        title=f"Gain over {optimizer_label(baseline)}, paired over folds (points)",
        columns=columns,
        rows=tuple(rows),
        lead=tuple(paragraphs(comparisons)),
        notes=(
            *_main_notes(conditions, comparisons, baseline, controls, has_signs=False),
            "Intervals: exact (sign flips inverted) and BCa bootstrap over folds, both without "
            "correction for the number of comparisons. better: one-sided sign flips; different: "
            "two-sided; equal: the larger p of two one-sided tests at the margin. d_z: mean over "
            "SD of the paired differences. W/T/L: folds won, tied, lost.",
        ),
        records=tuple(_flat(c) for c in comparisons),
    )


def _top_two(
    conditions: Conditions, dataset: str, backbone: str, metric: str, names: Sequence[str]
) -> dict[str, int]:
    """Return the ranks 1 and 2 of the best and second best complete conditions."""
    members = [c for c in block_of(conditions, dataset, backbone) if c.optimizer in names]
    means = {c.optimizer: c.summary(metric)[0] for c in members if c.complete and c.has(metric)}
    levels = sorted(set(means.values()), reverse=better_sign(metric) > 0)[:2]
    # A single method is not marked as best.
    return {n: levels.index(m) + 1 for n, m in means.items() if m in levels and len(means) > 1}


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
        star=comparison is not None and comparison.significant,
        mark=verdict_mark(comparison),
        partial=partial(condition),
        link=f"{condition.dataset}/{condition.backbone}/{condition.optimizer}",
    )


def _record(
    condition: Condition, metric: str, comparison: Comparison | None, rank: int
) -> Mapping[str, object]:
    mean, sd, n = condition.summary(metric)
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
        "p_holm": comparison.p_holm if comparison else None,
        "significant": comparison.significant if comparison else None,
        "verdict": _verdict_value(comparison) if comparison else None,
    }


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
        value, name = level.chance if level else (math.nan, "")
        text = f"{metric_text(metric, value)} ({name})"
        chance.append(MISSING if math.isnan(value) else TableCell(text))
    return [Row("Majority class", tuple(majority), rule=True), Row("Chance level", tuple(chance))]


def _main_notes(
    conditions: Conditions,
    comparisons: list[Comparison],
    baseline: str,
    controls: Sequence[str],
    *,
    has_signs: bool,
) -> tuple[str, ...]:
    notes = []
    if comparisons:
        family = max(c.family for c in comparisons)
        notes.append(verdict_note(comparisons, has_signs=has_signs))
        notes.append(
            f"* better than {optimizer_label(baseline)} by the paper's test: one-sided, Holm over "
            f"{family} comparison{'s' * (family > 1)}, p < 0.05."
        )
        for dataset in dict.fromkeys(c.dataset for c in comparisons):
            of_dataset = [c for c in comparisons if c.dataset == dataset]
            n = max(c.folds for c in of_dataset)
            best = min(c.smallest_p for c in of_dataset)
            possible = any(c.can_be_significant for c in of_dataset)
            verdict = "" if possible else " So few folds cannot show a difference."
            notes.append(
                f"{dataset_label(dataset)}: n = {n} fold{'s' * (n != 1)}, smallest attainable "
                f"two-sided p {p_text(2 * best)}, after Holm "
                f"{p_text(min(1.0, 2 * best * family))}.{verdict}"
            )
    if controls:
        names = ", ".join(map(optimizer_label, controls))
        notes.append(f"Controls, not compared: {names}. --optimizer NAME compares them.")
    return (*notes, *incomplete_note(conditions))


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
    record = asdict(comparison)
    evidence = record.pop("evidence")
    del evidence["decision"]  # it says nothing while runs are missing
    gain, p = evidence.pop("mean"), evidence.pop("p_better")
    record = {"verdict": _verdict_value(comparison), **record, "gain": gain, "p": p, **evidence}
    for name in ("interval", "inner_interval", "bca_interval"):
        record[f"{name}_low"], record[f"{name}_high"] = record.pop(name)
    return {
        **record,
        "complete": comparison.complete,
        "significant": comparison.significant,
        "folds_to_decide": comparison.folds_to_decide(),
        "draws_to_decide": comparison.draws_to_decide(),
        "sentence": verdict_sentence(comparison),
    }
