"""Build the tables of ranks, noise floor and data sets."""

import math
from collections.abc import Sequence
from dataclasses import asdict

from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.formats import Column, Row, Table, TableCell
from afor.bench.report.tables.parts import incomplete_note
from afor.bench.stats.comparisons import blocks_of, mean_ranks
from afor.bench.stats.groups import Conditions
from afor.bench.stats.labels import (
    PAPER_METRICS,
    backbone_label,
    dataset_label,
    gain_scale,
    metric_label,
    optimizer_label,
    p_text,
)
from afor.bench.stats.noise_floor import identity_gap, noise_floor


def ranks_table(
    conditions: Conditions,
    metrics: Sequence[str] = PAPER_METRICS,
    *,
    optimizers: Sequence[str] | None = None,
) -> Table:
    """Return mean ranks over all complete blocks, best first."""
    ranks = mean_ranks(conditions, metrics, optimizers)
    order = sorted(zip(ranks.mean_ranks, ranks.optimizers, strict=True))
    return Table(
        name="ranks",
        title=f"Mean rank, 1 is best; blocks of data set, backbone and metric: {len(ranks.blocks)}",
        columns=(Column("mean rank"),),
        rows=tuple(Row(optimizer_label(o), (TableCell(f"{rank:.2f}"),)) for rank, o in order),
        notes=(
            *(
                [
                    f"Critical difference (Nemenyi, 5 %): {ranks.critical_difference:.2f}; "
                    f"Friedman p {p_text(ranks.friedman_p)}. Blocks share subjects, so both are "
                    "optimistic."
                ]
                if len(ranks.blocks) > 1
                else []
            ),
            *incomplete_note(conditions),
        ),
        records=tuple({"optimizer": o, "mean_rank": rank} for rank, o in order),
    )


def noise_table(conditions: Conditions, metrics: Sequence[str] = PAPER_METRICS) -> Table:
    """Return the noise floor of every block that has A/A controls."""
    rows, records = [], []
    identical: list[tuple[str, str]] = []
    gaps: list[float] = []
    for dataset, backbone in blocks_of(conditions):
        for metric in metrics:
            floor = noise_floor(conditions, dataset, backbone, metric)
            if floor is None:
                continue
            scale = gain_scale(metric)
            label = f"{dataset_label(dataset)}, {backbone_label(backbone)}, {metric_label(metric)}"
            copies = "; ".join(" = ".join(optimizer_label(n) for n in g) for g in floor.copies)
            values = [
                f"{scale * floor.spread:.2f}",
                str(floor.folds),
                f"±{scale * floor.bound:.2f}",
            ]
            texts = [*values, f"{scale * floor.largest:.2f}", copies]
            rows.append(Row(label, tuple(map(TableCell, texts))))
            records.append({**asdict(floor), "copies": copies, "identical": str(floor.identical)})
            identical += list(floor.identical)
            gap = identity_gap(conditions, dataset, backbone, metric)
            gaps += [] if gap is None else [scale * gap]
    if not rows:
        raise ConfigError(
            "No A/A controls here: no optimizer ran twice under other seeds. "
            "The preset `controls` does that: `afor run controls`."
        )
    pairs = ", ".join(f"{a} = {b}" for a, b in dict.fromkeys(identical))
    return Table(
        name="noise",
        title="Noise floor: how far identical methods come out apart (points)",
        columns=tuple(
            Column(text) for text in ("SD of a fold", "folds", "bound", "largest", "copies")
        ),
        rows=tuple(rows),
        label="Block",
        notes=(
            "SD of a fold: of the difference between two copies in one fold. bound: 95 % of mean "
            "differences between two copies lie within it. largest: the largest mean difference "
            "that was seen.",
            *([f"Left out, equal to the last bit and so without noise: {pairs}."] if pairs else []),
            *(
                [
                    "AFOR with β₂ fixed at 0.999 is AdamW, here under the same seeds: their means "
                    f"differ by at most {max(gaps):.2f} points: rounding, grown by training."
                ]
                if gaps
                else []
            ),
        ),
        records=tuple(records),
    )


def datasets_table(conditions: Conditions) -> Table:
    """Return the data sets: classes, subjects, folds, draws, windows, majority class."""
    rows, records = [], []
    for dataset in dict.fromkeys(d for d, _, _ in conditions):
        runs = [
            run for (d, _, _), c in conditions.items() if d == dataset for run in c.runs.values()
        ]
        if not runs:
            continue
        windows = {(run.fold): run.test_windows for run in runs}
        majority = {(run.fold, run.draw): run.majority_accuracy for run in runs}
        record = {
            "dataset": dataset,
            "classes": runs[0].classes,
            "subjects": len({subject for run in runs for subject in run.test_subjects}),
            "folds": len(windows),
            "draws": len({run.draw for run in runs}),
            "test_windows": sum(windows.values()),
            "majority_accuracy": math.fsum(majority.values()) / len(majority),
        }
        records.append(record)
        texts = [f"{v:,}" if isinstance(v, int) else f"{100 * float(str(v)):.2f}"
                 for v in list(record.values())[1:]]  # fmt: skip
        rows.append(Row(dataset_label(dataset), tuple(map(TableCell, texts))))
    labels = ("classes", "subjects", "folds", "draws", "test windows", "majority %")
    return Table(
        name="datasets",
        title="Data sets as tested",
        columns=tuple(Column(label) for label in labels),
        rows=tuple(rows),
        label="Data set",
        records=tuple(records),
    )
