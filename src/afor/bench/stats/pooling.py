"""Pool a comparison over tasks: the mean difference, its interval, and how much tasks differ.

Backbones on one data set share its subjects. Their differences are averaged fold by fold first, so
that a data set counts once. Data sets are then pooled by a random-effects model; see
docs/explanation/statistics.md for the method and its simulated coverage.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from afor.bench.stats.comparisons import Comparison, Judged
from afor.bench.stats.inference.decisions import (
    LEVEL,
    PairedDecision,
    correct_family,
    decide,
)

SMALLEST_SHARE = 0.01  # a variance counts as no less than this share of the mean variance


@dataclass(frozen=True)
class RandomEffects:
    """The mean of effects that differ between data sets."""

    mean: float
    se: float  # Knapp and Hartung's, not below what the variances within data sets give
    tau: float  # SD of the true effects between data sets, by Paule and Mandel
    i_squared: float  # share of the variance between estimates that the sampling does not explain
    effects: int

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the interval of the mean at 1 - level."""
        return self._around(self.se, self.effects - 1, level)

    def prediction(self, level: float = LEVEL) -> tuple[float, float]:
        """Return Higgins' interval of the effect on a further data set; infinite for two."""
        if self.effects < 3:
            return -math.inf, math.inf
        return self._around(math.hypot(self.tau, self.se), self.effects - 2, level)

    def one_sided_p(self, distance: float) -> float:
        """Return the p of a mean this far on the right side of a limit; below 0 it is beyond it."""
        from scipy.stats import t

        if self.se == 0:
            return 0.5 - 0.5 * math.copysign(distance != 0, distance)
        return float(t.sf(distance / self.se, self.effects - 1))

    def evidence(self, margin: float | None) -> PairedDecision:
        """Return the evidence about the mean, without a decision."""
        return PairedDecision(
            folds=self.effects,
            mean=self.mean,
            sd=self.tau,
            margin=margin,
            interval=self.interval(),
            inner_interval=self.interval(2 * LEVEL),
            p_better=self.one_sided_p(self.mean),
            p_two_sided=min(1.0, 2 * self.one_sided_p(abs(self.mean))),
            # The nearer of the two limits gives the larger p.
            p_equivalent=math.nan if margin is None else self.one_sided_p(margin - abs(self.mean)),
        )

    def _around(self, se: float, freedom: int, level: float) -> tuple[float, float]:
        from scipy.stats import t

        half = float(t.isf(level / 2, freedom)) * se
        return self.mean - half, self.mean + half


def random_effects(means: Sequence[float], variances: Sequence[float]) -> RandomEffects:
    """Pool estimates by a random-effects model.

    Args:
        means: The estimates, two or more.
        variances: The sampling variance of each.

    Returns:
        Their weighted mean, with tau² by Paule and Mandel and the standard error by Knapp and
        Hartung with their restriction to factors of at least 1.

    Example:
        >>> pooled = random_effects([1.0, 2.0, 6.0], [0.5, 0.5, 0.5])
        >>> round(pooled.mean, 6), round(pooled.tau**2, 6), round(pooled.i_squared, 4)
        (3.0, 6.5, 0.9286)
    """
    from scipy.optimize import brentq

    y, v = np.asarray(means, dtype=np.float64), np.asarray(variances, dtype=np.float64)
    v = np.maximum(v, SMALLEST_SHARE * v.mean())
    freedom = len(y) - 1
    if not v.any():  # no fold differs from another
        tau = float(y.std(ddof=1))
        return RandomEffects(float(y.mean()), tau / math.sqrt(len(y)), tau, float(tau > 0), len(y))

    def fit(tau_squared: float) -> tuple[float, float, float]:
        weights = 1 / (v + tau_squared)
        mean = float(weights @ y / weights.sum())
        return mean, float(weights @ (y - mean) ** 2), float(weights.sum())

    homogeneity = fit(0.0)[1]  # Cochran's Q
    most, tau_squared = float(freedom * y.var(ddof=1)), 0.0
    if homogeneity > freedom:  # it falls with tau², to 1 or less at most
        tau_squared = brentq(lambda t: fit(t)[1] - freedom, 0.0, most, xtol=1e-12 * most)
    mean, squares, weight = fit(tau_squared)
    return RandomEffects(
        mean=mean,
        se=math.sqrt(max(1.0, squares / freedom) / weight),
        tau=math.sqrt(tau_squared),
        i_squared=max(0.0, 1 - freedom / homogeneity) if homogeneity > 0 else 0.0,
        effects=len(y),
    )


@dataclass(frozen=True, kw_only=True)
class PooledComparison(Judged):
    """One method compared with the baseline over several tasks.

    The evidence counts data sets in place of folds; with one data set it is the exact one over its
    folds.
    """

    tasks: tuple[tuple[str, str], ...]  # data set, backbone
    datasets: int  # that are pooled
    prediction: tuple[float, float]  # 95 %, of a further data set; infinite with fewer than three
    tau: float  # SD between data sets; NaN with one
    i_squared: float  # NaN with one data set
    blind: int  # tasks that are left out because neither side is better than guessing there


def pool_tasks(comparisons: Iterable[Comparison]) -> list[PooledComparison]:
    """Pool the comparisons of each metric and method over tasks, Holm-corrected over methods.

    Args:
        comparisons: Those of all tasks, with one baseline.

    Returns:
        One entry per metric and method that two or more tasks have; none for a single task. Tasks
        in which neither side is better than guessing are left out.
    """
    by_metric: dict[str, dict[str, list[Comparison]]] = {}
    for c in comparisons:
        by_metric.setdefault(c.metric, {}).setdefault(c.method, []).append(c)
    corrected = []
    for by_method in by_metric.values():
        pooled = [made for members in by_method.values() if (made := _pool(members)) is not None]
        family = max((made.family for made in pooled), default=0)
        decided = correct_family([made.evidence for made in pooled], family)
        corrected += [
            replace(made, evidence=evidence) for made, evidence in zip(pooled, decided, strict=True)
        ]
    return corrected


def _pool(comparisons: Sequence[Comparison]) -> PooledComparison | None:
    """Pool one method over its tasks, without correction; None where that is not possible."""
    members = [c for c in comparisons if not c.is_blind]
    by_dataset: dict[str, list[Comparison]] = {}
    for c in members:
        by_dataset.setdefault(c.dataset, []).append(c)
    differences = [_mean_differences(group) for group in by_dataset.values()]
    differences = [values for values in differences if len(values) > 1]
    if len(members) < 2 or not differences:
        return None
    first = members[0]
    margin = first.evidence.margin
    prediction, tau, i_squared = (-math.inf, math.inf), math.nan, math.nan
    if len(differences) == 1:
        evidence = decide(differences[0], margin=margin)
    else:
        model = random_effects(
            [float(np.mean(values)) for values in differences],
            [float(np.var(values, ddof=1)) / len(values) for values in differences],
        )
        evidence = model.evidence(margin)
        prediction, tau, i_squared = model.prediction(), model.tau, model.i_squared
    return PooledComparison(
        metric=first.metric,
        method=first.method,
        baseline=first.baseline,
        evidence=evidence,
        tasks=tuple((c.dataset, c.backbone) for c in members),
        datasets=len(differences),
        prediction=prediction,
        tau=tau,
        i_squared=i_squared,
        gains=tuple(c.gain for c in members),
        family=first.family,
        done=sum(min(c.done, c.expected) for c in members),
        expected=sum(c.expected for c in members),
        blind=len(comparisons) - len(members),
    )


def _mean_differences(members: Sequence[Comparison]) -> list[float]:
    """Return the mean difference of each fold that all comparisons of a data set have."""
    gains = [{pair.fold: pair.gain for pair in c.pairs} for c in members]
    folds = [fold for fold in gains[0] if all(fold in each for each in gains)]
    return [math.fsum(each[fold] for each in gains) / len(gains) for fold in folds]
