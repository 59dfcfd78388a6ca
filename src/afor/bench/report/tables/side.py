"""Build the tables of ranks, of the noise between seeds, of data sets, and of training losses."""

import math

from afor.bench.common.errors import ConfigError
from afor.bench.report.figures.curves import loss_curves
from afor.bench.report.tables.formats import Row, Table, columns_of, text_row
from afor.bench.report.tables.parts import gain_units
from afor.bench.stats.comparisons import Ranks
from afor.bench.stats.design.seed_noise import NO_REPLICATES, same_seed_sd, seed_noise
from afor.bench.stats.groups import dataset_runs, mean_sd
from afor.bench.stats.labels import (
    dataset_label,
    mean_sd_text,
    method_label,
    metric_style,
    p_text,
    task_label,
)
from afor.bench.stats.results import Results

ONE_TASK = (
    "Ranks are means over tasks (a data set and a backbone), and fewer than two tasks are complete "
    "here; the verdicts say which method is better."
)


def ranks_table(results: Results) -> Table:
    """Return mean ranks by each metric over all complete tasks, the best by the first one first.

    Raises:
        ConfigError: Fewer than two tasks are complete.
    """
    by_metric = list(results.ranks.values())
    first = by_metric[0]
    if len(first.tasks) < 2:
        raise ConfigError(ONE_TASK)
    order = sorted(range(len(first.methods)), key=lambda i: first.mean_ranks[i])
    return Table(
        name="ranks",
        title="Mean rank over tasks (data set and backbone), 1 is best",
        columns=columns_of(*(metric_style(m).label for m in results.metrics)),
        rows=tuple(
            text_row(
                method_label(first.methods[i]),
                (f"{ranks.mean_ranks[i]:.2f}".replace("nan", "–") for ranks in by_metric),
            )
            for i in order
        ),
        notes=tuple(map(ranks_caption, by_metric)),
        records=tuple(
            {
                "method": ranks.methods[i],
                "metric": ranks.metric,
                "tasks": len(ranks.tasks),
                "mean_rank": ranks.mean_ranks[i],
            }
            for ranks in by_metric
            for i in order
        ),
    )


def ranks_caption(ranks: Ranks) -> str:
    """Return the caption of mean ranks, for the table and for the figure."""
    text = f"{metric_style(ranks.metric).label}: mean rank over {len(ranks.tasks)} tasks, 1 is best"
    if not math.isnan(ranks.critical_difference):
        text += f"; critical difference (Nemenyi, 5 %) {ranks.critical_difference:.2f}"
    if not math.isnan(ranks.friedman_p):
        text += f"; Friedman p {p_text(ranks.friedman_p)}"
    return f"{text}."


def noise_table(results: Results) -> Table:
    """Return how far another seed moves a fold, for every task that has replicates."""
    rows, records = [], []
    identical: dict[tuple[str, str], None] = {}
    for dataset, backbone in results.tasks:
        for metric in results.metrics:
            noise = seed_noise(results.conditions, dataset, backbone, metric)
            if noise is None:
                continue
            scale = metric_style(metric).gain_scale
            names = "; ".join(" = ".join(map(method_label, g)) for g in noise.replicates)
            same = same_seed_sd(results.conditions, dataset, backbone, metric)
            texts = [
                f"{scale * noise.spread:.2f}",
                f"{scale * noise.largest:.2f}",
                "–" if math.isnan(same) else f"{scale * same:.2f}",
                str(noise.folds),
                names,
            ]
            rows.append(text_row(task_label(dataset, backbone, metric), texts))
            records.append(
                {
                    "dataset": dataset,
                    "backbone": backbone,
                    "metric": metric,
                    "spread": noise.spread,
                    "largest": noise.largest,
                    "same_seed_sd": same,
                    "folds": noise.folds,
                    "replicates": names,
                }
            )
            identical |= dict.fromkeys(noise.identical)
    if not rows:
        raise ConfigError(NO_REPLICATES)
    pairs = ", ".join(f"{a} = {b}" for a, b in identical)
    return Table(
        name="noise",
        title=f"How far another seed moves one method ({gain_units(results.metrics)})",
        columns=columns_of("SD", "largest mean", "SD, same seeds", "folds", "replicates"),
        rows=tuple(rows),
        label="Task",
        notes=(
            "SD: standard deviation, across folds, of the difference between two seeds of one "
            "method. largest mean: the largest difference between their means over folds. SD, "
            "same seeds: that of AdamW and AFOR with β₂ fixed at 0.999, one method under the same "
            "seeds. All comparisons are made under the same seeds, so no verdict uses the noise "
            "between seeds.",
            *([f"Left out, equal to the last bit and so without noise: {pairs}."] if pairs else []),
        ),
        records=tuple(records),
    )


def datasets_table(results: Results) -> Table:
    """Return the data sets: classes, subjects, folds, repetitions, windows, majority class."""
    rows, records = [], []
    for dataset in dict.fromkeys(d for d, _ in results.tasks):
        runs = dataset_runs(results.conditions, dataset)
        if not runs:
            continue
        windows = {run.fold: run.test_windows for run in runs}
        majority = {
            (run.fold, run.repetition): run.majority_accuracy
            if run.majority_accuracy <= 1
            else math.nan
            for run in runs
        }
        share = math.fsum(majority.values()) / len(majority)
        counts = {
            "classes": runs[0].classes,
            "subjects": len({subject for run in runs for subject in run.test_subjects}),
            "folds": len(windows),
            "repetitions": len({run.repetition for run in runs}),
            "test_windows": sum(windows.values()),
        }
        records.append({"dataset": dataset, **counts, "majority_accuracy": share})
        texts = [*(f"{count:,}" for count in counts.values()), f"{100 * share:.2f}"]
        rows.append(text_row(dataset_label(dataset), texts))
    labels = ("classes", "subjects", "folds", "repetitions", "test windows", "majority %")
    return Table(
        name="datasets",
        title="Data sets as tested",
        columns=columns_of(*labels),
        rows=tuple(rows),
        label="Data set",
        records=tuple(records),
    )


def convergence_table(results: Results) -> Table:
    """Return mean ± SD over runs of the training loss at the first, middle and last epoch.

    Only runs that reached an epoch count there; the column `runs` says how many reached the last.
    """
    curves = loss_curves(results)
    rows, records = [], []
    for (dataset, backbone), by_method in curves.items():
        last = max(len(run) for runs in by_method.values() for run in runs)
        epochs = {"first": 1, "middle": math.ceil(last / 2), "last": last}
        panel = task_label(dataset, backbone)
        rows.append(Row(f"{panel}: epochs {', '.join(map(str, epochs.values()))}", heading=True))
        for name, runs in by_method.items():
            reached = sum(len(run) == last for run in runs)
            texts = [f"{reached}/{len(runs)}"]
            record: dict[str, object] = {"dataset": dataset, "backbone": backbone}
            record |= {"method": name, "runs": len(runs)}
            record |= {"epochs": last, "runs_to_the_end": reached}
            for moment, epoch in epochs.items():
                mean, sd, n = mean_sd([float(run[epoch - 1]) for run in runs if len(run) >= epoch])
                texts.append(mean_sd_text(mean, sd, 3) if n else "–")
                record |= {f"{moment}_mean": mean, f"{moment}_sd": sd}
            rows.append(text_row(method_label(name), texts))
            records.append(record)
    return Table(
        name="convergence",
        title="Training loss: mean ± SD over runs",
        columns=columns_of("runs", "first", "middle", "last"),
        rows=tuple(rows),
        notes=(
            "runs: those that reached the last epoch, of all. The preset convergence trains "
            "without early stopping, so that all do.",
        ),
        records=tuple(records),
    )
