"""Estimate the time of runs from the times of finished ones."""

from collections.abc import Iterable

ConditionKey = tuple[str, str, str]  # data set, backbone, optimizer


class Pace:
    """Mean seconds of a run: of its condition, else of its backbone, its data set, or any run.

    >>> pace = Pace()
    >>> pace.add("deap", "eegnet", "adam", 10.0)
    >>> pace.total([("deap", "eegnet", "adam"), ("deap", "eegnet", "afor")])
    20.0
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], tuple[float, int]] = {}

    def add(self, dataset: str, backbone: str, optimizer: str, seconds: float) -> None:
        """Add the time of a finished run."""
        condition = (dataset, backbone, optimizer)
        for length in range(len(condition) + 1):
            total, count = self._sums.get(condition[:length], (0.0, 0))
            self._sums[condition[:length]] = (total + seconds, count + 1)

    def total(self, conditions: Iterable[ConditionKey]) -> float | None:
        """Return the seconds that runs take one after another; None without a finished run."""
        if not self._sums:
            return None
        seconds = 0.0
        for condition in conditions:
            measured = next(condition[:n] for n in (3, 2, 1, 0) if condition[:n] in self._sums)
            total, count = self._sums[measured]
            seconds += total / count
        return seconds


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
