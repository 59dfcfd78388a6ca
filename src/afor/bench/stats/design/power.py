"""Tell what a study can decide: power, the minimum detectable effect, the cheapest design.

A decision is better when the lower limit of the exact interval is above zero, and equivalent when
both limits lie within the margin. With few folds the limits of standard normal differences are
simulated once (`standard_limits`), and the power for every effect, noise and margin is a share of
them. With more folds the power is that of the paired t-test, from its distribution.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError
from afor.bench.stats.comparisons import Comparison
from afor.bench.stats.design.variance import VarianceComponents
from afor.bench.stats.inference.decisions import LEVEL

POWER = 0.8
EXACT_REPLICATES = 4000  # standard error of a power of 80 %: 0.6 points
# Up to this many folds the test is inverted exactly. Beyond, the power is that of the t-test, from
# which that of the sign-flip test differs by less than a point (docs/howto/power.md).
MAX_EXACT_FOLDS = 12
SPREADS = 400  # points of the distribution of the estimated SD
MAX_FOLDS = 2000
SMALLEST_SD = 1e-150  # stands for none, so that limits without end stay so
MAX_REPETITIONS = 10

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """A study of two methods, what it can decide and what it costs."""

    folds: int
    repetitions: int  # repetitions per fold, each with other validation subjects
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


def noise_of(comparison: Comparison) -> VarianceComponents:
    """Return the noise of a comparison; raise ConfigError with fewer than two complete folds."""
    if comparison.noise is None:
        raise ConfigError(
            f"{comparison.method} and {comparison.baseline} on {comparison.dataset}/"
            f"{comparison.backbone} have fewer than two folds with every repetition."
        )
    return comparison.noise


def fold_sd(noise: VarianceComponents, repetitions: int, share: float = 0.95) -> tuple[float, ...]:
    """Return the SD of the paired differences over so many repetitions, with its interval."""
    ends = np.quantile(noise.fold_variance_samples(repetitions), ((1 - share) / 2, (1 + share) / 2))
    return tuple(map(math.sqrt, (noise.fold_variance(repetitions), *ends.tolist())))


def needed_folds(comparison: Comparison, effect: float | None = None) -> tuple[int, int] | None:
    """Return the range of folds that settle a comparison with a power of 80 %.

    Args:
        comparison: What was measured.
        effect: The difference to show; None takes the margin, and folds that show such a
            difference or, if there is none, equivalence.

    Returns:
        The numbers at the two ends of the 80 % interval of the noise, Holm-corrected as the
        comparison was. None without a margin, with fewer than six folds, beyond `MAX_FOLDS`, or
        if neither method is better than guessing.
    """
    margin, noise = comparison.evidence.margin, comparison.noise
    size = margin if effect is None else abs(effect)
    if comparison.is_blind or not size or noise is None or noise.folds < fewest_folds():
        return None
    level = LEVEL / comparison.family
    goals = [Goal(size, level=level)]
    if effect is None:
        goals.append(Goal(0.0, margin, level))
    _, low, high = fold_sd(noise, noise.repetitions, 0.8)
    numbers = [[folds_for(goal, sd) for goal in goals] for sd in (low, high)]
    fewest, most = ([n for n in of_end if n is not None] for of_end in numbers)
    if len(fewest) < len(goals) or len(most) < len(goals):
        return None
    return max(fewest), max(most)


@cache
def standard_limits(folds: int, level: float) -> FloatArray:
    """Simulate the limits of the exact intervals of standard normal differences.

    A lower limit is above a value if and only if the sign-flip test rejects that value: at half the
    level for a difference, at the level for equivalence. Where there are too few folds to reject
    anything, the limits are infinite.

    Returns:
        Both limits of the interval that decides on a difference, and both of the narrower one that
        decides on equivalence, each with one value per simulated study.
    """
    rng = np.random.default_rng(folds)
    # p of a centre is the share of all subsets, the empty one included, whose mean is not above
    # it. The test rejects while p is below its level, so a limit is one of the sorted means.
    subsets = (np.arange(1, 2**folds)[:, None] >> np.arange(folds) & 1).astype(np.float64)
    subsets /= subsets.sum(axis=1, keepdims=True)
    limits = np.repeat([[-math.inf], [math.inf]] * 2, EXACT_REPLICATES, axis=1)
    ranks = [math.ceil(one_sided * 2**folds) - 2 for one_sided in (level / 2, level)]
    ends = [end for rank in ranks if rank >= 0 for end in (rank, len(subsets) - 1 - rank)]
    if ends:
        for part in np.array_split(np.arange(EXACT_REPLICATES), 8):  # for the memory
            means = rng.standard_normal((len(part), folds)) @ subsets.T
            limits[-len(ends) :, part] = np.partition(means, ends, axis=1)[:, ends].T
    return limits


def power_of_difference(effect: float, fold_sd: float, folds: int, level: float = LEVEL) -> float:
    """Return the probability that a true difference is found, with its sign, at a two-sided level.

    >>> power_of_difference(1.0, 1.0, 4), power_of_difference(1.0, 1.0, 20) > 0.95
    (0.0, True)
    """
    fold_sd = max(fold_sd, SMALLEST_SD)
    if folds <= MAX_EXACT_FOLDS:
        return float(np.mean(standard_limits(folds, level)[0] * fold_sd + abs(effect) > 0))
    from scipy.special import nctdtr

    shift = min(abs(effect) / fold_sd * math.sqrt(folds), 30.0)  # beyond any doubt
    return float(1 - nctdtr(folds - 1, shift, _t_limits(folds, level)[0]))


def power_of_equivalence(
    margin: float, fold_sd: float, folds: int, level: float = LEVEL, *, effect: float = 0.0
) -> float:
    """Return the probability that the decision is equivalent; each of the two tests has the level.

    It cannot exceed 1 - level for equal methods: a difference that is shown goes before.
    """
    fold_sd = max(fold_sd, SMALLEST_SD)
    if folds <= MAX_EXACT_FOLDS:
        low, high, inner_low, inner_high = standard_limits(folds, level) * fold_sd + effect
        is_within = (inner_low > -margin) & (inner_high < margin)
        return float(np.mean(is_within & (low <= 0) & (high >= 0)))
    from scipy.special import ndtr

    error = fold_sd / math.sqrt(folds)
    outer, inner, spreads = _t_limits(folds, level)
    # For each estimated SD, the means that are within the margin and not shown to differ from zero.
    half = np.maximum(np.minimum(margin - inner * error * spreads, outer * error * spreads), 0.0)
    return float(np.mean(ndtr((half - effect) / error) - ndtr((-half - effect) / error)))


@cache
def _t_limits(folds: int, level: float) -> tuple[float, float, FloatArray]:
    """Return the quantiles of both intervals, and the estimated SD over the true one in steps."""
    from scipy.special import gammaincinv, stdtrit

    freedom = folds - 1
    shares = (np.arange(SPREADS) + 0.5) / SPREADS
    spreads = np.sqrt(2 * gammaincinv(freedom / 2, shares) / freedom)
    outer, inner = (float(stdtrit(freedom, 1 - one_sided)) for one_sided in (level / 2, level))
    return outer, inner, spreads


def smallest_effect(
    fold_sd: float, folds: int, level: float = LEVEL, *, power: float = POWER
) -> float:
    """Return the minimum detectable effect: the smallest that is found with the given power.

    >>> smallest_effect(1.0, 5), round(smallest_effect(1.0, 100), 2)
    (inf, 0.28)
    """
    return fold_sd * _smallest(lambda size: power_of_difference(size, 1.0, folds, level), power)


def smallest_margin(
    fold_sd: float, folds: int, level: float = LEVEL, *, power: float = POWER
) -> float:
    """Return the smallest margin within which two equal methods are found equivalent."""
    return fold_sd * _smallest(lambda size: power_of_equivalence(size, 1.0, folds, level), power)


def _smallest(reached: Callable[[float], float], power: float) -> float:
    """Return the smallest size, in SDs, with the given power; infinite if there is none."""
    from scipy.optimize import brentq

    if reached(100.0) < power:
        return math.inf
    return float(brentq(lambda size: reached(size) - power, 0.0, 100.0, xtol=1e-9))


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
    and `seconds`, the mean time of a run, come from a pilot; a pilot with one repetition cannot
    tell what further repetitions bring, so only one is considered then.
    """
    designs = []
    for repetitions in range(1, (MAX_REPETITIONS if noise.repetitions > 1 else 1) + 1):
        sd = math.sqrt(noise.fold_variance(repetitions))
        folds = folds_for(goal, sd, power=power)
        if folds is not None:
            cost = study_seconds(noise, folds, repetitions, seconds)
            _, quiet, loud = fold_sd(noise, repetitions)
            low, high = goal.reached(loud, folds), goal.reached(quiet, folds)
            designs.append(Design(folds, repetitions, goal.reached(sd, folds), (low, high), cost))
    unit = [study_seconds(noise, design.folds, design.repetitions, 1.0) for design in designs]
    return designs[int(np.argmin(unit))] if designs else None


def study_seconds(
    noise: VarianceComponents, folds: int, repetitions: int, seconds: float, *, methods: int = 2
) -> float:
    """Return the time of a study whose runs grow with the number of folds, as those of a pilot."""
    return methods * folds * repetitions * seconds * folds / noise.folds


def power_grid(
    noise: VarianceComponents, goal: Goal, folds: Sequence[int], repetitions: Sequence[int]
) -> FloatArray:
    """Return the power by (folds, repetitions)."""
    sds = [math.sqrt(noise.fold_variance(r)) for r in repetitions]
    return np.array([[goal.reached(sd, n) for sd in sds] for n in folds])
