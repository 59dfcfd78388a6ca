"""Compare optimizers: paired tests against a baseline, ranks, chance levels.

The decisions, and why they were taken, are explained in docs/explanation/statistics.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.registry import OPTIMIZERS, PAPER_OPTIMIZERS
from afor.bench.stats.groups import Conditions, mean_of_draws, mean_sd, paired_gains
from afor.bench.stats.labels import better_sign
from afor.bench.stats.noise_floor import noise_floor
from afor.bench.stats.paired_tests import (
    bootstrap_interval,
    effect_size,
    holm,
    sign_flip_p,
    smallest_p,
    two_sided_p,
)

LEVEL = 0.05  # Sec. V-A: p < 0.05 after Holm's correction
BASELINE = "adam"  # Sec. V-A


@dataclass(frozen=True)
class Comparison:
    """One optimizer compared with the baseline over their common folds. Fractions, not percent.

    A gain is positive if the optimizer is better, also where less of the metric is better.
    """

    dataset: str
    backbone: str
    metric: str
    optimizer: str
    baseline: str
    folds: int
    gain: float  # mean of the paired differences; positive is better
    sd: float  # of the paired differences
    wins: int
    ties: int
    losses: int
    p: float  # one-sided: the optimizer is better
    p_holm: float
    p_two_sided: float
    smallest_p: float
    family: int  # comparisons that Holm corrects for
    effect: float  # d_z
    interval: tuple[float, float]  # 95 %, BCa
    floor: float | None  # bound of the noise floor; None without A/A controls
    done: int  # runs of the two conditions together
    expected: int

    @property
    def complete(self) -> bool:
        """Whether both conditions have every run."""
        return self.done >= self.expected

    @property
    def significant(self) -> bool:
        """Whether it is significantly better; never before both conditions are complete."""
        return self.complete and self.p_holm < LEVEL

    @property
    def can_be_significant(self) -> bool:
        """Whether this number of folds can reach significance as the best of its family."""
        return self.smallest_p * self.family < LEVEL

    @property
    def inside_noise(self) -> bool | None:
        """Whether the gain lies within the noise floor; None without A/A controls."""
        return None if self.floor is None else abs(self.gain) <= self.floor


@dataclass(frozen=True)
class ReferenceLevels:
    """Scores that need no brain signal: the majority class, and guessing."""

    majority: tuple[float, float, int]  # mean, SD over folds, folds
    adjusted_chance: float  # guessing does not exceed it in 95 % of folds; accuracy only


@dataclass(frozen=True)
class Ranks:
    """Mean ranks over the blocks in which every optimizer is complete; 1 is best."""

    optimizers: tuple[str, ...]
    mean_ranks: tuple[float, ...]
    blocks: tuple[tuple[str, str, str], ...]  # dataset, backbone, metric
    critical_difference: float  # Nemenyi at 5 %; NaN for fewer than two blocks or optimizers
    friedman_p: float


def blocks_of(conditions: Conditions) -> list[tuple[str, str]]:
    """Return the (dataset, backbone) pairs in order."""
    return list(dict.fromkeys((d, b) for d, b, _ in conditions))


def main_optimizers(conditions: Conditions) -> list[str]:
    """Return the optimizers of the main table: the paper's seven and custom ones.

    Controls, ablations and varied settings have their own tables; if there is nothing else, all
    but the controls are returned.
    """
    originals = {c.optimizer: c for c in conditions.values() if not c.is_control}
    names = list(originals)
    custom = [n for n, c in originals.items() if n not in OPTIMIZERS and not c.role.varied]
    main = [n for n in names if n in PAPER_OPTIMIZERS] + custom
    return main if len(main) > 1 else names


def compare(
    conditions: Conditions,
    dataset: str,
    backbone: str,
    metric: str,
    *,
    optimizers: Sequence[str] | None = None,
    baseline: str = BASELINE,
) -> list[Comparison]:
    """Compare optimizers with the baseline in one block, Holm-corrected over all `optimizers`.

    An optimizer without a run in common with the baseline gives no comparison but still counts in
    the Holm family, so that an unfinished study is not corrected for less.
    """
    names = [o for o in optimizers or main_optimizers(conditions) if o != baseline]
    base = conditions.get((dataset, backbone, baseline))
    if base is None or not base.has(metric):
        return []
    floor = noise_floor(conditions, dataset, backbone, metric)
    paired = []
    for name in names:
        condition = conditions.get((dataset, backbone, name))
        if condition is None or not condition.has(metric):
            continue
        folds, gains = paired_gains(condition, base, metric)
        if folds:
            paired.append((condition, gains))
    p_values = [sign_flip_p(d) for _, d in paired]
    comparisons = []
    for (condition, d), p, adjusted in zip(
        paired, p_values, holm(p_values, len(names)), strict=True
    ):
        mean, sd, n = mean_sd(d.tolist())
        comparisons.append(
            Comparison(
                dataset=dataset,
                backbone=backbone,
                metric=metric,
                optimizer=condition.optimizer,
                baseline=baseline,
                folds=n,
                gain=mean,
                sd=sd,
                wins=int((d > 0).sum()),
                ties=int((d == 0).sum()),
                losses=int((d < 0).sum()),
                p=p,
                p_holm=adjusted,
                p_two_sided=two_sided_p(d),
                smallest_p=smallest_p(n),
                family=len(names),
                effect=effect_size(d),
                interval=bootstrap_interval(d),
                floor=floor.bound if floor else None,
                done=condition.done + base.done,
                expected=condition.expected + base.expected,
            )
        )
    return comparisons


def compare_all(
    conditions: Conditions,
    metrics: Sequence[str],
    *,
    optimizers: Sequence[str] | None = None,
    baseline: str = BASELINE,
) -> list[Comparison]:
    """Compare optimizers with the baseline for every data set, backbone and metric.

    Args:
        conditions: Groups of runs, from `collect_conditions`.
        metrics: Names of metrics, such as ``"accuracy"``.
        optimizers: Optimizers to compare; None compares all main ones.
        baseline: The optimizer they are compared with.

    Returns:
        One comparison for each data set, backbone, metric and optimizer. The Holm correction runs
        over the optimizers of each data set, backbone and metric.

    Raises:
        ConfigError: No optimizer has a run in common with the baseline.

    Example:
        >>> from afor.bench.stats.groups import collect_conditions
        >>> from afor.bench.stats.simulated import simulate_results
        >>> results, expected = simulate_results({"adam": 0.0, "afor": 0.02}, datasets=["deap"])
        >>> comparison = compare_all(collect_conditions(results, expected), ["accuracy"])[0]
        >>> comparison.optimizer, comparison.gain > 0, comparison.p_holm < 0.05
        ('afor', True, True)

    """
    names = optimizers or main_optimizers(conditions)
    comparisons = [
        comparison
        for dataset, backbone in blocks_of(conditions)
        for metric in metrics
        for comparison in compare(
            conditions, dataset, backbone, metric, optimizers=names, baseline=baseline
        )
    ]
    if not comparisons:
        present = ", ".join(dict.fromkeys(o for _, _, o in conditions)) or "none"
        raise ConfigError(
            f"There is nothing to compare with the baseline {baseline!r}: no other optimizer has a "
            f"finished run in the same fold and draw. Optimizers here: {present}. "
            "Choose another with --baseline, or finish the study with `afor run`."
        )
    return comparisons


def reference_levels(
    conditions: Conditions, dataset: str, backbone: str, metric: str
) -> ReferenceLevels | None:
    """Return the majority-class score and the chance level of a block.

    They come from the condition with most runs. The majority class is that of the training
    subjects: a constant answer with accuracy a has a weighted F1 of 2a²/(1+a).
    """
    block = [c for (d, b, _), c in conditions.items() if (d, b) == (dataset, backbone) and c.runs]
    if not block:
        return None
    runs = max(block, key=lambda condition: condition.done).runs
    if any(run.classes < 2 or run.test_windows < 1 for run in runs.values()):
        return None  # these columns of a file of results are optional
    majority = mean_of_draws(
        {k: majority_value(metric, run.majority_accuracy, run.classes) for k, run in runs.items()}
    )
    adjusted = mean_of_draws(
        {key: adjusted_chance(run.test_windows, run.classes) for key, run in runs.items()}
    )
    return ReferenceLevels(
        majority=mean_sd(list(majority.values())),
        adjusted_chance=mean_sd(list(adjusted.values()))[0] if metric == "accuracy" else math.nan,
    )


def adjusted_chance(windows: int, classes: int, level: float = LEVEL) -> float:
    """Return the accuracy that guessing on `windows` windows exceeds with probability < level.

    Windows of one trial are correlated, so the true level is higher.

    >>> adjusted_chance(100, 2)
    0.58
    """
    from scipy.stats import binom

    return float(binom.isf(level, windows, 1 / classes)) / windows


def mean_ranks(
    conditions: Conditions, metrics: Sequence[str], optimizers: Sequence[str] | None = None
) -> Ranks:
    """Rank optimizers by their mean in each block and average the ranks; ties share a rank."""
    from scipy.stats import friedmanchisquare, rankdata, studentized_range

    names = list(optimizers or main_optimizers(conditions))
    blocks, rows = [], []
    for dataset, backbone in blocks_of(conditions):
        members = [conditions.get((dataset, backbone, name)) for name in names]
        for metric in metrics:
            if all(
                condition is not None and condition.complete and condition.has(metric)
                for condition in members
            ):
                means = [
                    condition.summary(metric)[0] for condition in members if condition is not None
                ]
                rows.append(rankdata([-better_sign(metric) * round(mean, 12) for mean in means]))
                blocks.append((dataset, backbone, metric))
    k, n = len(names), len(rows)
    difference, p = math.nan, math.nan
    if k > 1 and n > 1:
        # Demšar 2006: the studentized range for infinite degrees of freedom, over sqrt(2).
        q = float(studentized_range.ppf(1 - LEVEL, k, math.inf)) / math.sqrt(2)
        difference = q * math.sqrt(k * (k + 1) / (6 * n))
        if k > 2 and float(np.ptp(rows)) > 0:
            p = float(friedmanchisquare(*np.array(rows).T).pvalue)
    averages = np.mean(rows, axis=0) if rows else np.full(k, math.nan)
    return Ranks(tuple(names), tuple(averages.tolist()), tuple(blocks), difference, p)


def majority_value(metric: str, accuracy: float, classes: int) -> float:
    """Return the metric of a constant answer that has this accuracy; NaN for unknown metrics.

    >>> majority_value("weighted_f1", 0.5, 2)
    0.3333333333333333
    """
    return {
        "accuracy": accuracy,
        "weighted_f1": 2 * accuracy**2 / (1 + accuracy),
        "macro_f1": 2 * accuracy / (1 + accuracy) / classes,
        "balanced_accuracy": 1 / classes,
        "kappa": 0.0,
    }.get(metric, math.nan)
