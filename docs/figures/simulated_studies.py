"""Decide about the comparisons of thousands of simulated studies at once, one study per row.

The other scripts of this folder and the tests of the power use it. Each function gives for a row
what the function of `afor.bench.stats.inference` without `_rows` gives.
"""

from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from afor.bench.stats.inference.decisions import LEVEL, Decision
from afor.bench.stats.inference.paired_tests import TIE, sign_flip_p

# Up to so many differences as one matrix of all subsets, or as two halves.
MAX_MATRIX_FOLDS = 10
MAX_BATCHED_FOLDS = 24


def sign_flip_p_rows(rows: ArrayLike) -> NDArray[np.float64]:
    """Return `sign_flip_p` of each row; fast enough for simulations of thousands of studies.

    >>> sign_flip_p_rows([[1.0, 2.0, 3.0], [-1.0, 2.0, 3.0]]).tolist()
    [0.125, 0.25]
    """
    values = np.asarray(rows, dtype=np.float64)
    studies, folds = values.shape
    if folds > MAX_BATCHED_FOLDS:
        return np.array([sign_flip_p(row) for row in values])
    tolerances = TIE * np.abs(values).sum(axis=1)
    middle = folds // 2 if folds > MAX_MATRIX_FOLDS else folds
    left_subsets, right_subsets = _subsets(middle), _subsets(folds - middle)
    counts = np.empty(studies)
    chunk = max(1, 2**22 // len(left_subsets))  # 32 MB of sums at a time
    for start in range(0, studies, chunk):
        part = slice(start, start + chunk)
        left = values[part, :middle] @ left_subsets.T
        if middle == folds:
            counts[part] = (left <= tolerances[part, None]).sum(axis=1)
            continue
        left.sort(axis=1)
        right = np.sort(values[part, middle:] @ right_subsets.T, axis=1)
        counts[part] = [
            np.searchsorted(ends, tolerance - sums, side="right").sum()
            for sums, ends, tolerance in zip(left, right, tolerances[part], strict=True)
        ]
    counts /= 2.0**folds
    return counts


def two_sided_p_rows(rows: ArrayLike) -> NDArray[np.float64]:
    """Return `two_sided_p` of each row."""
    values = np.asarray(rows, dtype=np.float64)
    return np.minimum(1.0, 2.0 * np.minimum(sign_flip_p_rows(values), sign_flip_p_rows(-values)))


def equivalence_p_rows(rows: ArrayLike, margin: float) -> NDArray[np.float64]:
    """Return `equivalence_p` of each row."""
    values = np.asarray(rows, dtype=np.float64)
    return np.maximum(sign_flip_p_rows(margin + values), sign_flip_p_rows(margin - values))


@cache
def _subsets(n: int) -> NDArray[np.float64]:
    """Return all 2**n subsets of n members, one per row: 1.0 where a member belongs to it."""
    return (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.float64)


def decide_rows(
    rows: ArrayLike, *, margin: float | None = None, level: float = LEVEL
) -> NDArray[np.str_]:
    """Return the decision on each row of fold differences, without intervals; for simulations.

    Level / k is the strictest level that Holm's correction over k comparisons applies.

    >>> decide_rows([[2.0, 3.0, 2.5, 1.0, 2.0, 3.5], [0.1, -0.1] * 3], margin=1.0).tolist()
    ['better', 'equivalent']
    """
    values = np.asarray(rows, dtype=np.float64)
    better, worse = sign_flip_p_rows(values), sign_flip_p_rows(-values)
    decisions = np.full(len(values), Decision.UNDECIDED.value, dtype="<U10")
    if margin is not None:
        decisions[equivalence_p_rows(values, margin) < level] = Decision.EQUIVALENT
    decisions[2 * better < level] = Decision.BETTER
    decisions[2 * worse < level] = Decision.WORSE
    return decisions
