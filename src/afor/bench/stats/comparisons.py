"""Compare methods: paired tests against a baseline, and ranks.

The decisions, and why they were taken, are explained in docs/explanation/statistics.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from afor.bench.stats.design.variance import (
    VarianceComponents,
    estimate_components,
    paired_differences,
)
from afor.bench.stats.groups import (
    Condition,
    Conditions,
    paired_fold_values,
)
from afor.bench.stats.guessing import Learned, learned
from afor.bench.stats.inference.decisions import LEVEL, Decision, PairedDecision, decide_family
from afor.bench.stats.inference.paired_tests import TIE, holm, smallest_p
from afor.bench.stats.labels import margin_of, metric_style

BASELINE = "adam"  # Sec. V-A


@dataclass(frozen=True)
class PairedFold:
    """One fold of a comparison: the means over the repetitions that both methods have."""

    fold: int
    subjects: tuple[str, ...]
    ours: float
    theirs: float
    gain: float  # positive is better, also where less of the metric is better

    @property
    def label(self) -> str:
        """The subject, or the number of a fold with several subjects."""
        return self.subjects[0] if len(self.subjects) == 1 else f"fold {self.fold}"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A comparison of a method with the baseline, on one task or over several.

    Fractions, not percent. A gain is positive if the method is better, also where less of the
    metric is better.
    """

    metric: str
    method: str
    baseline: str
    evidence: PairedDecision  # intervals, two-sided and equivalence tests, decision
    gains: tuple[float, ...]  # of each fold, or of each task
    family: int  # comparisons that Holm corrects for
    done: int  # runs of both methods together
    expected: int

    @property
    def won_tied_lost(self) -> tuple[int, int, int]:
        """Number of folds, or of tasks, on which the method is better, equal and worse."""
        signs = [(gain > 0) - (gain < 0) for gain in self.gains]
        return signs.count(1), signs.count(0), signs.count(-1)

    @property
    def gain(self) -> float:
        """Mean of the paired differences."""
        return self.evidence.mean

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the gain."""
        return self.evidence.interval

    @property
    def complete(self) -> bool:
        """Whether both methods have every run."""
        return self.done >= self.expected

    @property
    def decision(self) -> Decision | None:
        """The verdict; None before all runs are there."""
        return self.evidence.decision if self.complete else None


@dataclass(frozen=True, kw_only=True)
class Comparison(Judged):
    """One method compared with the baseline over their common folds."""

    dataset: str
    backbone: str
    pairs: tuple[PairedFold, ...]
    p_holm: float  # one-sided, as the paper's star
    learned: Learned | None  # whether the method is better than guessing; None if not known
    base_learned: Learned | None  # whether the baseline is
    # By (fold, repetition, seed), of the folds that have all of them; what `power` plans with.
    differences: NDArray[np.float64] = field(repr=False, compare=False)

    @property
    def folds(self) -> int:
        """Number of common folds."""
        return self.evidence.folds

    @property
    def effect(self) -> float:
        """The paired effect size d_z: mean over SD of the differences; NaN without spread."""
        spread = self.evidence.sd
        largest = max(map(abs, self.gains))
        return self.gain / spread if spread > 1e-10 * largest else math.nan

    @property
    def decision(self) -> Decision | None:
        """The verdict; None before both methods are complete."""
        return Decision.NO_VERDICT if self.complete and self.is_blind else super().decision

    @property
    def is_blind(self) -> bool:
        """Whether neither side is better than guessing, so that nothing can be said of the two."""
        sides = (self.learned, self.base_learned)
        return all(side is not None and side.above is False for side in sides)

    @property
    def significant(self) -> bool:
        """Whether the paper's one-sided test gives a star; never before all runs are there."""
        return self.complete and not self.is_blind and self.p_holm < LEVEL

    @property
    def can_be_significant(self) -> bool:
        """Whether this number of folds can show a difference as the clearest of its family."""
        return 2 * smallest_p(self.folds) * self.family < LEVEL

    @cached_property
    def noise(self) -> VarianceComponents | None:
        """Where the variance of the differences comes from; None with fewer than two folds."""
        return estimate_components(self.differences) if len(self.differences) > 1 else None


@dataclass(frozen=True)
class Ranks:
    """Mean ranks by one metric over the tasks in which every method is complete; 1 is best."""

    metric: str
    methods: tuple[str, ...]
    mean_ranks: tuple[float, ...]
    tasks: tuple[tuple[str, str], ...]  # dataset, backbone
    critical_difference: float  # Nemenyi at 5 %; NaN for fewer than two tasks or methods
    friedman_p: float


def tasks_of(conditions: Conditions) -> list[tuple[str, str]]:
    """Return the tasks, pairs of (data set, backbone), in order."""
    return list(dict.fromkeys((d, b) for d, b, _ in conditions))


def main_methods(conditions: Conditions) -> list[str]:
    """Return the methods that are compared: all but replicates and the controls of the study.

    If that leaves fewer than two, the controls are compared too.
    """
    names = [c.method for c in conditions.values() if not c.is_control]
    if len(set(names)) < 2:
        names = [c.method for c in conditions.values() if not c.is_replicate]
    return list(dict.fromkeys(names))


def control_methods(conditions: Conditions) -> list[str]:
    """Return the methods that are listed but not compared: replicates and controls."""
    main = main_methods(conditions)
    return list(dict.fromkeys(o for _, _, o in conditions if o not in main))


def compare(
    conditions: Conditions,
    dataset: str,
    backbone: str,
    metric: str,
    *,
    methods: Sequence[str] | None = None,
    baseline: str = BASELINE,
) -> list[Comparison]:
    """Compare methods with the baseline in one task, Holm-corrected over all `methods`.

    A method without a run in common with the baseline gives no comparison but still counts in
    the Holm family, so that an unfinished study is not corrected for less.
    """
    names = [o for o in methods or main_methods(conditions) if o != baseline]
    base = conditions.get((dataset, backbone, baseline))
    if base is None or not base.has(metric):
        return []
    paired = []
    for name in names:
        condition = conditions.get((dataset, backbone, name))
        if condition is None or not condition.has(metric):
            continue
        if pairs := _pairs(condition, base, metric):
            paired.append((condition, pairs))
    gains = [[pair.gain for pair in pairs] for _, pairs in paired]
    margin = margin_of(metric, base.margins)
    decisions = decide_family(gains, margin=margin, family=len(names))
    base_learned = learned(base, metric) if paired else None
    one_sided = holm([made.p_better for made in decisions], len(names))
    return [
        Comparison(
            dataset=dataset,
            backbone=backbone,
            metric=metric,
            method=condition.method,
            baseline=baseline,
            evidence=made,
            gains=tuple(pair.gain for pair in pairs),
            pairs=pairs,
            p_holm=p_holm,
            family=len(names),
            done=condition.done + base.done,
            expected=condition.expected + base.expected,
            learned=learned(condition, metric),
            base_learned=base_learned,
            differences=paired_differences(
                conditions, dataset, backbone, metric, condition.method, baseline
            ),
        )
        for (condition, pairs), made, p_holm in zip(paired, decisions, one_sided, strict=True)
    ]


def _pairs(condition: Condition, base: Condition, metric: str) -> tuple[PairedFold, ...]:
    """Return the folds that two conditions share; gains that are equal but for rounding are 0."""
    subjects = {fold: run.test_subjects for (fold, _), run in condition.runs.items()}
    folds, ours, theirs = paired_fold_values(condition, base, metric)
    gains = metric_style(metric).sign * (ours - theirs)
    gains[np.abs(gains) <= TIE * np.maximum(np.abs(ours), np.abs(theirs))] = 0.0
    rows = zip(folds, ours.tolist(), theirs.tolist(), gains.tolist(), strict=True)
    return tuple(PairedFold(fold, subjects[fold], a, b, gain) for fold, a, b, gain in rows)


def mean_ranks(conditions: Conditions, metric: str, methods: Sequence[str] | None = None) -> Ranks:
    """Rank methods by their mean in each task and average the ranks; ties share a rank.

    A task is a data set and a backbone. Two metrics of the same runs are no two tasks.
    """
    from scipy.stats import friedmanchisquare, rankdata, studentized_range

    names = list(methods or main_methods(conditions))
    tasks, rows = [], []
    for dataset, backbone in tasks_of(conditions):
        members = [conditions.get((dataset, backbone, name)) for name in names]
        if all(c is not None and c.complete and c.has(metric) for c in members):
            means = [c.summary(metric)[0] for c in members if c is not None]
            rows.append(rankdata([-metric_style(metric).sign * round(mean, 12) for mean in means]))
            tasks.append((dataset, backbone))
    k, n = len(names), len(rows)
    difference, p = math.nan, math.nan
    if k > 1 and n > 1:
        # Demšar 2006: the studentized range for infinite degrees of freedom, over sqrt(2).
        q = float(studentized_range.ppf(1 - LEVEL, k, math.inf)) / math.sqrt(2)
        difference = q * math.sqrt(k * (k + 1) / (6 * n))
        if k > 2 and float(np.ptp(rows)) > 0:
            p = float(friedmanchisquare(*np.array(rows).T).pvalue)
    averages = np.mean(rows, axis=0) if rows else np.full(k, math.nan)
    return Ranks(metric, tuple(names), tuple(averages.tolist()), tuple(tasks), difference, p)
