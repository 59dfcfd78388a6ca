"""How long a run may take before its worker counts as hanging, from the runs of its like."""

from bisect import insort
from collections.abc import Mapping
from typing import Any

from afor.bench.study.plan import canonical

FACTOR = 20.0  # times the median of its like
LEAST_S = 600.0
UNKNOWN_S = 86_400.0  # while no run of its like has ended
UNUSUAL_FACTOR, UNUSUAL_LEAST_S = 5.0, 60.0  # from when on `afor status` calls a run long

Like = tuple[str, str, str]  # data set, backbone, optimizer


class TimeLimits:
    """The limits of a study's runs.

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

    def add(self, like: Like, seconds: float) -> None:
        """Take note of a run that ended."""
        insort(self._seconds.setdefault(like, []), seconds)
        insort(self._seconds.setdefault(like[:2], []), seconds)

    def usual_s(self, like: Like) -> float | None:
        """Return the median of the same cell, else of the same data set and backbone."""
        measured = self._seconds.get(like) or self._seconds.get(like[:2])
        return measured[len(measured) // 2] if measured else None

    def limit_s(self, like: Like) -> float:
        """Return the seconds after which a run is ended."""
        if self.fixed_s is not None:
            return self.fixed_s
        usual_s = self.usual_s(like)
        return UNKNOWN_S if usual_s is None else max(FACTOR * usual_s, LEAST_S)

    def is_unusual(self, like: Like, seconds: float) -> bool:
        """Tell whether a run has been going on for much longer than those of its like."""
        usual_s = self.usual_s(like)
        return usual_s is not None and seconds > max(UNUSUAL_FACTOR * usual_s, UNUSUAL_LEAST_S)


def like_of(dataset: str, spec: Mapping[str, Any]) -> Like:
    """Return what decides how long a run takes: networks of other settings are not alike."""
    return dataset, canonical(spec["backbone"]), str(spec["optimizer"]["name"])
