"""Pool a comparison over tasks: the mean difference, its interval, and how much tasks differ.

Backbones on one data set share its subjects. Their differences are averaged fold by fold first, so
that a data set counts once. Data sets are then pooled by a random-effects model; see
docs/explanation/statistics.md for the method and its simulated coverage.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from afor.bench.stats.comparisons import Comparison
from afor.bench.stats.inference.decisions import LEVEL, Decision, choose_decision, decide
from afor.bench.stats.inference.paired_tests import holm

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
    low, high = 0.0, float(freedom * y.var(ddof=1))
    if homogeneity <= freedom:
        high = 0.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if fit(middle)[1] > freedom else (low, middle)
    mean, squares, weight = fit(high)
    return RandomEffects(
        mean=mean,
        se=math.sqrt(max(1.0, squares / freedom) / weight),
        tau=math.sqrt(high),
        i_squared=max(0.0, 1 - freedom / homogeneity) if homogeneity > 0 else 0.0,
        effects=len(y),
    )


@dataclass(frozen=True)
class PooledComparison:
    """One method compared with the baseline over several tasks. Fractions, not percent.

    A gain is positive if the method is better, also where less of the metric is better.
    """

    metric: str
    optimizer: str
    baseline: str
    tasks: tuple[tuple[str, str], ...]  # data set, backbone
    datasets: int  # that are pooled; with one, the test is the exact one over its folds
    gain: float
    interval: tuple[float, float]  # 95 %, of the mean over data sets
    inner_interval: tuple[float, float]  # 90 %, which equivalence is read from
    prediction: tuple[float, float]  # 95 %, of a further data set; infinite with fewer than three
    tau: float  # SD between data sets; NaN with one
    i_squared: float  # NaN with one data set
    won_tied_lost: tuple[int, int, int]  # tasks
    margin: float | None
    p_two_sided: float
    p_equivalent: float  # NaN without a margin
    p_different_holm: float
    p_equivalent_holm: float
    family: int  # comparisons that Holm corrects for
    complete: bool  # whether no run of these tasks is missing
    blind: int  # tasks that are left out because neither side is better than guessing there

    @property
    def decision(self) -> Decision | None:
        """Better, worse, equivalent or undecided; None before all runs are there."""
        if not self.complete:
            return None
        return choose_decision(self.gain, self.p_different_holm, self.p_equivalent_holm)


def pool_tasks(comparisons: Iterable[Comparison]) -> list[PooledComparison]:
    """Pool the comparisons of each metric and method over tasks, Holm-corrected over methods.

    Args:
        comparisons: Those of all tasks, with one baseline.

    Returns:
        One entry per metric and method that two or more tasks have; none for a single task. Tasks
        in which neither side is better than guessing are left out.
    """
    by_method: dict[tuple[str, str], list[Comparison]] = {}
    for c in comparisons:
        by_method.setdefault((c.metric, c.optimizer), []).append(c)
    pooled = [made for members in by_method.values() if (made := _pool(members)) is not None]
    corrected = []
    for metric in dict.fromkeys(made.metric for made in pooled):
        of_metric = [made for made in pooled if made.metric == metric]
        family = max(made.family for made in of_metric)
        different = holm([made.p_two_sided for made in of_metric], family)
        equivalent = [made.p_equivalent for made in of_metric]
        if of_metric[0].margin is not None:
            equivalent = holm(equivalent, family)
        corrected += [
            replace(made, p_different_holm=p, p_equivalent_holm=q)
            for made, p, q in zip(of_metric, different, equivalent, strict=True)
        ]
    return corrected


def _pool(comparisons: Sequence[Comparison]) -> PooledComparison | None:
    """Pool one method over its tasks, without correction; None where that is not possible."""
    members = [c for c in comparisons if not c.is_blind]
    differences = [_mean_differences(group) for group in _by_dataset(members)]
    differences = [values for values in differences if len(values) > 1]
    if len(members) < 2 or not differences:
        return None
    first = members[0]
    margin = first.evidence.margin
    if len(differences) == 1:
        made = decide(differences[0], margin=margin)
        gain, interval, inner = made.mean, made.interval, made.inner_interval
        prediction, tau, i_squared = (-math.inf, math.inf), math.nan, math.nan
        p_two_sided, p_equivalent = made.p_two_sided, made.p_equivalent
    else:
        model = random_effects(
            [float(np.mean(values)) for values in differences],
            [float(np.var(values, ddof=1)) / len(values) for values in differences],
        )
        gain, interval, inner = model.mean, model.interval(), model.interval(2 * LEVEL)
        prediction, tau, i_squared = model.prediction(), model.tau, model.i_squared
        p_two_sided = min(1.0, 2 * model.one_sided_p(abs(gain)))
        p_equivalent = math.nan
        if margin is not None:  # the nearer of the two limits gives the larger p
            p_equivalent = model.one_sided_p(margin - abs(gain))
    signs = [math.copysign(1, c.gain) if c.gain else 0 for c in members]
    return PooledComparison(
        metric=first.metric,
        optimizer=first.optimizer,
        baseline=first.baseline,
        tasks=tuple((c.dataset, c.backbone) for c in members),
        datasets=len(differences),
        gain=gain,
        interval=interval,
        inner_interval=inner,
        prediction=prediction,
        tau=tau,
        i_squared=i_squared,
        won_tied_lost=(signs.count(1), signs.count(0), signs.count(-1)),
        margin=margin,
        p_two_sided=p_two_sided,
        p_equivalent=p_equivalent,
        p_different_holm=p_two_sided,
        p_equivalent_holm=p_equivalent,
        family=first.family,
        complete=all(c.complete for c in members),
        blind=len(comparisons) - len(members),
    )


def _by_dataset(comparisons: Sequence[Comparison]) -> list[list[Comparison]]:
    groups: dict[str, list[Comparison]] = {}
    for c in comparisons:
        groups.setdefault(c.dataset, []).append(c)
    return list(groups.values())


def _mean_differences(members: Sequence[Comparison]) -> list[float]:
    """Return the mean difference of each fold that all comparisons of a data set have."""
    gains = [{pair.fold: pair.gain for pair in c.pairs} for c in members]
    folds = [fold for fold in gains[0] if all(fold in each for each in gains)]
    return [math.fsum(each[fold] for each in gains) / len(gains) for fold in folds]
