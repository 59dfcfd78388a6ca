"""Estimate where the variance of a paired difference comes from: subjects, repetitions, seeds.

Every fold and repetition has its own validation subjects and seeds (`derive_seed`), so the design
is nested: runs under several seeds within repetitions within folds. One difference between two
methods is

    mean + subject x method + repetition x method + seed x method,

and a fold value averages its repetitions. The components follow from the mean squares of the nested
analysis of variance. Where a mean square is below the one nested in it, both are pooled, which is
the REML estimate of a balanced design (Thompson 1962). Intervals are generalized confidence
intervals (Weerahandi 1993): every mean square is divided by a simulated chi-square.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from afor.bench.stats.groups import Condition, Conditions, complete_folds, task_conditions

SUBJECT, REPETITION, SEED = "subject × method", "repetition × method", "seed × method"
SIMULATIONS = 10_000

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Component:
    """One variance component, or the sum of those that the design cannot tell apart."""

    sources: tuple[str, ...]  # the sources of variance in it
    variance: float  # the estimate, in the metric's squared unit
    samples: FloatArray  # simulated values of the variance, which show how well it is known

    @property
    def is_averaged_by_repetitions(self) -> bool:
        """Whether a further repetition per fold reduces its part in a fold value."""
        return SUBJECT not in self.sources


@dataclass(frozen=True)
class VarianceComponents:
    """The components of one paired difference, the widest source first."""

    folds: int
    repetitions: int
    components: tuple[Component, ...]

    def fold_variance(self, repetitions: int) -> float:
        """Return the variance of a fold difference over so many repetitions with one seed each."""
        return sum(c.variance / self._divisor(c, repetitions) for c in self.components)

    def fold_variance_samples(self, repetitions: int) -> FloatArray:
        """Return simulated values of `fold_variance`, which show how well the pilot knows it."""
        parts = [c.samples / self._divisor(c, repetitions) for c in self.components]
        return np.asarray(np.sum(parts, axis=0))

    def _divisor(self, component: Component, repetitions: int) -> int:
        return repetitions if component.is_averaged_by_repetitions else 1


def estimate_components(differences: ArrayLike, *, seed: int = 0) -> VarianceComponents:
    """Estimate the variance components of a complete nested design.

    Args:
        differences: Paired differences by (fold, repetition, seed), of at least two folds.
        seed: Seed of the simulation behind the intervals.

    Returns:
        The components. Levels with one member are not apart from the level above: with one seed,
        repetition and seed are one component; with one repetition, subject and repetition are.

    >>> rng = np.random.default_rng(0)
    >>> made = rng.normal(0, 2, (40, 1, 1)) + rng.normal(0, 1, (40, 5, 1))
    >>> noise = estimate_components(made)
    >>> [(" + ".join(c.sources), round(c.variance, 1)) for c in noise.components]
    [('subject × method', 4.6), ('repetition × method + seed × method', 1.0)]
    """
    from scipy.optimize import isotonic_regression

    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 3 or len(values) < 2 or values.size == 0 or not np.isfinite(values).all():
        raise ValueError(
            "variance components need finite differences by (fold, repetition, seed) and at least "
            f"two folds; got shape {values.shape}"
        )
    sources: list[list[str]] = []  # of each level of the design
    squares: list[float] = []  # mean squares
    degrees: list[int] = []
    sizes: list[int] = []  # runs that one member of a level averages
    center = values.mean(keepdims=True)
    groups = 1
    for axis, source in enumerate((SUBJECT, REPETITION, SEED)):
        members = values.shape[axis]
        freedom = groups * (members - 1)
        groups *= members
        size = values.size // groups
        means = values.mean(axis=tuple(range(axis + 1, 3)), keepdims=True)
        if freedom:
            squares.append(size * float(np.sum((means - center) ** 2)) / freedom)
            degrees.append(freedom)
            sizes.append(size)
            sources.append([source])
        else:
            sources[-1].append(source)
        center = means
    # Neighbouring mean squares are pooled until none is below the next one.
    pooled = isotonic_regression(squares, weights=degrees, increasing=False).x.tolist()
    rng = np.random.default_rng(seed)
    simulated = [
        s * n / rng.chisquare(n, SIMULATIONS) for s, n in zip(squares, degrees, strict=True)
    ]
    components = []
    for i, size in enumerate(sizes):
        below = pooled[i + 1] if i + 1 < len(pooled) else 0.0
        samples = simulated[i] - (simulated[i + 1] if i + 1 < len(pooled) else 0.0)
        variance = max((pooled[i] - below) / size, 0.0)
        components.append(Component(tuple(sources[i]), variance, np.maximum(samples / size, 0.0)))
    folds, repetitions, _ = values.shape
    return VarianceComponents(folds, repetitions, tuple(components))


def paired_differences(
    conditions: Conditions, dataset: str, backbone: str, metric: str, method: str, baseline: str
) -> FloatArray:
    """Return the differences between two methods by (fold, repetition, seed).

    A method's replicates count as its further seeds. Pairs share fold, repetition and seed; folds
    without all pairs are left out, so that the array may be empty.
    """
    ours, theirs = (
        _by_seed(conditions, dataset, backbone, metric, name) for name in (method, baseline)
    )
    pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    folds, repetitions = complete_folds(
        [one.runs.keys() & other.runs.keys() for one, other in pairs]
    )
    differences = [
        [
            [one.value((f, d), metric) - other.value((f, d), metric) for one, other in pairs]
            for d in repetitions
        ]
        for f in folds
    ]
    return np.array(differences, dtype=np.float64).reshape(len(folds), len(repetitions), len(pairs))


def _by_seed(
    conditions: Conditions, dataset: str, backbone: str, metric: str, method: str
) -> Mapping[int | None, Condition]:
    """Return a method's original and replicates by seed; None is the seed of the study.

    A replicate that is named itself is compared as the study trained it, under None.
    """
    named = conditions.get((dataset, backbone, method))
    by_seed: dict[int | None, Condition] = {}
    if named is not None and named.has(metric):
        by_seed[None] = named
    if named is None or not named.is_replicate:
        for other in task_conditions(conditions, dataset, backbone):
            is_replicate = (
                other.is_replicate and other.original == method and other.role.seed is not None
            )
            if is_replicate and other.has(metric):
                by_seed[other.role.seed] = other
    return by_seed
