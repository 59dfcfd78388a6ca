"""Describe how far another seed moves a result.

A study can hold replicates: entries of the same method under other seeds. All methods of a
study run under the *same* seeds, so that the noise between replicates is not the noise of a
comparison, and no verdict uses it. `afor_fixed_0999` takes AdamW's steps under AdamW's seeds: their
difference is rounding, the least that a comparison under equal seeds has. Most of it enters by
tensors without a function (`afor models NAME --redundant`).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from afor.bench.stats.groups import (
    Condition,
    Conditions,
    mean_sd,
    paired_fold_values,
    task_conditions,
)

# AFOR with beta2_min = beta2_init = 0.999 takes AdamW's steps, to rounding.
SAME_METHOD = {"afor_fixed_0999": "adamw"}
NO_REPLICATES = (
    "No method ran twice under other seeds here. The preset `controls` does that: "
    "`afor run controls`."
)


@dataclass(frozen=True)
class SeedNoise:
    """How far replicates of one method differ in one (dataset, backbone, metric). Fractions."""

    dataset: str
    backbone: str
    metric: str
    differences: tuple[float, ...]  # one per fold and pair of replicates
    folds: int
    largest: float  # |mean difference| of the two replicates furthest apart
    replicates: tuple[tuple[str, ...], ...]  # the groups of names compared
    identical: tuple[tuple[str, str], ...] = ()  # equal bits: they ran under one seed

    @property
    def spread(self) -> float:
        """SD of the difference between two replicates in one fold; its mean is zero in truth."""
        return math.hypot(*self.differences) / math.sqrt(len(self.differences))


def replicate_groups(task: Iterable[Condition]) -> list[tuple[str, ...]]:
    """Return the names of each method that a task holds under two or more seeds.

    >>> from afor.bench.stats.groups import collect_conditions
    >>> from afor.bench.stats.design.simulated import simulate_results
    >>> made = simulate_results({"adam": 0, "afor": 0, "adam_seed_1": 0}, datasets=["deap"])
    >>> replicate_groups(collect_conditions(*made).values())
    [('adam', 'adam_seed_1')]
    """
    groups: dict[str, list[str]] = {}
    for condition in task:
        groups.setdefault(condition.original, []).append(condition.method)
    return [tuple(names) for names in groups.values() if len(names) > 1]


def seed_noise(
    conditions: Conditions, dataset: str, backbone: str, metric: str
) -> SeedNoise | None:
    """Return the noise between replicates in one task, or None where the store has none.

    All pairs of replicates are pooled. Replicates that are equal bit for bit ran under the same
    seed and contain no noise, so they are listed and left out.
    """
    task = {c.method: c for c in task_conditions(conditions, dataset, backbone) if c.has(metric)}
    differences: list[float] = []
    used: list[tuple[str, ...]] = []
    identical: list[tuple[str, str]] = []
    folds, largest = 0, 0.0
    for names in replicate_groups(task.values()):
        members = [task[name] for name in names]
        common = set.intersection(*(set(condition.runs) for condition in members))
        values = [tuple(c.fold_values(metric, common).values()) for c in members]
        first_with: dict[tuple[float, ...], int] = {}  # position of the first one by its values
        for i, series in enumerate(values):
            first = first_with.setdefault(series, i)
            identical += [(names[first], names[i])] if first != i else []
        distinct = list(first_with.values())
        if len(distinct) < 2:
            continue
        for i, j in combinations(distinct, 2):
            apart = [a - b for a, b in zip(values[i], values[j], strict=True)]
            largest = max(largest, abs(math.fsum(apart)) / len(apart))
            differences += apart
        folds = max(folds, len(values[0]))
        used.append(tuple(names[i] for i in distinct))
    if not used:
        return None
    groups = (tuple(used), tuple(identical))
    return SeedNoise(dataset, backbone, metric, tuple(differences), folds, largest, *groups)


def same_seed_sd(conditions: Conditions, dataset: str, backbone: str, metric: str) -> float:
    """Return the SD over folds of AdamW against AFOR with beta2 fixed at 0.999; NaN without both.

    They are one method under the same seeds: what is left is rounding, amplified by training.
    """
    for pair in SAME_METHOD.items():
        members = [conditions.get((dataset, backbone, name)) for name in pair]
        present = [c for c in members if c is not None and c.has(metric)]
        if len(present) == 2:
            fixed, adamw = present
            _, ours, theirs = paired_fold_values(fixed, adamw, metric)
            return mean_sd((ours - theirs).tolist())[1]
    return math.nan
