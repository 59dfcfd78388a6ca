"""Describe how far another seed moves a result.

A study can hold copies: entries of the same optimizer under other seeds. All optimizers of a study
run under the *same* seeds, so that the noise between copies is not the noise of a comparison, and
no verdict uses it. `afor_fixed_0999` takes AdamW's steps under AdamW's seeds: their difference is
rounding, amplified by training, which is the least that a comparison under equal seeds has.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from afor.bench.stats.groups import Condition, Conditions, block_of, mean_sd, paired_fold_values

# AFOR with beta2_min = beta2_init = 0.999 takes AdamW's steps, to rounding.
SAME_METHOD = {"afor_fixed_0999": "adamw"}
NO_COPIES = (
    "No optimizer ran twice under other seeds here. The preset `controls` does that: "
    "`afor run controls`."
)


@dataclass(frozen=True)
class SeedNoise:
    """How far copies of one method differ in one (dataset, backbone, metric). Fractions."""

    dataset: str
    backbone: str
    metric: str
    spread: float  # SD of the difference between two copies in one fold
    folds: int
    largest: float  # |mean difference| of the two copies furthest apart
    copies: tuple[tuple[str, ...], ...]  # the groups of names compared
    identical: tuple[tuple[str, str], ...] = ()  # copies with equal bits: they ran under one seed


def copy_groups(block: Iterable[Condition]) -> list[tuple[str, ...]]:
    """Return the names of each method that a block holds under two or more seeds.

    >>> from afor.bench.stats.groups import collect_conditions
    >>> from afor.bench.stats.design.simulated import simulate_results
    >>> made = simulate_results({"adam": 0, "afor": 0, "adam_seed_1": 0}, datasets=["deap"])
    >>> copy_groups(collect_conditions(*made).values())
    [('adam', 'adam_seed_1')]
    """
    groups: dict[str, list[str]] = {}
    for condition in block:
        groups.setdefault(condition.method, []).append(condition.optimizer)
    return [tuple(names) for names in groups.values() if len(names) > 1]


def seed_noise(
    conditions: Conditions, dataset: str, backbone: str, metric: str
) -> SeedNoise | None:
    """Return the noise between copies in one block, or None where the store has no copies.

    All groups of copies are pooled: within each fold, the variance between k copies has k - 1
    degrees of freedom. Copies that are equal bit for bit ran under the same seed and contain no
    noise, so they are listed and left out.
    """
    block = {c.optimizer: c for c in block_of(conditions, dataset, backbone) if c.has(metric)}
    squares, degrees, folds, largest = 0.0, 0, 0, 0.0
    used: list[tuple[str, ...]] = []
    identical: list[tuple[str, str]] = []
    for names in copy_groups(block.values()):
        values = _common_fold_values([block[name] for name in names], metric)
        first_with: dict[tuple[float, ...], int] = {}  # position of the first copy by its values
        for i, series in enumerate(values):
            twin = first_with.setdefault(tuple(series), i)
            identical += [(names[twin], names[i])] if twin != i else []
        distinct = list(first_with.values())
        n = len(values[0])
        if len(distinct) < 2 or n == 0:
            continue
        for fold in zip(*(values[i] for i in distinct), strict=True):
            mean = math.fsum(fold) / len(fold)
            squares += math.fsum((value - mean) ** 2 for value in fold)
        degrees += n * (len(distinct) - 1)
        folds = max(folds, n)
        for i, j in combinations(distinct, 2):
            largest = max(largest, abs(math.fsum(values[i]) - math.fsum(values[j])) / n)
        used.append(tuple(names[i] for i in distinct))
    if not used:
        return None
    spread = math.sqrt(2 * squares / degrees)  # a difference has the variance of both its sides
    return SeedNoise(
        dataset, backbone, metric, spread, folds, largest, tuple(used), tuple(identical)
    )


def copy_differences(
    conditions: Conditions, dataset: str, backbone: str, metric: str
) -> list[float]:
    """Return the differences between identical methods, one per fold and pair of copies.

    The order of two copies is arbitrary, so every difference is returned with both signs.
    """
    noise = seed_noise(conditions, dataset, backbone, metric)
    differences: list[float] = []
    for names in noise.copies if noise else ():
        copies = [conditions[dataset, backbone, name] for name in names]
        for one, other in combinations(_common_fold_values(copies, metric), 2):
            differences += [a - b for a, b in zip(one, other, strict=True)]
    return differences + [-difference for difference in differences]


def same_seed_noise(
    conditions: Conditions, dataset: str, backbone: str, metric: str
) -> tuple[float, float] | None:
    """Return mean and SD over folds of AdamW against AFOR with beta2 fixed at 0.999.

    They are one method under the same seeds: what is left is rounding, amplified by training.
    """
    for pair in SAME_METHOD.items():
        members = [conditions.get((dataset, backbone, name)) for name in pair]
        present = [c for c in members if c is not None and c.has(metric)]
        if len(present) == 2:
            fixed, adamw = present
            _, ours, theirs = paired_fold_values(fixed, adamw, metric)
            if len(ours):
                mean, sd, _ = mean_sd((ours - theirs).tolist())
                return mean, sd
    return None


def _common_fold_values(copies: list[Condition], metric: str) -> list[list[float]]:
    common = set.intersection(*(set(condition.runs) for condition in copies))
    return [list(condition.fold_values(metric, common).values()) for condition in copies]
