"""Compare two methods over folds: exact tests, Holm correction, effect size, interval."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Sums closer to zero than this fraction of the sum of |differences| are ties: equal differences of
# means differ by rounding.
TIE = 1e-10
# Up to this many differences p is exact: two halves of 20 have 2**20 sums each, 8 MB.
MEET_IN_THE_MIDDLE = 40
GRID = 2**14
RESAMPLES = 10_000


def sign_flip_p(differences: ArrayLike) -> float:
    """Return the one-sided p of a positive mean difference, under all 2**n flips of signs.

    A flipped sum reaches the observed one if and only if the flipped differences sum to zero or
    less. So p is the fraction of all subsets that do, counted with two sorted halves (SciPy
    enumerates only small n). Up to 40 differences p is exact. Beyond, differences are rounded down
    to a grid of 1/16384 of the largest, which gives an upper bound, within one percent in practice.

    >>> sign_flip_p([1.0, 2.0, 3.0])
    0.125
    """
    values = _checked(differences)
    size = float(np.abs(values).sum())
    if size == 0:
        return 1.0
    if len(values) > MEET_IN_THE_MIDDLE:
        return _bounded_p(values)
    middle = len(values) // 2
    left, right = (np.sort(_subset_sums(half)) for half in (values[:middle], values[middle:]))
    counts = np.searchsorted(right, TIE * size - left, side="right")
    return float(int(counts.sum()) / 2 ** len(values))


def two_sided_p(differences: ArrayLike) -> float:
    """Return the fraction of sign flips whose mean is at least as far from zero.

    >>> two_sided_p([-1.0, -2.0, -3.0])
    0.25
    """
    values = _checked(differences)
    return min(1.0, 2.0 * sign_flip_p(values if values.sum() >= 0 else -values))


def smallest_p(n: int) -> float:
    """Return the smallest one-sided p that n folds can give.

    >>> smallest_p(9)
    0.001953125
    """
    return 0.5**n


def holm(p_values: Sequence[float], family: int | None = None) -> list[float]:
    """Return Holm's adjusted p-values; `family` also counts comparisons that are still missing.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    size = max(family or 0, len(p_values))
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (size - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def effect_size(differences: ArrayLike) -> float:
    """Return the paired effect size d_z: mean over SD of the differences; NaN where undefined.

    >>> effect_size([1.0, 2.0, 3.0])
    2.0
    """
    values = _checked(differences)
    sd = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    # The spread of equal differences is rounding, not zero.
    return float(values.mean()) / sd if sd > TIE * float(np.abs(values).max()) else math.nan


def bootstrap_interval(
    differences: ArrayLike, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """Return the BCa bootstrap interval of the mean difference, resampling folds.

    BCa corrects the percentiles for bias and skew.

    Args:
        differences: One difference per fold.
        level: Confidence level.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resampling; the same seed gives the same interval.

    Returns:
        Lower and upper end. One fold, or equal differences, have no spread to resample and give
        an interval of width zero.

    """
    from scipy.stats import bootstrap

    values = _checked(differences)
    mean = float(values.mean())
    if len(values) < 2 or float(np.ptp(values)) <= TIE * float(np.abs(values).max()):
        return mean, mean
    interval = bootstrap(
        (values,), np.mean, confidence_level=level, n_resamples=resamples, method="BCa", rng=seed
    ).confidence_interval
    return float(interval.low), float(interval.high)


def _checked(differences: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise ValueError(
            "a paired comparison needs one finite difference per fold, at least one; "
            f"got shape {values.shape}"
        )
    return values


def _subset_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums, sums + value])
    return sums


def _bounded_p(values: NDArray[np.float64]) -> float:
    """Return an upper bound of p from the distribution of subset sums on a grid."""
    steps = np.floor(values / np.abs(values).max() * GRID).astype(np.int64)
    zero = int(-steps[steps < 0].sum())
    chances = np.zeros(zero + int(steps[steps > 0].sum()) + 1)
    chances[zero] = 1.0
    for step in steps[steps != 0]:
        moved = np.zeros_like(chances)
        if step > 0:
            moved[step:] = chances[:-step]
        else:
            moved[:step] = chances[-step:]
        chances = (chances + moved) / 2
    return float(min(1.0, chances[: zero + 1].sum()))
