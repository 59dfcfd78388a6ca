"""Build the main table, in the form of the paper's Table III, and the table of comparisons."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from afor.bench.report.tables.formats import Column, Row, Table, TableCell
from afor.bench.report.tables.parts import (
    MISSING,
    NO_CONTROLS_NOTE,
    NOISE_NOTE,
    condition_text,
    incomplete_note,
    partial,
)
from afor.bench.stats.comparisons import (
    BASELINE,
    Comparison,
    blocks_of,
    compare,
    compare_all,
    main_optimizers,
    reference_levels,
)
from afor.bench.stats.groups import Condition, Conditions
from afor.bench.stats.labels import (
    PAPER_METRICS,
    backbone_label,
    better_sign,
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
    """Return mean ± SD over folds for every optimizer, as the paper's Table III."""
    names = list(optimizers or main_optimizers(conditions))
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
        for name in names:
            texts = []
            for backbone, metric in columns:
                condition = conditions.get((dataset, backbone, name))
                comparison = comparisons.get((dataset, backbone, metric, name))
                rank = ranks[backbone, metric].get(name, 0)
                texts.append(_result_cell(condition, metric, comparison, rank))
                records.append(
                    _record(dataset, backbone, name, metric, condition, comparison, rank)
                )
            if any(conditions.get((dataset, b, name)) for b in backbones):
                rows.append(Row(optimizer_label(name), tuple(texts)))
        rows += _reference_rows(conditions, dataset, columns)
    return Table(
        name="main",
        title="Results under the cross-subject protocol: mean ± SD over folds",
        columns=tuple(Column(metric_label(m), backbone_label(b)) for b, m in columns),
        rows=tuple(rows),
        notes=_main_notes(conditions, list(comparisons.values()), baseline),
        records=tuple(r for r in records if r is not None),
    )


def comparison_table(
    conditions: Conditions,
    metrics: Sequence[str] = PAPER_METRICS,
    *,
    baseline: str = BASELINE,
    optimizers: Sequence[str] | None = None,
) -> Table:
    """Return every comparison with the baseline: gain, interval, p-values, effect, noise floor."""
    comparisons = compare_all(conditions, metrics, optimizers=optimizers, baseline=baseline)
    rows: list[Row] = []
    heading = ""
    for c in comparisons:
        new = f"{dataset_label(c.dataset)}, {backbone_label(c.backbone)}, {metric_label(c.metric)}"
        if new != heading:
            unit = metric_style(c.metric).gain_unit
            named = "" if unit == "points" else f", in {unit}"
            rows.append(Row(f"{new}: {c.folds} folds{named}", heading=True))
            heading = new
        scale = gain_scale(c.metric)
        low, high = c.interval
        texts = [
            f"{signed(scale * low)} to {signed(scale * high)}",
            "–" if c.floor is None else f"±{scale * c.floor:.2f}",
            p_text(c.p),
            p_text(c.p_holm),
            p_text(c.p_two_sided),
            "–" if math.isnan(c.effect) else signed(c.effect),
            f"{c.wins}/{c.ties}/{c.losses}",
        ]
        gain = TableCell(
            signed(scale * c.gain),
            star=c.significant,
            inside_noise=bool(c.inside_noise),
            partial="" if c.complete else f"{c.done}/{c.expected}",
        )
        rows.append(Row(optimizer_label(c.optimizer), (gain, *map(TableCell, texts))))
    labels = ["gain", "95 % interval", "noise", "p", "Holm", "2-sided", "d_z", "W/T/L"]
    return Table(
        name="comparisons",
        title=f"Gain over {optimizer_label(baseline)}, paired over folds (points)",
        columns=tuple(Column(label) for label in labels),
        rows=tuple(rows),
        notes=(
            *_main_notes(conditions, comparisons, baseline),
            "p: exact one-sided sign flips. Interval: BCa bootstrap over folds. d_z: mean over SD "
            "of the paired differences. W/T/L: folds won, tied, lost.",
        ),
        records=tuple(_flat(c) for c in comparisons),
    )


def _top_two(
    conditions: Conditions, dataset: str, backbone: str, metric: str, names: Sequence[str]
) -> dict[str, int]:
    """Return the ranks 1 and 2 of the best and second best complete conditions."""
    members = [
        conditions[dataset, backbone, n] for n in names if (dataset, backbone, n) in conditions
    ]
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
        inside_noise=comparison is not None and comparison.inside_noise is True,
        partial=partial(condition),
        link=f"{condition.dataset}/{condition.backbone}/{condition.optimizer}",
    )


def _record(
    dataset: str,
    backbone: str,
    optimizer: str,
    metric: str,
    condition: Condition | None,
    comparison: Comparison | None,
    rank: int,
) -> Mapping[str, object] | None:
    if condition is None or not condition.has(metric):
        return None
    mean, sd, n = condition.summary(metric)
    return {
        "dataset": dataset,
        "backbone": backbone,
        "optimizer": optimizer,
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
        "noise_floor": comparison.floor if comparison else None,
        "inside_noise": comparison.inside_noise if comparison else None,
    }


def _reference_rows(
    conditions: Conditions, dataset: str, columns: Sequence[tuple[str, str]]
) -> list[Row]:
    levels = [reference_levels(conditions, dataset, b, m) for b, m in columns]
    if not any(levels):
        return []
    majority, chance = [], []
    for level, (_, metric) in zip(levels, columns, strict=True):
        if level is None:
            majority.append(MISSING)
            chance.append(MISSING)
            continue
        mean, sd, _ = level.majority
        majority.append(MISSING if math.isnan(mean) else TableCell(metric_text(metric, mean, sd)))
        has_chance = not math.isnan(level.adjusted_chance)
        chance.append(
            TableCell(metric_text(metric, level.adjusted_chance)) if has_chance else MISSING
        )
    return [
        Row("Majority class", tuple(majority), rule=True),
        Row("Chance (95 %)", tuple(chance)),
    ]


def _main_notes(
    conditions: Conditions, comparisons: list[Comparison], baseline: str
) -> tuple[str, ...]:
    notes = []
    if comparisons:
        family = max(c.family for c in comparisons)
        notes.append(
            f"* significantly better than {optimizer_label(baseline)}: exact one-sided paired sign "
            f"flips over folds, Holm over {family} comparisons, p < 0.05."
        )
        for dataset in dict.fromkeys(c.dataset for c in comparisons):
            of_dataset = [c for c in comparisons if c.dataset == dataset]
            n = max(c.folds for c in of_dataset)
            best = min(c.smallest_p for c in of_dataset)
            possible = any(c.can_be_significant for c in of_dataset)
            verdict = "" if possible else " No star is possible with so few folds."
            notes.append(
                f"{dataset_label(dataset)}: n = {n} folds, smallest attainable p {p_text(best)}, "
                f"after Holm {p_text(min(1.0, best * family))}.{verdict}"
            )
        has_floor = any(c.floor is not None for c in comparisons)
        notes.append(NOISE_NOTE if has_floor else NO_CONTROLS_NOTE)
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


def _flat(comparison: Comparison) -> Mapping[str, object]:
    record = asdict(comparison)
    record["interval_low"], record["interval_high"] = record.pop("interval")
    return {
        **record,
        "complete": comparison.complete,
        "significant": comparison.significant,
        "inside_noise": comparison.inside_noise,
    }
