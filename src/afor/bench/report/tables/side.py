"""Build the tables of ranks, of the noise between seeds, and of data sets."""

import math
from collections.abc import Sequence
from dataclasses import asdict

from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.formats import Table, columns_of, text_row
from afor.bench.report.tables.parts import gain_units, incomplete_note
from afor.bench.stats.comparisons import Ranks, blocks_of, mean_ranks
from afor.bench.stats.design.seed_noise import NO_COPIES, same_seed_noise, seed_noise
from afor.bench.stats.groups import Conditions
from afor.bench.stats.labels import (
    PAPER_METRICS,
    block_label,
    dataset_label,
    gain_scale,
    metric_label,
    optimizer_label,
    p_text,
)


def ranks_table(
    conditions: Conditions,
    metrics: Sequence[str] = PAPER_METRICS,
    *,
    optimizers: Sequence[str] | None = None,
) -> Table:
    """Return mean ranks by each metric over all complete blocks, the best by the first one first.

    A column and the figure of its metric are the same `mean_ranks`, with the same caption.
    """
    by_metric = [mean_ranks(conditions, metric, optimizers) for metric in metrics]
    first = by_metric[0]
    order = sorted(range(len(first.optimizers)), key=lambda i: first.mean_ranks[i])
    return Table(
        name="ranks",
        title="Mean rank over blocks (data set and backbone), 1 is best",
        columns=columns_of(*map(metric_label, metrics)),
        rows=tuple(
            text_row(
                optimizer_label(first.optimizers[i]),
                (f"{ranks.mean_ranks[i]:.2f}".replace("nan", "–") for ranks in by_metric),
            )
            for i in order
        ),
        notes=(*map(ranks_caption, by_metric), *incomplete_note(conditions)),
        records=tuple(
            {
                "optimizer": ranks.optimizers[i],
                "metric": ranks.metric,
                "blocks": len(ranks.blocks),
                "mean_rank": ranks.mean_ranks[i],
            }
            for ranks in by_metric
            for i in order
        ),
    )


def ranks_caption(ranks: Ranks) -> str:
    """Return the caption of mean ranks, for the table and for the figure."""
    blocks = f"{len(ranks.blocks)} block{'s' * (len(ranks.blocks) != 1)}"
    text = f"{metric_label(ranks.metric)}: mean rank over {blocks}, 1 is best"
    if not math.isnan(ranks.critical_difference):
        text += f"; critical difference (Nemenyi, 5 %) {ranks.critical_difference:.2f}"
    if not math.isnan(ranks.friedman_p):
        text += f"; Friedman p {p_text(ranks.friedman_p)}"
    return f"{text}."


def noise_table(conditions: Conditions, metrics: Sequence[str] = PAPER_METRICS) -> Table:
    """Return how far another seed moves a fold, for every block that has copies."""
    rows, records = [], []
    identical: list[tuple[str, str]] = []
    for dataset, backbone in blocks_of(conditions):
        for metric in metrics:
            noise = seed_noise(conditions, dataset, backbone, metric)
            if noise is None:
                continue
            scale = gain_scale(metric)
            copies = "; ".join(" = ".join(optimizer_label(n) for n in g) for g in noise.copies)
            same = same_seed_noise(conditions, dataset, backbone, metric)
            texts = [
                f"{scale * noise.spread:.2f}",
                f"{scale * noise.largest:.2f}",
                "–" if same is None else f"{scale * same[1]:.2f}",
                str(noise.folds),
                copies,
            ]
            rows.append(text_row(block_label(dataset, backbone, metric), texts))
            mean, sd = same or (math.nan, math.nan)
            records.append(
                {
                    **asdict(noise),
                    "same_seed_mean": mean,
                    "same_seed_sd": sd,
                    "copies": copies,
                    "identical": str(noise.identical),
                }
            )
            identical += list(noise.identical)
    if not rows:
        raise ConfigError(NO_COPIES)
    pairs = ", ".join(f"{a} = {b}" for a, b in dict.fromkeys(identical))
    return Table(
        name="noise",
        title=f"How far another seed moves one method ({gain_units(metrics)})",
        columns=columns_of("SD of a fold", "largest mean", "SD, same seeds", "folds", "copies"),
        rows=tuple(rows),
        label="Block",
        notes=(
            "SD of a fold: of the difference between two copies in one fold. largest mean: the "
            "largest difference of two copies in the mean over folds. SD, same seeds: of the fold "
            "differences between AdamW and AFOR with β₂ fixed at 0.999, one method under the same "
            "seeds. All comparisons are made under the same seeds, so no verdict uses the noise "
            "between seeds.",
            *([f"Left out, equal to the last bit and so without noise: {pairs}."] if pairs else []),
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
        majority = {
            (run.fold, run.draw): run.majority_accuracy if run.majority_accuracy <= 1 else math.nan
            for run in runs
        }
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
        rows.append(text_row(dataset_label(dataset), texts))
    labels = ("classes", "subjects", "folds", "draws", "test windows", "majority %")
    return Table(
        name="datasets",
        title="Data sets as tested",
        columns=columns_of(*labels),
        rows=tuple(rows),
        label="Data set",
        records=tuple(records),
    )
