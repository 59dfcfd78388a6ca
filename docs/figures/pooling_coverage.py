"""Print how often the intervals over tasks hold the truth, for docs/explanation/statistics.md.

python docs/figures/pooling_coverage.py           # 4000 studies per cell
python docs/figures/pooling_coverage.py 1000      # fewer, faster
"""

import sys

import numpy as np

from afor.bench.stats.pooling import random_effects

DATASETS = (2, 3, 5, 10)
SPREADS = (0.0, 0.2, 0.5, 1.5)  # SD between data sets, in units of the SD between folds
FOLDS = (6, 10, 20, 60)


def coverage(datasets: int, spread: float, studies: int, seed: int = 0) -> tuple[float, float]:
    """Return the shares of simulated studies whose intervals hold the truth.

    Args:
        datasets: Number of data sets of a study; each has one of `FOLDS` folds, at random.
        spread: SD of the true gains between data sets.
        studies: Number of studies.
        seed: Seed of the simulation.

    Returns:
        The share for the interval of the mean, and for the prediction of a further data set; the
        latter is NaN for two data sets, which have no prediction.
    """
    rng = np.random.default_rng(seed)
    inside = predicted = 0
    for _ in range(studies):
        folds = rng.choice(FOLDS, size=datasets)
        sds = rng.choice([0.7, 1.0, 1.5], size=datasets)
        gains = [
            rng.normal(spread * rng.normal(), sd, size=n) for n, sd in zip(folds, sds, strict=True)
        ]
        made = random_effects(
            [float(np.mean(values)) for values in gains],
            [float(np.var(values, ddof=1)) / len(values) for values in gains],
        )
        low, high = made.interval()
        inside += low <= 0 <= high
        low, high = made.prediction()
        predicted += low <= spread * rng.normal() <= high
    return inside / studies, predicted / studies if datasets > 2 else float("nan")


def main() -> None:
    """Print the table."""
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    print("| data sets | " + " | ".join(f"SD {spread:g}" for spread in SPREADS) + " |")
    print("|---:|" + "---:|" * len(SPREADS))
    for datasets in DATASETS:
        cells = []
        for spread in SPREADS:
            mean, further = coverage(datasets, spread, studies)
            text = f"{100 * mean:.1f}"
            cells.append(text if np.isnan(further) else f"{text} / {100 * further:.1f}")
        print(f"| {datasets} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
