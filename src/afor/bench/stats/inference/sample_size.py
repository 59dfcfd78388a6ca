"""Estimate how many folds or draws a comparison needs, from the noise that was seen.

The formulas are those of the paired t-test with one fold more, since the sign-flip test has a
little less power with few folds. tests/bench/stats/inference/test_error_rates.py checks it by
simulation.
"""

import math

LEVEL = 0.05
POWER = 0.8
SIGN_FLIP_FOLDS = 1  # more than the t-test needs


def folds_needed(
    sd: float, size: float, *, level: float = LEVEL, power: float = POWER, equivalence: bool = False
) -> int:
    """Return how many folds show a difference, or equivalence, with the given power.

    Args:
        sd: SD of the fold differences.
        size: The true mean difference to detect, or the margin of equivalence of two equal methods.
        level: Level of the test, two-sided for a difference and one-sided for equivalence. Divide
            it by the number of comparisons for the strictest step of Holm's correction.
        power: Wanted probability of the decision.
        equivalence: Whether the number is for equivalence instead of a difference.

    >>> folds_needed(2.0, 1.0), folds_needed(2.0, 1.0, equivalence=True)
    (35, 37)
    """
    z_level, z_power = _quantiles(level, power, equivalence=equivalence)
    fewest = math.floor(math.log2((1 if equivalence else 2) / level)) + 1
    # The second term corrects for the estimated SD (Guenther 1981).
    folds = ((z_level + z_power) * sd / size) ** 2 + z_level**2 / 2 + SIGN_FLIP_FOLDS
    return max(fewest, math.ceil(folds))


def largest_sd(
    folds: int,
    size: float,
    *,
    level: float = LEVEL,
    power: float = POWER,
    equivalence: bool = False,
) -> float:
    """Return the SD of the fold differences up to which so many folds are enough; 0 if none is.

    The inverse of `folds_needed`, with the same arguments.

    >>> round(largest_sd(35, 1.0), 2)
    2.02
    """
    if folds < folds_needed(0.0, size, level=level, power=power, equivalence=equivalence):
        return 0.0
    z_level, z_power = _quantiles(level, power, equivalence=equivalence)
    effective = folds - SIGN_FLIP_FOLDS - z_level**2 / 2
    return size * math.sqrt(max(0.0, effective)) / (z_level + z_power)


def draws_needed(sd: float, draw_sd: float, draws: int, largest_sd: float) -> int | None:
    """Return how many draws per fold bring the SD of the fold differences to `largest_sd`, or None.

    More draws average out the variance between draws of one fold, not the variance between folds.
    `sd` was measured with `draws` draws; `draw_sd` is that of a single draw within its fold.

    >>> draws_needed(sd=2.0, draw_sd=3.0, draws=3, largest_sd=1.5)
    8
    >>> draws_needed(sd=2.0, draw_sd=0.5, draws=3, largest_sd=1.5) is None
    True
    """
    between_folds = max(0.0, sd**2 - draw_sd**2 / draws)
    if largest_sd**2 <= between_folds:
        return None
    return max(1, math.ceil(draw_sd**2 / (largest_sd**2 - between_folds)))


def _quantiles(level: float, power: float, *, equivalence: bool) -> tuple[float, float]:
    from scipy.stats import norm

    # Equal methods can fail to be shown equivalent at either side: half of 1 - power at each.
    z_level = float(norm.isf(level if equivalence else level / 2))
    z_power = float(norm.ppf((1 + power) / 2 if equivalence else power))
    return z_level, z_power
