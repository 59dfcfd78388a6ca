"""Tell whether networks are better than guessing: scores that need no brain signal, and the test.

A verdict between two networks that learned nothing is worthless, so every comparison asks this
first. docs/explanation/statistics.md gives the reasons and the simulated error rates.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from afor.bench.stats.groups import (
    Condition,
    Conditions,
    mean_of_repetitions,
    mean_sd,
    task_conditions,
)
from afor.bench.stats.inference.decisions import LEVEL
from afor.bench.stats.inference.paired_tests import TIE, sign_flip_p, smallest_p
from afor.bench.stats.labels import metric_style
from afor.bench.store.results import RunResult

# Metrics without a level of their own are judged by another one of the same answers.
JUDGED_BY = {"calibration_error": "accuracy"}
# Without a signal these have this value, whatever the frequencies of the classes.
BY_DEFINITION = {"auroc": 0.5, "kappa": 0.0}
MAJORITY, FREQUENCIES, GUESSES = "majority class", "frequencies", "guessing"
_SOURCES = {
    **dict.fromkeys(("accuracy", "accuracy_before"), MAJORITY),
    **dict.fromkeys(("nll", "nll_before", "brier"), FREQUENCIES),
}


@dataclass(frozen=True)
class Learned:
    """Whether a condition is better than guessing, by the mean over its folds."""

    metric: str  # by which it is judged
    mean: float
    level: float  # of guessing, mean over the same folds
    source: str  # what guesses: the majority class, the class frequencies, or the best blind answer
    classes: int
    folds: int
    p: float  # exact, one-sided: sign flips of score minus level over folds

    @property
    def above(self) -> bool | None:
        """Whether it is better than guessing; None if so few folds cannot show it."""
        if smallest_p(self.folds) >= LEVEL and metric_style(self.metric).sign * (
            self.mean - self.level
        ) > TIE * abs(self.level):
            return None
        return self.p < LEVEL


def learned(condition: Condition, metric: str) -> Learned | None:
    """Test the mean over folds of a condition against guessing.

    Args:
        condition: The finished runs of a data set, backbone and method.
        metric: The metric; one without a level of its own is judged by accuracy.

    Returns:
        The test, or None if the level of guessing is not known.

    Example:
        >>> from afor.bench.stats.design.simulated import simulate_results
        >>> from afor.bench.stats.groups import collect_conditions
        >>> made = collect_conditions(*simulate_results({"adam": 0.0}, datasets=["bci2a"]))
        >>> learned(made["bci2a", "eegnet", "adam"], "accuracy").above
        True
    """
    metric = JUDGED_BY.get(metric, metric)
    if metric not in condition.tested:
        condition.tested[metric] = _test(condition, metric)
    return cast("Learned | None", condition.tested[metric])


def _test(condition: Condition, metric: str) -> Learned | None:
    if not condition.has(metric):
        return None
    levels = {key: guess_level(metric, run) for key, run in condition.runs.items()}
    if not all(map(math.isfinite, levels.values())):
        return None
    by_fold, scores = mean_of_repetitions(levels), condition.fold_values(metric)
    values = np.array([[scores[fold], by_fold[fold]] for fold in scores])
    gains = metric_style(metric).sign * (values[:, 0] - values[:, 1])
    gains[np.abs(gains) <= TIE * np.abs(values).max(axis=1)] = 0.0
    mean, level = values.mean(axis=0).tolist()
    classes = max(run.classes for run in condition.runs.values())
    source = _SOURCES.get(metric, GUESSES)
    return Learned(metric, mean, level, source, classes, len(gains), sign_flip_p(gains))


def guess_level(metric: str, run: RunResult) -> float:
    """Return the score of a run's test windows without looking at them; NaN if it is not known.

    Accuracy: the majority class of the training subjects. NLL and Brier: their class frequencies.
    Balanced accuracy, kappa and F1: the expected score of the best answers that do not depend on
    the signal, drawn at any frequencies. A run without class counts, as from another program, is
    taken to have its other classes equally often; one without classes, as of a table of scores,
    has a level of AUROC and kappa alone.
    """
    if metric in BY_DEFINITION:
        return BY_DEFINITION[metric]
    if run.classes < 2 or not 0 <= run.majority_accuracy <= 1:
        return math.nan  # these columns of a file of results are optional
    tested, trained = class_shares(run)
    present = sum(share > 0 for share in tested)
    if metric in ("accuracy", "accuracy_before"):
        return run.majority_accuracy
    if metric in ("nll", "nll_before"):
        if any(f > 0 and not g for f, g in zip(tested, trained, strict=True)):
            return math.nan  # a class that the training subjects do not have
        return -math.fsum(f * math.log(g) for f, g in zip(tested, trained, strict=True) if f)
    if metric == "brier":
        squares = math.fsum(g * g for g in trained)
        return 1 + squares - 2 * math.fsum(f * g for f, g in zip(tested, trained, strict=True))
    if metric == "weighted_f1":
        return best_blind_f1(tested)
    return 1 / present if metric in ("balanced_accuracy", "macro_f1") else math.nan


def class_shares(run: RunResult) -> tuple[list[float], list[float]]:
    """Return the frequencies of the classes among the test and the training windows."""
    if run.test_counts and run.train_counts:
        return tuple(  # type: ignore[return-value]
            [count / sum(counts) for count in counts]
            for counts in (run.test_counts, run.train_counts)
        )
    rest = (1 - run.majority_accuracy) / (run.classes - 1)
    shares = [run.majority_accuracy, *[rest] * (run.classes - 1)]
    return shares, shares


def best_blind_f1(shares: Sequence[float]) -> float:
    """Return the largest weighted F1 that answers have which do not depend on the signal.

    Answers at the frequencies q give sum of 2 p² q / (p + q), which is largest where p + q is
    proportional to p**1.5 for every class that is answered at all.

    >>> round(best_blind_f1([0.25, 0.25, 0.25, 0.25]), 3), round(best_blind_f1([0.9, 0.1]), 3)
    (0.25, 0.853)
    """
    answered = sorted((p for p in shares if p > 0), reverse=True)
    while True:
        scale = (1 + math.fsum(answered)) / math.fsum(p**1.5 for p in answered)
        if len(answered) == 1 or scale * answered[-1] ** 1.5 > answered[-1]:
            break
        answered.pop()  # the rarest class is better never answered
    return math.fsum(2 * p * p * (1 - p / (scale * p**1.5)) for p in answered)


@dataclass(frozen=True)
class ReferenceLevels:
    """Scores that need no brain signal, as the mean over the folds of a task."""

    majority: tuple[float, float, int]  # mean, SD over folds, folds; of always the same answer
    chance: float  # what a mean over folds must exceed; NaN if it is not known
    source: str  # what it is of


def reference_levels(
    conditions: Conditions, dataset: str, backbone: str, metric: str
) -> ReferenceLevels | None:
    """Return the majority-class score and the chance level of a task; None if they are not known.

    They come from the condition with most runs. The majority class is that of the training
    subjects: a constant answer with accuracy a has a weighted F1 of 2a²/(1+a). The chance level of
    accuracy is the larger of the majority class and of what the mean over folds of guesses exceeds
    in 5 % of studies; that of other metrics is the level that they are tested against.
    """
    task = [condition.runs for condition in task_conditions(conditions, dataset, backbone)]
    runs = max(task, key=len, default={})
    levels = {key: guess_level(metric, run) for key, run in runs.items()}
    if not runs or any(math.isnan(guess_level("accuracy", run)) for run in runs.values()):
        return None
    majority = mean_sd(
        list(
            mean_of_repetitions(
                {k: majority_value(metric, r.majority_accuracy, r.classes) for k, r in runs.items()}
            ).values()
        )
    )
    chance = mean_sd(list(mean_of_repetitions(levels).values()))[0]
    source = _SOURCES.get(metric, GUESSES)
    if metric == "accuracy":
        sizes = mean_of_repetitions({key: float(run.test_windows) for key, run in runs.items()})
        classes = max(run.classes for run in runs.values())
        if min(sizes.values()) >= 1:
            # Guesses of as many windows have a mean that varies as the mean over these folds does.
            windows = round(len(sizes) ** 2 / math.fsum(1 / n for n in sizes.values()))
            guessed = adjusted_chance(windows, classes)
            if guessed > chance:
                chance, source = guessed, f"{windows} guesses"
    return ReferenceLevels(majority, chance, source)


def adjusted_chance(windows: int, classes: int, level: float = LEVEL) -> float:
    """Return the accuracy that guessing on `windows` windows exceeds with probability < level.

    Windows of one trial are correlated, so the true level is higher.

    >>> adjusted_chance(100, 2)
    0.58
    """
    from scipy.stats import binom

    return float(binom.isf(level, windows, 1 / classes)) / windows


def majority_value(metric: str, accuracy: float, classes: int) -> float:
    """Return the metric of a constant answer that has this accuracy; NaN for unknown metrics.

    >>> majority_value("weighted_f1", 0.5, 2)
    0.3333333333333333
    """
    values: Mapping[str, float] = {
        "accuracy": accuracy,
        "weighted_f1": 2 * accuracy**2 / (1 + accuracy),
        "macro_f1": 2 * accuracy / (1 + accuracy) / classes,
        "balanced_accuracy": 1 / classes,
        "kappa": 0.0,
    }
    return values.get(metric, math.nan)
