"""Estimate the time of a run from finished ones: for progress, and for the limit of a run."""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from afor.bench.study.planned_runs import canonical

FACTOR = 20.0  # times the usual time of similar runs
LEAST_S = 600.0
UNKNOWN_S = 86_400.0  # while no similar run has ended
UNUSUAL_FACTOR, UNUSUAL_LEAST_S = 5.0, 60.0  # when `afor status` reports a run

RunKind = tuple[str, str, str]  # data set, backbone, optimizer


class RunTimes:
    """The usual time of a run: the median of its kind, else of its backbone, data set, or any run.

    Args:
        fixed_limit_s: The limit of every run in seconds; None derives it from measured runs.

    >>> times = RunTimes()
    >>> times.add(("deap", "hslt", "adam"), 100.0)
    >>> times.total([("deap", "hslt", "adam"), ("deap", "eegnet", "afor")])
    200.0
    >>> times.limit_s(("deap", "hslt", "adam")), times.limit_s(("deap", "eegnet", "adam"))
    (2000.0, 86400.0)
    """

    def __init__(self, fixed_limit_s: float | None = None) -> None:
        self.fixed_limit_s = fixed_limit_s
        self._seconds: dict[tuple[str, ...], list[float]] = {}

    def add(self, kind: RunKind, seconds: float) -> None:
        """Add the time of a finished run."""
        for length in range(len(kind) + 1):
            insort(self._seconds.setdefault(kind[:length], []), seconds)

    def usual_s(self, kind: RunKind, alike: int = 2) -> float | None:
        """Return the usual time of a run, or None if nothing like it was measured.

        A measured run must share at least so many of data set, backbone and optimizer as `alike`
        says.
        """
        for length in range(len(kind), alike - 1, -1):
            if measured := self._seconds.get(kind[:length]):
                return median(measured)
        return None

    def total(self, kinds: Iterable[RunKind]) -> float | None:
        """Return the seconds that runs take one after another; None without a finished run."""
        if not self._seconds:
            return None
        counts = Counter(kinds)
        return sum((n * (self.usual_s(kind, alike=0) or 0.0) for kind, n in counts.items()), 0.0)

    def limit_s(self, kind: RunKind) -> float:
        """Return the seconds after which a run is killed."""
        if self.fixed_limit_s is not None:
            return self.fixed_limit_s
        usual_s = self.usual_s(kind)
        return UNKNOWN_S if usual_s is None else max(FACTOR * usual_s, LEAST_S)

    def bundle_limit_s(self, kinds: Sequence[RunKind]) -> float:
        """Return the seconds after which runs that are trained together are killed."""
        if self.fixed_limit_s is None and any(self.usual_s(kind) is None for kind in kinds):
            return UNKNOWN_S
        return sum(self.limit_s(kind) for kind in kinds)

    def is_unusual(self, kind: RunKind, seconds: float) -> bool:
        """Tell whether a run takes much longer than similar runs."""
        usual_s = self.usual_s(kind)
        return usual_s is not None and seconds > max(UNUSUAL_FACTOR * usual_s, UNUSUAL_LEAST_S)


def run_kind(dataset: str, spec: Mapping[str, Any]) -> RunKind:
    """Return what makes runs alike: data set, network with its settings, optimizer."""
    return dataset, canonical(spec["backbone"]), str(spec["optimizer"]["name"])


def clock(seconds: float) -> str:
    """Format a duration.

    >>> clock(42), clock(200), clock(7300), clock(200_000)
    ('42 s', '3 min 20 s', '2 h 01 min', '2 d 7 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
