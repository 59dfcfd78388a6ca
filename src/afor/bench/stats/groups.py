"""Group runs into conditions and average them per fold.

A condition is one (data set, backbone, method). Its fold value is the mean of the fold's
repetitions (Sec. V-A), so that n is the number of folds and never the number of runs.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError
from afor.bench.stats.labels import (
    BACKBONE_LABELS,
    DATASET_LABELS,
    PAPER_METRICS,
    in_paper_order,
    order_methods,
)
from afor.bench.store.results import RunResult
from afor.bench.study.planned_runs import ExpectedRuns
from afor.bench.study.protocol import KIND_NOTES, SCORED, UNKNOWN, differences, setting
from afor.bench.study.roles import Role, role_from_name

ConditionKey = tuple[str, str, str]  # dataset, backbone, method
FoldRepetition = tuple[int, int]
LARGEST = 1e100  # the squares of larger values overflow; such a value counts as not finite


@dataclass(frozen=True)
class Condition:
    """The finished runs of one (dataset, backbone, method)."""

    dataset: str
    backbone: str
    method: str
    runs: Mapping[FoldRepetition, RunResult]
    folds_expected: int
    repetitions_expected: int
    role: Role
    margins: Mapping[str, float] = field(default_factory=dict)  # by metric, as printed

    @cached_property
    def tested(self) -> dict[str, object]:
        """What was tested of it, by metric, so that no table tests it again."""
        return {}

    @property
    def name(self) -> str:
        """Its data set, backbone and method, for messages and links."""
        return f"{self.dataset}/{self.backbone}/{self.method}"

    @property
    def original(self) -> str:
        """Name of the method it is a replicate of, or its own."""
        return self.role.replicate_of or self.method

    @property
    def is_replicate(self) -> bool:
        """Whether it is another method of the study under another seed."""
        return bool(self.role.replicate_of)

    @property
    def is_control(self) -> bool:
        """Whether it is a replicate, or marked as a control by its study."""
        return self.is_replicate or self.role.control

    @property
    def done(self) -> int:
        """Number of finished runs."""
        return len(self.runs)

    @property
    def expected(self) -> int:
        """Number of planned runs."""
        return self.folds_expected * self.repetitions_expected

    @property
    def complete(self) -> bool:
        """Whether all planned runs are finished."""
        return self.done >= self.expected > 0

    def has(self, metric: str) -> bool:
        """Tell whether there are runs and all of them have a finite value of the metric."""
        values = [run.metrics.get(metric, math.nan) for run in self.runs.values()]
        return bool(values) and all(abs(value) <= LARGEST for value in values)

    def fold_values(
        self, metric: str, keys: Iterable[FoldRepetition] | None = None
    ) -> dict[int, float]:
        """Return the mean over repetitions of each fold, of all runs or of those of some keys."""
        used = self.runs if keys is None else keys
        return mean_of_repetitions({key: self.value(key, metric) for key in used})

    def value(self, key: FoldRepetition, metric: str) -> float:
        """Return the metric of one run; raise ConfigError with the metrics that it has."""
        run = self.runs[key]
        if metric not in run.metrics:
            raise ConfigError(
                f"{self.name} fold {key[0]} repetition {key[1]} "
                f"has no metric {metric!r}. It has: {', '.join(run.metrics)}."
            )
        return run.metrics[metric]

    def summary(self, metric: str) -> tuple[float, float, int]:
        """Return mean, SD (n - 1 in the denominator) and number of the fold values."""
        return mean_sd(list(self.fold_values(metric).values()))


Conditions = Mapping[ConditionKey, Condition]


def default_metrics(conditions: Conditions) -> list[str]:
    """Return the metrics that tables show unasked: the paper's, and NLL if every run has it."""
    finished = [condition for condition in conditions.values() if condition.runs]
    has_nll = bool(finished) and all(condition.has("nll") for condition in finished)
    return [*PAPER_METRICS, *(["nll"] if has_nll else [])]


def collect_conditions(
    results: Iterable[RunResult],
    expected: Sequence[ExpectedRuns] = (),
    margins: Mapping[str, float] | None = None,
    allow_different: Collection[str] = (),
) -> Conditions:
    """Group runs into conditions, in the paper's order.

    A condition that `expected` does not list is expected to have every (fold, repetition) that some
    other condition of its data set has. The same run from two stores counts once.

    Args:
        results: Finished runs.
        expected: What the studies planned, so that missing runs are known.
        margins: Margins of equivalence by metric, as printed; others have their defaults.
        allow_different: Settings in which runs that are compared may differ, such as
            `max_epochs`; `data` stands for all settings that begin with `data.`.

    Returns:
        The conditions by (data set, backbone, method).

    Raises:
        ConfigError: Two different results exist for one fold and repetition of a condition, or the
            runs of a data set and backbone do not have one protocol.

    Example:
        >>> from afor.bench.stats.design.simulated import simulate_results
        >>> conditions = collect_conditions(*simulate_results({"adam": 0.0}, datasets=["bci2a"]))
        >>> conditions["bci2a", "eegnet", "adam"].done
        45
    """
    grouped: dict[ConditionKey, dict[FoldRepetition, RunResult]] = {}
    for run in results:
        runs = grouped.setdefault((run.dataset, run.backbone, run.method), {})
        pair = (run.fold, run.repetition)
        if pair in runs and not _same(runs[pair], run):
            raise ConfigError(
                f"Two different results for {run.dataset}/{run.backbone}/{run.method} fold "
                f"{run.fold} repetition {run.repetition}: study "
                f"{runs[pair].study!r} and study "
                f"{run.study!r}. One table shows one of them: choose with --study."
            )
        runs[pair] = run
    planned = {(e.dataset, e.backbone, e.method): e for e in expected}
    seen: dict[str, set[FoldRepetition]] = {}
    for (dataset, _, _), runs in grouped.items():
        seen.setdefault(dataset, set()).update(runs)
    keys = list(dict.fromkeys([*grouped, *planned]))
    conditions = {}
    for key in _paper_order(keys):
        pairs = seen.get(key[0], set())
        inferred = (len({fold for fold, _ in pairs}), len({repetition for _, repetition in pairs}))
        runs, plan = grouped.get(key, {}), planned.get(key)
        folds, repetitions = (plan.folds, plan.repetitions) if plan else inferred
        roles = [item.role for item in (plan, *runs.values()) if item and item.role]
        role = roles[0] if roles else role_from_name(key[2])
        conditions[key] = Condition(*key, runs, folds, repetitions, role, margins or {})
    _check_comparable(conditions, allow_different)
    return conditions


def _mismatches(
    conditions: Conditions,
) -> Iterator[tuple[str, tuple[str, str, int, int], str]]:
    """Yield the differences in protocol between the conditions of each data set and backbone.

    Runs are compared that share a fold and repetition. Yields the setting; data set, backbone, fold
    and repetition; and the two values with the runs that have them.
    """
    together: dict[tuple[str, str, int, int], list[RunResult]] = {}
    for (dataset, backbone, _), condition in conditions.items():
        for (fold, repetition), run in condition.runs.items():
            together.setdefault((dataset, backbone, fold, repetition), []).append(run)
    for where, runs in together.items():
        for found in differences(run.protocol for run in runs):
            named = []
            for value in found.values[:2]:
                first = next(run for run in runs if setting(run.protocol, found.key) == value)
                named.append(f"{value} for {first.method} (study {first.study})")
            yield found.key, where, " and ".join(named)


def _check_comparable(conditions: Conditions, allowed: Collection[str]) -> None:
    """Raise ConfigError if runs that will be compared differ in more than is allowed."""
    for key, (dataset, backbone, fold, repetition), values in _mismatches(conditions):
        if key not in allowed and key.partition(".")[0] not in allowed:
            raise ConfigError(
                f"{dataset} × {backbone}, fold {fold}, repetition {repetition}: the runs cannot be "
                f"compared, {key} is {values}; choose runs of one protocol, or compare them on "
                f"purpose with --allow-different {key}."
            )


def comparability_notes(conditions: Conditions) -> list[str]:
    """Return what a reader of a comparison must know of its runs, a sentence each.

    They say what the data are if not recordings of people, in which settings the runs differ
    although they are compared, and whether their protocol is recorded at all.

    Example:
        >>> from afor.bench.stats.design.simulated import simulate_results
        >>> made = collect_conditions(*simulate_results({"adam": 0.0}, datasets=["bci2a"]))
        >>> comparability_notes(made)
        ['bci2a: simulated results, no network was trained.']
    """
    kinds: dict[str, dict[str, None]] = {}
    files: dict[str, None] = {}
    trials: dict[str, None] = {}
    for condition in conditions.values():
        for run in condition.runs.values():
            if setting(run.protocol, SCORED) == "trials":
                trials[condition.dataset] = None
            if UNKNOWN in run.protocol:
                files[run.protocol[UNKNOWN]] = None
            elif run.data_kind in KIND_NOTES:
                kinds.setdefault(run.data_kind, {})[condition.dataset] = None
    notes = [f"{', '.join(names)}: {KIND_NOTES[kind]}." for kind, names in kinds.items()]
    if trials:
        notes.append(
            f"{', '.join(trials)}: scored per trial, because methods have windows of their own."
        )
    notes += [
        f"The protocol of the runs is {text}: whether they are comparable is not known."
        for text in files
    ]
    seen: dict[tuple[str, str, str], str] = {}
    for key, (dataset, backbone, *_), values in _mismatches(conditions):
        seen.setdefault((key, dataset, backbone), values)
    notes += [
        f"{dataset} × {backbone}: compared although {key} is {values}."
        for (key, dataset, backbone), values in seen.items()
    ]
    return notes


def task_conditions(conditions: Conditions, dataset: str, backbone: str) -> list[Condition]:
    """Return the conditions of one data set and backbone."""
    return [c for (d, b, _), c in conditions.items() if (d, b) == (dataset, backbone)]


def dataset_runs(conditions: Conditions, dataset: str) -> list[RunResult]:
    """Return the runs of one data set."""
    return [r for (d, _, _), c in conditions.items() if d == dataset for r in c.runs.values()]


def complete_folds(runs: Sequence[Collection[FoldRepetition]]) -> tuple[list[int], list[int]]:
    """Return the folds that have every repetition in several sets of runs, and the repetitions.

    >>> complete_folds([{(0, 0), (0, 1), (1, 0)}, {(0, 0), (0, 1)}])
    ([0], [0, 1])
    """
    repetitions = sorted({repetition for keys in runs for _, repetition in keys})
    folds = sorted({fold for keys in runs for fold, _ in keys})
    return [
        f for f in folds if all((f, d) in keys for keys in runs for d in repetitions)
    ], repetitions


def paired_fold_values(
    condition: Condition, baseline: Condition, metric: str
) -> tuple[list[int], NDArray[np.float64], NDArray[np.float64]]:
    """Return the common folds and both conditions' fold values over their common repetitions."""
    common = [key for key in condition.runs if key in baseline.runs]
    ours, theirs = condition.fold_values(metric, common), baseline.fold_values(metric, common)
    folds = sorted(ours)
    return folds, np.array([ours[f] for f in folds]), np.array([theirs[f] for f in folds])


def mean_of_repetitions(values: Mapping[FoldRepetition, float]) -> dict[int, float]:
    """Average over the repetitions of each fold; folds come out sorted.

    >>> mean_of_repetitions({(1, 0): 0.5, (0, 0): 0.25, (0, 1): 0.75})
    {0: 0.5, 1: 0.5}
    """
    by_fold: dict[int, list[float]] = {}
    for (fold, _), value in sorted(values.items()):
        by_fold.setdefault(fold, []).append(value)
    return {fold: math.fsum(values) / len(values) for fold, values in by_fold.items()}


def mean_sd(values: Sequence[float]) -> tuple[float, float, int]:
    """Return mean, SD with n - 1, and n; NaN where a value is undefined.

    >>> mean_sd([1.0, 2.0, 3.0])
    (2.0, 1.0, 3)
    """
    n = len(values)
    mean = math.fsum(values) / n if n else math.nan
    sd = math.hypot(*(v - mean for v in values)) / math.sqrt(n - 1) if n > 1 else math.nan
    return mean, sd, n


def _same(a: RunResult, b: RunResult) -> bool:
    return (bool(a.key) and a.key == b.key) or dict(a.metrics) == dict(b.metrics)


def _paper_order(keys: list[ConditionKey]) -> list[ConditionKey]:
    datasets = in_paper_order([k[0] for k in keys], DATASET_LABELS)
    backbones = in_paper_order([k[1] for k in keys], BACKBONE_LABELS)
    methods = order_methods(k[2] for k in keys)
    return sorted(
        keys, key=lambda k: (datasets.index(k[0]), backbones.index(k[1]), methods.index(k[2]))
    )
