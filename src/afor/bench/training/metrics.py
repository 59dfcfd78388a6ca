"""Metrics of predictions: from the confusion matrix, and from the class probabilities."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.training.record import Metrics

CALIBRATION_BINS = 15  # equally wide, over the confidence


def measure(
    labels: NDArray[np.int64],
    predictions: NDArray[np.int64],
    n_classes: int,
    logits: NDArray[np.floating] | None = None,
) -> Metrics:
    """Compute the metrics of predictions; without logits, (n, classes), not those of probabilities.

    >>> measure(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), 2).accuracy
    0.75
    """
    pairs = labels * n_classes + predictions
    confusion = np.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)
    n = int(confusion.sum())
    hits = np.diag(confusion).astype(float)
    true, predicted = confusion.sum(axis=1).astype(float), confusion.sum(axis=0).astype(float)
    f1 = 2 * hits / np.maximum(true + predicted, 1)
    occurs = (true + predicted) > 0
    chance = float((true * predicted).sum()) / n**2
    accuracy = float(hits.sum()) / n
    return Metrics(
        n=n,
        accuracy=accuracy,
        weighted_f1=float((f1 * true).sum()) / n,
        macro_f1=float(f1[occurs].mean()),
        balanced_accuracy=float((hits[true > 0] / true[true > 0]).mean()),
        kappa=(accuracy - chance) / (1 - chance) if chance < 1 else 0.0,
        confusion=tuple(tuple(int(count) for count in row) for row in confusion),
        **({} if logits is None else _probability_metrics(logits, labels)),
    )


def _probability_metrics(logits: NDArray[np.floating], labels: NDArray[np.int64]) -> dict[str, Any]:
    """Return NLL, Brier score, expected calibration error and AUROC, all computed in float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    probabilities = np.exp(log_probabilities)
    rows = np.arange(len(labels))
    distances = probabilities.copy()
    distances[rows, labels] -= 1.0
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == labels
    bins = np.minimum((confidence * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    gaps = np.bincount(bins, weights=is_right - confidence, minlength=CALIBRATION_BINS)
    return {
        "nll": float(-log_probabilities[rows, labels].mean()),
        "brier": float(np.square(distances).sum(axis=1).mean()),
        "calibration_error": float(np.abs(gaps).sum()) / len(labels),
        "auroc": _auroc(shifted if shifted.shape[1] == 2 else log_probabilities, labels),
    }


def _auroc(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> float | None:
    """Return the area under the ROC curve, by rank sums; tied scores share their mean rank.

    With two classes it is that of the second; with more, the mean of each class against the rest,
    over the classes that occur. None if only one occurs. Scores are logarithms of the class
    probabilities; for two classes, up to a constant per row.
    """
    # The log odds: a probability of nearly 1 has no digits left to rank it by.
    columns = [scores[:, 1] - scores[:, 0]] if scores.shape[1] == 2 else scores.T
    areas = []
    for number, column in enumerate(columns, 1 if scores.shape[1] == 2 else 0):
        is_class = labels == number
        n, others = int(is_class.sum()), int((~is_class).sum())
        if n and others:
            ranks = _mean_ranks(column)
            areas.append((float(ranks[is_class].sum()) - n * (n + 1) / 2) / (n * others))
    return math.fsum(areas) / len(areas) if areas else None


def _mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each value from 1; equal values have the mean of their ranks."""
    _, member, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[member]
    return ranks


def vote(
    logits: NDArray[np.float32], labels: NDArray[np.int64], trials: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Classify each trial by the mean logits of its windows.

    Returns:
        Label, prediction and mean logits of each trial.
    """
    _, first, member, windows = np.unique(
        trials, return_index=True, return_inverse=True, return_counts=True
    )
    total = np.zeros((len(first), logits.shape[1]))
    np.add.at(total, member, logits)
    # All windows of a trial have the same weight, so the sum has the same argmax as the mean.
    return labels[first], total.argmax(axis=1), total / windows[:, None]


def measure_windows(logits: NDArray[np.floating], labels: NDArray[np.int64]) -> Metrics:
    """Return all metrics of the logits of windows."""
    return measure(labels, logits.argmax(axis=1), logits.shape[1], logits)


def measure_trials(
    logits: NDArray[np.float32], labels: NDArray[np.int64], trials: NDArray[np.int64]
) -> Metrics:
    """Return all metrics of trials, each classified by the mean logits of its windows."""
    trial_labels, predictions, mean_logits = vote(logits, labels, trials)
    return measure(trial_labels, predictions, logits.shape[1], mean_logits)
