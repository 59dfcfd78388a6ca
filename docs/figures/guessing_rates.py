"""Print how often networks pass the test against guessing, for docs/explanation/statistics.md.

python docs/figures/guessing_rates.py            # 20 000 studies per cell
python docs/figures/guessing_rates.py 1000       # fewer, faster
"""

import sys
from collections.abc import Callable, Mapping

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from simulated_studies import sign_flip_p_rows

from afor.bench.stats.inference.decisions import LEVEL

FOLDS = (5, 6, 10, 20)
SPREAD = 0.10  # SD over subjects of what a network has learned

Array = NDArray[np.float64]


def _guesses(windows: int, classes: int, per_trial: int = 1) -> Callable[[Generator, int], Array]:
    """Guess evenly among balanced classes; the windows of a trial get one answer."""

    def gains(rng: Generator, size: int) -> Array:
        trials = windows // per_trial
        return np.asarray(rng.binomial(trials, 1 / classes, size) / trials - 1 / classes)

    return gains


def _unbalanced(rng: Generator, size: int) -> Array:
    """Answer one of two classes of 60:40, which varies by 10 points over subjects, at 60:40."""
    share = np.clip(rng.normal(0.6, 0.1, size), 0.05, 0.95)
    frequent = rng.binomial(40, share)
    hits = rng.binomial(frequent, 0.6) + rng.binomial(40 - frequent, 0.4)
    return np.asarray((hits - frequent) / 40)


def _overconfident(rng: Generator, size: int) -> Array:
    """Give random probabilities of two classes; the gain is in NLL over the class frequencies."""
    logits = rng.normal(0, 0.5, (size, 40))
    return np.asarray(np.log(2) - np.log1p(np.exp(logits)).mean(axis=1))


NOTHING_LEARNED: Mapping[str, Callable[[Generator, int], Array]] = {
    "2 classes, 30 windows": _guesses(30, 2),
    "4 classes, 40 windows": _guesses(40, 4),
    "5 classes, 800 windows": _guesses(800, 5),
    "2 classes, 10 trials of 6 windows": _guesses(60, 2, per_trial=6),
    "2 unbalanced classes, 40 windows": _unbalanced,
    "NLL, 2 classes, 40 windows": _overconfident,
}
LEARNED = {  # points above guessing, classes, windows
    "+5 points, 2 classes": (0.05, 2, 30),
    "+10 points, 2 classes": (0.10, 2, 30),
    "+20 points, 2 classes": (0.20, 2, 30),
    "+10 points, 4 classes": (0.10, 4, 40),
}


def false_rates(folds: int, studies: int) -> dict[str, float]:
    """Return the share of studies in which a network that guesses is found above guessing."""
    rng = np.random.default_rng(folds)
    return {
        name: _share(draw(rng, studies * folds).reshape(studies, folds))
        for name, draw in NOTHING_LEARNED.items()
    }


def power_rates(folds: int, studies: int) -> dict[str, float]:
    """Return the share of studies in which a network that learned is found above guessing."""
    rng = np.random.default_rng(folds)
    rates = {}
    for name, (gain, classes, windows) in LEARNED.items():
        chance = np.clip(rng.normal(1 / classes + gain, SPREAD, (studies, folds)), 0, 1)
        rates[name] = _share(rng.binomial(windows, chance) / windows - 1 / classes)
    return rates


def _share(gains: Array) -> float:
    return float((sign_flip_p_rows(gains) < LEVEL).mean())


def print_rates(title: str, rates: Callable[[int, int], dict[str, float]], studies: int) -> None:
    """Print one table: a row for each case, a column for each number of folds."""
    print(f"\n| {title} | {' | '.join(f'{n} folds' for n in FOLDS)} |")
    print(f"|---|{'---:|' * len(FOLDS)}")
    columns = [rates(folds, studies) for folds in FOLDS]
    for name in columns[0]:
        print(f"| {name} | {' | '.join(f'{100 * c[name]:.1f} %' for c in columns)} |")


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    print_rates("nothing learned: found above guessing", false_rates, number)
    print_rates("learned: found above guessing", power_rates, number)
