"""Limit the time of a run, after which its worker counts as hanging."""

from bisect import insort
from collections.abc import Mapping, Sequence
from typing import Any

from afor.bench.study.planned_runs import canonical

FACTOR = 20.0  # times the median of similar runs
LEAST_S = 600.0
UNKNOWN_S = 86_400.0  # while no similar run has ended
UNUSUAL_FACTOR, UNUSUAL_LEAST_S = 5.0, 60.0  # when `afor status` reports a run

SimilarityKey = tuple[str, str, str]  # data set, backbone with its settings, optimizer


class TimeLimits:
    """Time limits of the runs of a study.

    Args:
        fixed_s: The limit of every run in seconds; None derives it from measured runs.

    >>> limits = TimeLimits()
    >>> limits.add(("deap", "hslt", "adam"), 100.0)
    >>> limits.limit_s(("deap", "hslt", "adam")), limits.limit_s(("deap", "eegnet", "adam"))
    (2000.0, 86400.0)
    """

    def __init__(self, fixed_s: float | None = None) -> None:
        self.fixed_s = fixed_s
        self._seconds: dict[tuple[str, ...], list[float]] = {}

    def add(self, key: SimilarityKey, seconds: float) -> None:
        """Add the time of a finished run."""
        insort(self._seconds.setdefault(key, []), seconds)
        insort(self._seconds.setdefault(key[:2], []), seconds)

    def usual_s(self, key: SimilarityKey) -> float | None:
        """Return the median time of the same condition, else of the same data set and backbone."""
        measured = self._seconds.get(key) or self._seconds.get(key[:2])
        return measured[len(measured) // 2] if measured else None

    def limit_s(self, key: SimilarityKey) -> float:
        """Return the seconds after which a run is killed."""
        if self.fixed_s is not None:
            return self.fixed_s
        usual_s = self.usual_s(key)
        return UNKNOWN_S if usual_s is None else max(FACTOR * usual_s, LEAST_S)

    def bundle_limit_s(self, keys: Sequence[SimilarityKey]) -> float:
        """Return the seconds after which runs that are trained together are killed."""
        if self.fixed_s is None and any(self.usual_s(key) is None for key in keys):
            return UNKNOWN_S
        return sum(self.limit_s(key) for key in keys)

    def is_unusual(self, key: SimilarityKey, seconds: float) -> bool:
        """Tell whether a run takes much longer than similar runs."""
        usual_s = self.usual_s(key)
        return usual_s is not None and seconds > max(UNUSUAL_FACTOR * usual_s, UNUSUAL_LEAST_S)


def similarity_key(dataset: str, spec: Mapping[str, Any]) -> SimilarityKey:
    """Return the key of similar runs: data set, network with its settings, optimizer."""
    return dataset, canonical(spec["backbone"]), str(spec["optimizer"]["name"])
