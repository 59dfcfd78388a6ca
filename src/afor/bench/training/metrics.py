"""Metrics of predictions, all computed from one confusion matrix."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Metrics:
    """Metrics between 0 and 1 (kappa between -1 and 1), and the confusion matrix."""

    n: int
    accuracy: float
    weighted_f1: float  # each class weighted by its true count: the paper's wF1
    macro_f1: float  # over the classes that occur as truth or prediction
    balanced_accuracy: float  # mean recall over the classes that occur as truth
    kappa: float  # 0 where one class alone makes it undefined
    confusion: tuple[tuple[int, ...], ...]  # rows: truth, columns: prediction


def measure(labels: NDArray[np.int64], predictions: NDArray[np.int64], n_classes: int) -> Metrics:
    """Compute the metrics of predictions.

    Args:
        labels: True classes.
        predictions: Predicted classes.
        n_classes: Number of classes.

    Example:
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
    )


def vote(
    logits: NDArray[np.float32], labels: NDArray[np.int64], trials: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Classify each trial by the mean logits of its windows; return its labels and predictions."""
    _, first, member = np.unique(trials, return_index=True, return_inverse=True)
    total = np.zeros((len(first), logits.shape[1]))
    np.add.at(total, member, logits)
    # All windows of a trial have the same weight, so the sum has the same argmax as the mean.
    return labels[first], total.argmax(axis=1)
