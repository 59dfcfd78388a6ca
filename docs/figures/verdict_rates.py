"""Print how often each verdict is given in simulated studies, for docs/explanation/statistics.md.

python docs/figures/verdict_rates.py            # 4000 studies per cell
python docs/figures/verdict_rates.py 1000       # fewer, faster
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from simulated_studies import decide_rows, equivalence_p_rows, two_sided_p_rows

from afor.bench.stats.design.power import Goal, folds_for
from afor.bench.stats.inference.decisions import LEVEL, Decision
from afor.bench.stats.inference.paired_tests import holm

MARGIN = 1.0  # in units of the SD of the fold differences
FOLDS = (6, 9, 20)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Family:
    """Shares of simulated studies in which at least one of several verdicts is wrong."""

    false_difference: float  # better or worse of an equal optimizer, or the wrong direction
    false_equivalence: float  # said to be smaller than the margin, but it is not


def _unequal_variances(rng: Generator, shape: tuple[int, int]) -> Array:
    scales = np.geomspace(1, 10, shape[1])
    return np.asarray(rng.normal(size=shape) * scales / np.sqrt(np.mean(scales**2)))


# Noise around the true difference, with mean 0 and SD 1. The last is not symmetric, which the
# sign-flip test assumes.
NOISES: Mapping[str, Callable[[Generator, tuple[int, int]], Array]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "heavy tails": lambda rng, shape: np.asarray(rng.standard_t(3, size=shape) / np.sqrt(3)),
    "unequal variances": _unequal_variances,
    # Steps of half an SD, as few test windows give: a fifth of the differences are zero.
    "ties": lambda rng, shape: np.round(2 * rng.normal(size=shape)) / 2,
    "skewed": lambda rng, shape: rng.exponential(size=shape) - 1,
}


def simulate_differences(
    shape: str,
    *,
    studies: int,
    folds: int,
    effect: float = 0.0,
    sd: float = 1.0,
    run_sd: float = 0.0,
    repetitions: int = 1,
    seed: int = 0,
) -> Array:
    """Draw the fold differences of many studies, one study per row.

    Args:
        shape: The noise between folds, one of `NOISES`.
        studies: Number of studies.
        folds: Number of folds.
        effect: True mean difference.
        sd: SD of the noise between folds.
        run_sd: SD of the noise of one run; a fold averages its repetitions.
        repetitions: Repetitions per fold.
        seed: Seed of the simulation.

    >>> simulate_differences("normal", studies=3, folds=9).shape
    (3, 9)
    """
    rng = np.random.default_rng(seed)
    noise = sd * NOISES[shape](rng, (studies, folds))
    within = run_sd / np.sqrt(repetitions) * rng.normal(size=(studies, folds))
    return np.asarray(effect + noise + within)


def verdict_rates(
    differences: Array, margin: float | None, level: float = LEVEL
) -> dict[Decision, float]:
    """Return the share of the studies with each verdict.

    >>> rates = verdict_rates(simulate_differences("normal", studies=200, folds=9, effect=3), 1.0)
    >>> rates[Decision.BETTER]
    1.0
    """
    decisions = decide_rows(differences, margin=margin, level=level)
    return {decision: float((decisions == decision.value).mean()) for decision in Decision}


def equivalence_rate(differences: Array, margin: float, level: float = LEVEL) -> float:
    """Return the share of the studies that show a difference smaller than the margin.

    It holds the verdict equivalent, and better or worse "by less than" the margin.
    """
    return float((equivalence_p_rows(differences, margin) < level).mean())


def family_rates(
    effects: Array, *, studies: int, folds: int, margin: float, shape: str = "normal", seed: int = 0
) -> Family:
    """Simulate several optimizers against one baseline, with Holm's correction over all of them.

    `effects` are their true differences from the baseline, whose noise they share.
    """
    rng = np.random.default_rng(seed)
    base = NOISES[shape](rng, (studies, folds))
    rows = [effect + NOISES[shape](rng, (studies, folds)) - base for effect in effects]
    different = np.array([two_sided_p_rows(row) for row in rows])
    equivalent = np.array([equivalence_p_rows(row, margin) for row in rows])
    wrong_difference = wrong_equivalence = 0
    for study in range(studies):
        p_different = holm(different[:, study].tolist())
        p_equivalent = holm(equivalent[:, study].tolist())
        wrong_difference += any(
            p < LEVEL and rows[i][study].mean() * effects[i] <= 0 for i, p in enumerate(p_different)
        )
        wrong_equivalence += any(
            p < LEVEL and abs(effects[i]) >= margin for i, p in enumerate(p_equivalent)
        )
    return Family(wrong_difference / studies, wrong_equivalence / studies)


def percent(share):
    return f"{100 * share:.1f}"


def print_single(studies):
    """Print the table of one comparison."""
    print("| noise | folds | false difference | false equivalence | power: difference | "
          "power: equivalence |")  # fmt: skip
    print("|---|---:|---:|---:|---:|---:|")
    for shape in NOISES:
        for folds in FOLDS:
            equal, higher, lower = (
                simulate_differences(shape, studies=studies, folds=folds, effect=effect, seed=folds)
                for effect in (0.0, MARGIN, -MARGIN)
            )
            at_zero, at_margin = verdict_rates(equal, MARGIN), verdict_rates(higher, MARGIN)
            cells = [
                at_zero[Decision.BETTER] + at_zero[Decision.WORSE],
                max(equivalence_rate(higher, MARGIN), equivalence_rate(lower, MARGIN)),
                at_margin[Decision.BETTER],
                at_zero[Decision.EQUIVALENT],
            ]
            print(f"| {shape} | {folds} | {' | '.join(map(percent, cells))} |")


def print_family(studies):
    """Print the table of six comparisons with one baseline."""
    print("\n| six optimizers, 9 folds | a false difference | a false equivalence |")
    print("|---|---:|---:|")
    margin = 3.0  # in SDs of one optimizer's folds: wide enough for equivalence to be shown
    cases = {
        "all equal to the baseline": [0.0] * 6,
        "all at the margin": [margin] * 6,
        "three equal, three at the margin": [0.0, margin] * 3,
    }
    for name, effects in cases.items():
        family = family_rates(np.array(effects), studies=studies, folds=9, margin=margin, seed=1)
        rates = [family.false_difference, family.false_equivalence]
        print(f"| {name} | {' | '.join(map(percent, rates))} |")


def print_sizes(studies):
    """Print the power with as many folds as `folds_for` says for 80 %."""
    print("\n| SD over margin | folds for a difference | power | folds for equivalence | power |")
    print("|---:|---:|---:|---:|---:|")
    for sd in (0.75, 1.0, 1.4):
        difference = folds_for(Goal(MARGIN), sd)
        equal = folds_for(Goal(0.0, MARGIN), sd)
        rates = [
            verdict_rates(
                simulate_differences(
                    "normal", studies=studies, folds=folds, effect=effect, sd=sd, seed=folds
                ),
                MARGIN,
            )
            for folds, effect in ((difference, MARGIN), (equal, 0.0))
        ]
        better, equivalent = rates[0][Decision.BETTER], rates[1][Decision.EQUIVALENT]
        print(f"| {sd:g} | {difference} | {percent(better)} | {equal} | {percent(equivalent)} |")


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    print_single(number)
    print_family(number)
    print_sizes(number)
