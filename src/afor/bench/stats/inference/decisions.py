"""Decide about one comparison: better, worse, equivalent within a margin, or undecided.

Two families of exact tests stand behind a decision, each corrected by Holm's method over the
comparisons of a task. The two-sided sign-flip test decides between better and worse; two one-sided
tests at the margin decide on equivalence. docs/explanation/statistics.md gives the reasons and
the simulated error rates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from afor.bench.stats.inference.paired_tests import (
    equivalence_p,
    exact_interval,
    holm,
    sign_flip_p,
    two_sided_p,
)

LEVEL = 0.05  # Sec. V-A: p < 0.05 after Holm's correction


class Decision(StrEnum):
    """What a paired comparison shows."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"
    NO_VERDICT = "no verdict"  # neither method is better than guessing


@dataclass(frozen=True)
class PairedDecision:
    """A decision about one comparison, with the evidence. Fractions, not percent."""

    folds: int  # number of paired differences
    mean: float
    sd: float  # SD of the differences, n - 1 in the denominator
    margin: float | None  # up to this difference methods are equivalent; None if not known
    interval: tuple[float, float]  # at 1 - level; without 0 if and only if p_two_sided < level
    # At 1 - 2 * level; within the margin if and only if p_equivalent < level.
    inner_interval: tuple[float, float]
    p_better: float  # one-sided p of a positive mean difference
    p_two_sided: float  # p of any difference
    p_equivalent: float  # p of equivalence; NaN without a margin
    # The same corrected over the family, and what they show; `correct_family` fills them in.
    p_different_holm: float = math.nan
    p_equivalent_holm: float = math.nan
    level: float = LEVEL
    decision: Decision = Decision.UNDECIDED

    @property
    def within_margin(self) -> bool:
        """Whether the difference is shown to be smaller than the margin, even if it is one."""
        return self.p_equivalent_holm < LEVEL


def decide(differences: ArrayLike, *, margin: float | None = None) -> PairedDecision:
    """Decide about one comparison that is not part of a family.

    >>> decide([2.0, 3.0, 2.5, 1.0, 2.0, 3.5, 1.5], margin=1.0).decision.value
    'better'
    """
    return decide_family([differences], margin=margin)[0]


def decide_family(
    differences: Sequence[ArrayLike],
    *,
    margin: float | None = None,
    family: int | None = None,
) -> list[PairedDecision]:
    """Decide about several comparisons, Holm-corrected.

    Args:
        differences: The differences of each comparison, one per fold; positive is better.
        margin: Differences up to this size count as equivalent; None makes no such decision.
        family: Number of comparisons to correct for, where some are still missing.
    """
    evidence = [
        _evidence(np.asarray(row, dtype=np.float64).tolist(), margin) for row in differences
    ]
    return correct_family(evidence, family)


def correct_family(
    evidence: Sequence[PairedDecision], family: int | None = None
) -> list[PairedDecision]:
    """Decide about comparisons from their evidence, Holm-corrected."""
    different = holm([made.p_two_sided for made in evidence], family)
    equivalent = [made.p_equivalent for made in evidence]
    if not any(map(math.isnan, equivalent)):
        equivalent = holm(equivalent, family)
    return [
        replace(
            made,
            p_different_holm=p,
            p_equivalent_holm=q,
            decision=choose_decision(made.mean, p, q),
        )
        for made, p, q in zip(evidence, different, equivalent, strict=True)
    ]


def _evidence(values: Sequence[float], margin: float | None) -> PairedDecision:
    """Return the evidence of one comparison."""
    mean = math.fsum(values) / len(values)
    p_better = sign_flip_p(values)
    return PairedDecision(
        folds=len(values),
        mean=mean,
        sd=float(np.std(values, ddof=1)) if len(values) > 1 else math.nan,
        margin=margin,
        interval=exact_interval(values, 1 - LEVEL),
        inner_interval=exact_interval(values, 1 - 2 * LEVEL, margin=margin or 0.0),
        p_better=p_better,
        p_two_sided=min(1.0, 2 * p_better) if mean > 0 else two_sided_p(values),
        p_equivalent=math.nan if margin is None else equivalence_p(values, margin),
    )


def choose_decision(mean: float, p_different: float, p_equivalent: float) -> Decision:
    """Return the decision that corrected p-values give.

    A difference can be shown and be shown to be smaller than the margin. Its sign is then known,
    so the decision is better or worse.

    >>> choose_decision(0.004, p_different=0.01, p_equivalent=0.02).value
    'better'
    """
    if p_different < LEVEL:
        return Decision.BETTER if mean > 0 else Decision.WORSE
    return Decision.EQUIVALENT if p_equivalent < LEVEL else Decision.UNDECIDED
