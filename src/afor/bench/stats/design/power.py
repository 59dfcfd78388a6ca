"""Tell what a study can decide: power, the smallest detectable effect, the cheapest design.

A decision is better when the lower limit of the exact interval is above zero, and equivalent when
both limits lie within the margin. Limits move and scale with the differences, so for each number of
folds the limits of standard normal differences are simulated once (`standard_limits`), and the
power for every effect, noise and margin is a share of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from afor.bench.stats.comparisons import blocks_of
from afor.bench.stats.design.variance import (
    VarianceComponents,
    estimate_components,
    paired_differences,
)
from afor.bench.stats.groups import Conditions
from afor.bench.stats.inference.decisions import LEVEL

POWER = 0.8
EXACT_REPLICATES = 4000  # standard error of a power of 80 %: 0.6 points
T_REPLICATES = 40_000  # 0.2 points
# Up to this many folds the test is inverted exactly. Beyond, limits of the t-test are used: the
# power of the sign-flip test differs from theirs by less than a point (docs/howto/power.md).
MAX_EXACT_FOLDS = 12
MAX_FOLDS = 2000
MAX_DRAWS = 10

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """A study of two methods, what it can decide and what it costs."""

    folds: int
    draws: int  # draws of validation subjects per fold
    power: float  # probability of the wanted decision
    power_range: tuple[float, float]  # at both ends of the 95 % interval of the fold SD
    seconds: float  # time of all its runs one after another; NaN where no run's time is known


@dataclass(frozen=True)
class Goal:
    """What a study shall decide."""

    effect: float  # the true mean difference to be shown, or 0 for equivalence
    margin: float | None = None  # of equivalence; None to show a difference
    # Two-sided for a difference, one-sided at both ends for equivalence. Divided by the size of
    # the family it is the strictest of Holm's steps.
    level: float = LEVEL

    def reached(self, fold_sd: float, folds: int) -> float:
        """Return the probability of the decision."""
        if self.margin is None:
            return power_of_difference(self.effect, fold_sd, folds, self.level)
        return power_of_equivalence(self.margin, fold_sd, folds, self.level, effect=self.effect)


@dataclass(frozen=True)
class Limits:
    """Limits of the mean of standard normal differences, one value per simulated study."""

    lower: FloatArray  # lower limit of the interval that decides on a difference
    upper: FloatArray  # its upper limit
    inner_lower: FloatArray  # lower limit of the narrower interval that decides on equivalence
    inner_upper: FloatArray  # its upper limit


@dataclass(frozen=True)
class Assessment:
    """What a finished study tells about the power of one of its comparisons."""

    dataset: str
    backbone: str
    metric: str
    optimizer: str
    baseline: str
    noise: VarianceComponents  # of their difference
    seconds: float  # mean time of a run of the two; NaN where no time is known

    def fold_sd(self, draws: int) -> tuple[float, float, float]:
        """Return the SD of a fold difference over so many draws, with its 95 % interval."""
        low, high = np.quantile(self.noise.fold_variance_samples(draws), (0.025, 0.975))
        variances = (self.noise.fold_variance(draws), float(low), float(high))
        sd, sd_low, sd_high = map(math.sqrt, variances)
        return sd, sd_low, sd_high


def assess(
    conditions: Conditions, metric: str, *, baseline: str, optimizers: Sequence[str]
) -> list[Assessment]:
    """Assess every comparison with the baseline that has two or more complete folds."""
    assessments = []
    for dataset, backbone in blocks_of(conditions):
        for name in optimizers:
            differences = paired_differences(conditions, dataset, backbone, metric, name, baseline)
            if name == baseline or len(differences) < 2:
                continue
            times = [
                run.elapsed_s
                for method in (name, baseline)
                for run in conditions[dataset, backbone, method].runs.values()
                if run.elapsed_s is not None
            ]
            seconds = math.fsum(times) / len(times) if times else math.nan
            noise = estimate_components(differences)
            assessments.append(
                Assessment(dataset, backbone, metric, name, baseline, noise, seconds)
            )
    return assessments


@cache
def standard_limits(folds: int, level: float) -> Limits:
    """Simulate the limits of the exact intervals of standard normal differences.

    A lower limit is above a value if and only if the sign-flip test rejects that value: at half the
    level for a difference, at the level for equivalence. Where there are too few folds to reject
    anything, the limits are infinite.
    """
    rng = np.random.default_rng(folds)
    if folds > MAX_EXACT_FOLDS:
        from scipy.stats import t

        means = rng.standard_normal(T_REPLICATES) / math.sqrt(folds)
        errors = np.sqrt(rng.chisquare(folds - 1, T_REPLICATES) / (folds - 1) / folds)
        outer, inner = (t.isf(one_sided, folds - 1) * errors for one_sided in (level / 2, level))
        return Limits(means - outer, means + outer, means - inner, means + inner)
    # p of a centre is the share of all subsets, the empty one included, whose mean is not above
    # it. The test rejects while p is below its level, so a limit is one of the sorted means.
    subsets = (np.arange(1, 2**folds)[:, None] >> np.arange(folds) & 1).astype(np.float64)
    subsets /= subsets.sum(axis=1, keepdims=True)
    ranks = [math.ceil(one_sided * 2**folds) - 2 for one_sided in (level / 2, level)]
    defined = [rank for rank in ranks if rank >= 0]
    ends = [end for rank in defined for end in (rank, len(subsets) - 1 - rank)]
    chunks = []
    for _ in range(8):  # a part at a time, for the memory
        means = rng.standard_normal((EXACT_REPLICATES // 8, folds)) @ subsets.T
        chunks.append(np.partition(means, ends, axis=1)[:, ends] if ends else means[:, :0])
    limits = list(np.concatenate(chunks).T)
    never = np.full(EXACT_REPLICATES, math.inf)
    while len(limits) < 4:
        limits = [-never, never, *limits]
    return Limits(*limits)


def power_of_difference(effect: float, fold_sd: float, folds: int, level: float = LEVEL) -> float:
    """Return the probability that a true difference is found, with its sign, at a two-sided level.

    >>> power_of_difference(1.0, 1.0, 4), power_of_difference(1.0, 1.0, 20) > 0.95
    (0.0, True)
    """
    return float(np.mean(standard_limits(folds, level).lower * fold_sd + abs(effect) > 0))


def power_of_equivalence(
    margin: float, fold_sd: float, folds: int, level: float = LEVEL, *, effect: float = 0.0
) -> float:
    """Return the probability that the decision is equivalent; each of the two tests has the level.

    It cannot exceed 1 - level for equal methods: a difference that is shown goes before.
    """
    limits = standard_limits(folds, level)
    above = limits.inner_lower * fold_sd + effect > -margin
    below = limits.inner_upper * fold_sd + effect < margin
    holds_zero = (limits.lower * fold_sd + effect <= 0) & (limits.upper * fold_sd + effect >= 0)
    return float(np.mean(above & below & holds_zero))


def smallest_effect(
    fold_sd: float, folds: int, level: float = LEVEL, *, power: float = POWER
) -> float:
    """Return the smallest true difference that is found with the given power.

    >>> smallest_effect(1.0, 5), round(smallest_effect(1.0, 100), 2)
    (inf, 0.28)
    """
    needed = -standard_limits(folds, level).lower
    return fold_sd * float(np.quantile(needed, power, method="higher"))


def smallest_margin(
    fold_sd: float, folds: int, level: float = LEVEL, *, power: float = POWER
) -> float:
    """Return the smallest margin within which two equal methods are found equivalent."""
    limits = standard_limits(folds, level)
    needed = np.maximum(-limits.inner_lower, limits.inner_upper)
    needed = np.where((limits.lower > 0) | (limits.upper < 0), math.inf, needed)
    return fold_sd * float(np.quantile(needed, power, method="higher"))


def fewest_folds(level: float = LEVEL) -> int:
    """Return the fewest folds with which an exact two-sided test can reject at all.

    >>> fewest_folds()
    6
    """
    return math.floor(math.log2(2 / level)) + 1


def folds_for(goal: Goal, fold_sd: float, *, power: float = POWER) -> int | None:
    """Return the fewest folds that reach a goal; None if even `MAX_FOLDS` do not."""
    few, enough = 1, MAX_FOLDS
    if goal.reached(fold_sd, enough) < power:
        return None
    while enough - few > 1:
        middle = (few + enough) // 2
        if goal.reached(fold_sd, middle) >= power:
            enough = middle
        else:
            few = middle
    return enough


def cheapest_design(
    noise: VarianceComponents, goal: Goal, *, seconds: float = math.nan, power: float = POWER
) -> Design | None:
    """Return the design of two methods that reaches a goal in the least time, or None.

    A run trains on the other folds, so its time is taken to grow with the number of folds. `noise`
    and `seconds`, the mean time of a run, come from a pilot; a pilot with one draw cannot tell what
    further draws bring, so only one is considered then.
    """
    designs = []
    for draws in range(1, (MAX_DRAWS if noise.draws > 1 else 1) + 1):
        sd = math.sqrt(noise.fold_variance(draws))
        folds = folds_for(goal, sd, power=power)
        if folds is not None:
            cost = study_seconds(noise, folds, draws, seconds)
            open_sds = np.sqrt(np.quantile(noise.fold_variance_samples(draws), (0.975, 0.025)))
            low, high = (goal.reached(float(end), folds) for end in open_sds)
            designs.append(Design(folds, draws, goal.reached(sd, folds), (low, high), cost))
    unit = [study_seconds(noise, design.folds, design.draws, 1.0) for design in designs]
    return designs[int(np.argmin(unit))] if designs else None


def study_seconds(
    noise: VarianceComponents, folds: int, draws: int, seconds: float, *, methods: int = 2
) -> float:
    """Return the time of a study whose runs grow with the number of folds, as those of a pilot."""
    return methods * folds * draws * seconds * folds / noise.folds


def power_grid(
    noise: VarianceComponents, goal: Goal, folds: Sequence[int], draws: Sequence[int]
) -> FloatArray:
    """Return the power by (folds, draws)."""
    sds = [math.sqrt(noise.fold_variance(r)) for r in draws]
    return np.array([[goal.reached(sd, n) for sd in sds] for n in folds])
