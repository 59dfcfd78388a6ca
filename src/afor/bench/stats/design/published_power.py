"""Look at the paper's stars: which could be expected if the true gains were those printed?

The paper prints means and SDs over folds, not the paired differences that its test uses. Their SD
depends on the correlation between the two methods over folds, which the reader does not know, so
the power is given for a range of correlations.
"""

import math
from dataclasses import dataclass
from typing import Literal

from afor.bench.optimizers.registry import PAPER_OPTIMIZERS
from afor.bench.stats.design.power import power_of_difference, smallest_effect
from afor.bench.stats.inference.decisions import LEVEL
from afor.bench.stats.paper_numbers import published, published_results

# Correlations of two methods' fold values: from unrelated, over what is plausible, to almost equal.
CORRELATIONS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)
# In docs/results/physionet/runs.csv one method under two seeds correlates by 0.76 over folds, AFOR
# and Adam under equal seeds by 0.99.
PLAUSIBLE = (0.5, 0.99)
# Two-sided level of the paper's one-sided test at the strictest of Holm's six steps.
STAR_LEVEL = 2 * LEVEL / (len(PAPER_OPTIMIZERS) - 1)

Judgement = Literal["expected", "not expected", "needs fold values"]


@dataclass(frozen=True)
class PublishedPower:
    """The power of one of the paper's comparisons of AFOR with Adam. Points."""

    dataset: str
    backbone: str
    metric: str
    folds: int  # number of folds of the protocol
    gain: float  # printed mean of AFOR minus printed mean of Adam
    sds: tuple[float, float]  # printed SDs over folds of Adam and AFOR
    significant: bool  # whether the paper prints a star
    powers: tuple[float, ...]  # at each of `CORRELATIONS`, if the printed gain is the true one
    needed_correlation: float  # smallest with a power of 80 %; infinite if there is none

    @property
    def judgement(self) -> Judgement:
        """Whether a star could be expected over the whole plausible range, or nowhere in it."""
        lowest, highest = PLAUSIBLE
        if self.needed_correlation <= lowest:
            return "expected"
        return "not expected" if self.needed_correlation > highest else "needs fold values"


def paired_sd(sds: tuple[float, float], correlation: float) -> float:
    """Return the SD of the difference of two correlated values.

    >>> paired_sd((3.0, 4.0), 0.0)
    5.0
    """
    one, other = sds
    return math.sqrt(one**2 + other**2 - 2 * correlation * one * other)


def published_power() -> list[PublishedPower]:
    """Return the power of the paper's 24 comparisons of AFOR with Adam.

    The test is the paper's: one-sided, exact, Holm-corrected over six comparisons, at its strictest
    step (5 % over six).
    """
    printed = published_results()
    rows = []
    for (dataset, backbone, optimizer, metric), afor in printed.items():
        if optimizer != "afor":
            continue
        adam = printed[dataset, backbone, "adam", metric]
        folds = published_folds(dataset)
        gain, sds = round(afor.mean - adam.mean, 2), (adam.sd, afor.sd)
        powers = tuple(
            power_of_difference(gain, paired_sd(sds, rho), folds, STAR_LEVEL)
            for rho in CORRELATIONS
        )
        needed = _needed_correlation(gain, sds, smallest_effect(1.0, folds, STAR_LEVEL))
        rows.append(
            PublishedPower(
                dataset, backbone, metric, folds, gain, sds, afor.significant, powers, needed
            )
        )
    return rows


def expected_stars(correlation: float) -> float:
    """Return how many of the 24 comparisons are expected to get a star, at one correlation.

    >>> round(expected_stars(0.0), 1)
    6.6
    """
    return sum(
        power_of_difference(row.gain, paired_sd(row.sds, correlation), row.folds, STAR_LEVEL)
        for row in published_power()
    )


def published_folds(dataset: str) -> int:
    """Return the number of folds of the paper's protocol (Table I).

    >>> published_folds("deap"), published_folds("isruc")
    (32, 10)
    """
    sizes = published()["datasets"]["cells"][dataset]
    return int((sizes["train"] + sizes["validation"] + sizes["test"]) // sizes["test"])


def _needed_correlation(gain: float, sds: tuple[float, float], standard_effect: float) -> float:
    """Return the correlation at which the gain is the smallest that the test finds with 80 %."""
    largest_sd = gain / standard_effect
    one, other = sds
    needed = (one**2 + other**2 - largest_sd**2) / (2 * one * other)
    return math.inf if needed > 1 else max(needed, -1.0)
