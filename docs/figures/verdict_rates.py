"""Print how often each verdict is given in simulated studies, for docs/explanation/statistics.md.

python docs/figures/verdict_rates.py            # 4000 studies per cell
python docs/figures/verdict_rates.py 1000       # fewer, faster
"""

import sys

import numpy as np

from afor.bench.stats.inference.decisions import Decision
from afor.bench.stats.inference.error_rates import (
    SHAPES,
    equivalence_rate,
    family_rates,
    simulate_differences,
    verdict_rates,
)
from afor.bench.stats.inference.sample_size import folds_needed

MARGIN = 1.0  # in units of the SD of the fold differences
FOLDS = (6, 9, 20)


def percent(share):
    return f"{100 * share:.1f}"


def print_single(studies):
    """Print the table of one comparison."""
    print("| noise | folds | false difference | false equivalence | power: difference | "
          "power: equivalence |")  # fmt: skip
    print("|---|---:|---:|---:|---:|---:|")
    for shape in SHAPES:
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
    """Print the power with as many folds as `folds_needed` says for 80 %."""
    print("\n| SD over margin | folds for a difference | power | folds for equivalence | power |")
    print("|---:|---:|---:|---:|---:|")
    for sd in (0.75, 1.0, 1.4):
        difference = folds_needed(sd, MARGIN)
        equal = folds_needed(sd, MARGIN, equivalence=True)
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
