"""The runs of a plan: what identifies each of them, and how many a condition has."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from afor.bench.data.splits import Manifest
from afor.bench.study.roles import Role
from afor.bench.study.schema import OptimizerEntry, Study

if TYPE_CHECKING:
    from afor.bench.data.window_source import ExpectedWindows, WindowSource
    from afor.bench.study.bundling import Bundling

    Source = WindowSource | ExpectedWindows

Spec = dict[str, Any]
RUN_FIELDS = ("dataset", "backbone", "method", "fold", "repetition")  # what a run is, in words
# The learning rate found by a search for (data set, backbone, optimizer entry).
FindRate = Callable[[str, str, OptimizerEntry], float]


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study: its condition, fold and repetition, its spec and its key."""

    dataset: str
    backbone: str
    method: str  # name of the entry; in a search followed by the learning rate
    fold: int
    repetition: int
    key: str
    spec: Spec
    entry: str  # the entry without the learning rate
    rate: float
    role: Role | None  # of its method
    protocol: Mapping[str, str] = field(default_factory=dict)  # see `study.protocol`
    bundle_key: str = ""  # equal for runs that may be trained as one network; empty: none

    @property
    def condition(self) -> tuple[str, str, str]:
        """Return data set, backbone and method."""
        return self.dataset, self.backbone, self.method


@dataclass(frozen=True)
class ExpectedRuns:
    """The number of folds and repetitions that a study plans for one condition."""

    dataset: str
    backbone: str
    method: str
    folds: int
    repetitions: int
    role: Role | None = None  # of its method; None in files without roles


@dataclass(frozen=True)
class StudyPlan:
    """All runs of a study in the order of execution, with their splits and windows."""

    study: Study
    runs: tuple[PlannedRun, ...]
    manifests: Mapping[str, Manifest]
    sources: Mapping[str, "Source"]
    bundling: Mapping[tuple[str, str], "Bundling"] = field(default_factory=dict)  # data, network

    def expected(self) -> list[ExpectedRuns]:
        """Count the folds and repetitions of each condition."""
        return count_expected(self.runs)


def run_key(spec: Spec) -> str:
    """Return the SHA-256 of a spec's canonical JSON.

    >>> run_key({"b": 1, "a": [0.1]}) == run_key({"a": [0.1], "b": 1})
    True
    """
    return hashlib.sha256(canonical(spec).encode()).hexdigest()


def canonical(value: Any) -> str:
    """Return the canonical JSON of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def count_expected(runs: Iterable[Any]) -> list[ExpectedRuns]:
    """Count folds and repetitions per condition, in the order in which conditions first appear.

    The runs are planned, stored or finished.
    """
    by_condition: dict[tuple[str, str, str], list[Any]] = {}
    for run in runs:
        by_condition.setdefault((run.dataset, run.backbone, run.method), []).append(run)
    return [
        ExpectedRuns(
            *condition,
            folds=len({run.fold for run in members}),
            repetitions=len({run.repetition for run in members}),
            role=members[0].role,
        )
        for condition, members in by_condition.items()
    ]


def run_label(run: Any) -> str:
    """Return the name of a planned or stored run for messages.

    >>> from types import SimpleNamespace
    >>> condition = {"dataset": "deap", "backbone": "hslt", "method": "adam"}
    >>> run_label(SimpleNamespace(**condition, fold=3, repetition=0))
    'deap × hslt × adam, fold 3, repetition 0'
    """
    condition = f"{run.dataset} × {run.backbone} × {run.method}"
    return f"{condition}, fold {run.fold}, repetition {run.repetition}"
