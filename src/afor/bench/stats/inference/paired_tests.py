"""Compare two methods over folds: exact tests and intervals, Holm correction."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Sums closer to zero than this fraction of the sum of |differences| are ties: equal differences of
# means differ by rounding.
TIE = 1e-10
# Up to this many differences p is exact: two halves of 20 have 2**20 sums each, 8 MB.
MEET_IN_THE_MIDDLE = 40
# Beyond, sums are counted on a grid with so many parts in their standard deviation: for p, and for
# the tests of an interval, of which it needs about ten.
GRID, INTERVAL_GRID = 2**12, 2**11
# Up to this many differences an interval is read off all sorted subset means.
MAX_SORTED_FOLDS = 16
# Up to this many differences an interval uses exact p-values; beyond, the grid is faster.
MAX_EXACT_INTERVAL_FOLDS = 24


def sign_flip_p(differences: ArrayLike) -> float:
    """Return the one-sided p of a positive mean difference, under all 2**n flips of signs.

    A flipped sum reaches the observed one if and only if the flipped differences sum to zero or
    less. So p is the fraction of all subsets that do, counted with two sorted halves (SciPy
    enumerates only small n). Up to 40 differences p is exact. Beyond, it is an upper bound: with
    100 differences within 1 % of a p of 0.025, with 400 within 2 %.

    >>> sign_flip_p([1.0, 2.0, 3.0])
    0.125
    """
    values = _checked(differences)
    size = float(np.abs(values).sum())
    if size == 0:
        return 1.0
    if len(values) > MEET_IN_THE_MIDDLE:
        return _bounded_p(values, GRID)
    middle = len(values) // 2
    halves = (values[:middle], values[middle:])
    left, right = (_subset_sums(half, is_sorted=True) for half in halves)
    counts = np.searchsorted(right, TIE * size - left, side="right")
    return float(int(counts.sum()) / 2 ** len(values))


def two_sided_p(differences: ArrayLike) -> float:
    """Return the fraction of sign flips whose mean is at least as far from zero.

    >>> two_sided_p([-1.0, -2.0, -3.0])
    0.25
    """
    values = _checked(differences)
    return min(1.0, 2.0 * sign_flip_p(values if values.sum() >= 0 else -values))


def equivalence_p(differences: ArrayLike, margin: float) -> float:
    """Return p of the claim that the mean difference lies between -margin and +margin.

    Two one-sided exact tests (TOST): of a mean above -margin, and of one below +margin. The larger
    of their p-values is p.

    >>> equivalence_p([0.1, -0.1, 0.2, -0.2, 0.0], margin=1.0)
    0.03125
    """
    values = _checked(differences)
    return max(sign_flip_p(margin + values), sign_flip_p(margin - values))


def exact_interval(
    differences: ArrayLike, level: float = 0.95, *, margin: float = 0.0
) -> tuple[float, float]:
    """Return the confidence interval of the mean difference by inverting the sign-flip test.

    It holds every centre that the two one-sided tests, each at (1 - level) / 2, do not reject; it
    is infinite with too few folds to reject anything (five or fewer at 95 %). With 2**n subsets, p
    of a centre grows with the number of subset means below it, so the ends are unique: for up to 16
    differences they are two of the subset means. Beyond, they are searched to a few thousandths of
    the standard error and rounded outwards. Above 24 differences upper bounds of p are used, which
    make the interval wider by about one percent, except where that would change the answer: an end
    is always on the same side of -margin and of +margin, zero by default, as `sign_flip_p` says.

    >>> exact_interval([1.0, 2.0, 3.0])
    (-inf, inf)
    """
    values = _checked(differences)
    alpha = (1 - level) / 2
    if smallest_p(len(values)) > alpha * (1 + TIE):
        return -math.inf, math.inf
    return _lower_end(values, alpha, -margin), -_lower_end(-values, alpha, -margin)


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


def _checked(differences: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise ValueError(
            "a paired comparison needs one finite difference per fold, at least one; "
            f"got shape {values.shape}"
        )
    return values


def _subset_sums(values: NDArray[np.float64], *, is_sorted: bool = False) -> NDArray[np.float64]:
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums, sums + value])
        if is_sorted:  # merges two sorted halves, which is faster than one sort at the end
            sums.sort(kind="stable")
    return sums


def _lower_end(values: NDArray[np.float64], alpha: float, critical: float) -> float:
    """Return the smallest centre that the test of a larger mean does not reject at `alpha`.

    It is above the critical centre if and only if `sign_flip_p` rejects that one.
    """
    n = len(values)
    if n <= MAX_SORTED_FOLDS:
        # p of a centre is the share of subsets, the empty one included, whose mean is not above it.
        means = _subset_sums(values)[1:] / _subset_sums(np.ones(n))[1:]
        allowed = math.floor(alpha * 2**n * (1 + TIE))
        return float(np.partition(means, allowed - 1)[allowed - 1])
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(n)
    if error <= TIE * abs(mean):
        return mean  # equal differences
    search = _bounded_end if n > MAX_EXACT_INTERVAL_FOLDS else _exact_end
    end = search(values, alpha, mean, error)
    # Where the precision of the search could change the answer, the test itself gives it.
    if abs(end - critical) < error * math.sqrt(n) / 400:
        rejected = sign_flip_p(values - critical) < alpha
        end = max(end, math.nextafter(critical, math.inf)) if rejected else min(end, critical)
    return end


def _exact_end(values: NDArray[np.float64], alpha: float, mean: float, error: float) -> float:
    """Return the lower end of an interval to a thousandth of the standard error, by exact p."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    def above_alpha(centre: float) -> float:
        p = sign_flip_p(values - centre)
        return float(norm.ppf(min(p, 1 - TIE)) - norm.ppf(alpha))  # nearly linear in the centre

    low = mean - 4 * error
    if above_alpha(low) > 0:
        low = float(values.min()) - error  # all differences are above it: p is the smallest one
    precision = 1e-3 * error
    return float(brentq(above_alpha, low, mean, xtol=precision)) - precision


def _bounded_end(values: NDArray[np.float64], alpha: float, mean: float, error: float) -> float:
    """Return a centre that the upper bound of p rejects, and hardly any other below it does.

    The quantile of the normal distribution at p is nearly linear in the centre, so that Newton's
    method needs two or three tests from the centre at which the normal limit of p is alpha.
    """
    n, quantile = len(values), NormalDist().inv_cdf
    precision = 3e-3
    goal = -quantile(alpha) + precision / 2
    low, high = float(values.min()) - error, mean  # p is the smallest one, and at least a half
    distance = goal * math.sqrt((n - 1) / max(n - goal**2, 1.0))  # from the mean, in errors
    centre = mean - error * distance
    while high - low > precision * error:
        if not low < centre < high:
            centre = (low + high) / 2
        beyond = -quantile(min(_bounded_p(values - centre, INTERVAL_GRID), 1 - TIE)) - goal
        if abs(beyond) <= precision / 2:
            return centre
        low, high = (centre, high) if beyond > 0 else (low, centre)
        distance = (mean - centre) / error
        slope = math.sqrt(n) * (n - 1) / (n - 1 + distance**2) ** 1.5
        centre += error * beyond / slope
    return low


def _bounded_p(values: NDArray[np.float64], grid: int) -> float:
    """Return an upper bound of p from the distribution of the flipped sums on a grid.

    Each difference is rounded to the grid, of which the standard deviation of the sum is `grid`
    parts. The rounding errors have signs that are flipped with the differences. So, by Hoeffding's
    inequality, their sum exceeds t with a probability of at most exp(-t**2 / 2 / (sum of squares)),
    and p is at most this plus the probability that the rounded sum comes within t of the observed
    one. Sums far from zero, which are rare, are dropped and counted as if they reached it.
    """
    scaled = values / np.abs(values).max()
    scaled *= grid / math.sqrt(float(scaled @ scaled))
    observed, sizes = float(scaled.sum()), np.abs(scaled)
    rounded = np.rint(sizes)
    errors = np.abs(sizes - rounded)
    steps = np.sort(rounded[rounded > 0].astype(np.int64))  # small ones first: fewer sums at a time
    n, total, deviations = len(steps), int(steps.sum()), np.sqrt(np.cumsum(steps**2))
    reach = math.hypot(observed / grid, 5.5) / 2
    # The share of flips whose negative terms sum to each number; all are between low and high.
    shares = np.zeros(total + 1)
    shares[0], low, high, dropped = 1.0, 0, 1, 0.0
    for index, step in enumerate(steps.tolist()):
        flipped = shares[low + step : high + step]
        np.add(flipped, shares[low:high], out=flipped)
        high += step
        if index % 16 == 15:
            shares[low:high] /= 2**16
            middle, around = int(steps[: index + 1].sum()) / 2, reach * deviations[index]
            first, last = max(low, int(middle - around)), min(high, int(middle + around) + 1)
            dropped += float(shares[low:first].sum() + shares[last:high].sum())
            shares[last:high] = 0.0
            low, high = first, last
    reached = np.cumsum(shares[low:high]) / 2 ** (n % 16)
    squares, largest = float(errors @ errors), float(errors.sum())
    bounds = [1.0]
    for exponent in (2.5, 5.0, 10.0, 20.0, 40.0, 80.0, math.inf):
        shift = min(math.sqrt(2 * exponent * squares) if squares else 0.0, largest)
        negative = math.floor((total - observed + shift) / 2 + TIE * grid) - low
        share = float(reached[min(negative, high - low - 1)]) if negative >= 0 else 0.0
        bounds.append(share + dropped + (math.exp(-exponent) if shift < largest else 0.0))
    return min(bounds)
