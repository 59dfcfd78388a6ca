"""Mean and standard deviation over folds per optimizer: the smallest honest table."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from afor.bench.results import RunResult


@dataclass(frozen=True)
class Row:
    """One optimizer, its numbers as they are printed."""

    optimizer: str
    accuracy: str
    weighted_f1: str
    runs: int


def fold_table(results: Sequence[RunResult]) -> tuple[list[Row], int, float]:
    """Return a row per optimizer, the number of folds and the majority's mean accuracy.

    A fold's value is the mean of its draws; SD is that of a sample (ddof 1), across folds.
    """
    rows = []
    for optimizer in dict.fromkeys(result.optimizer for result in results):
        mine = [result for result in results if result.optimizer == optimizer]
        accuracy, f1 = (_mean_sd(mine, metric) for metric in ("accuracy", "weighted_f1"))
        rows.append(Row(optimizer, accuracy, f1, len(mine)))
    folds = len({result.fold for result in results})
    majority = statistics.fmean(r.majority_accuracy for r in results) if results else 0.0
    return rows, folds, majority


def _mean_sd(results: Sequence[RunResult], metric: str) -> str:
    by_fold: dict[int, list[float]] = {}
    for result in results:
        by_fold.setdefault(result.fold, []).append(result.metrics[metric])
    values = [100 * statistics.fmean(draws) for draws in by_fold.values()]
    spread = f" ± {statistics.stdev(values):5.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"
