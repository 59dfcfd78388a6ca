"""How long runs will take, from those that were measured; nothing is guessed without one."""

from collections.abc import Iterable

Place = tuple[str, str, str]  # data set, backbone, optimizer


class Pace:
    """Mean seconds of a run: of its own cell, else of its backbone, its data set, or any run.

    >>> pace = Pace()
    >>> pace.add("deap", "eegnet", "adam", 10.0)
    >>> pace.total([("deap", "eegnet", "adam"), ("deap", "eegnet", "afor")])
    20.0
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], tuple[float, int]] = {}

    def add(self, dataset: str, backbone: str, optimizer: str, seconds: float) -> None:
        """Take note of a run."""
        place = (dataset, backbone, optimizer)
        for length in range(len(place) + 1):
            total, count = self._sums.get(place[:length], (0.0, 0))
            self._sums[place[:length]] = (total + seconds, count + 1)

    def total(self, places: Iterable[Place]) -> float | None:
        """Return the seconds these runs will take one after another, None if nothing is known."""
        if not self._sums:
            return None
        seconds = 0.0
        for place in places:
            known = next(place[:n] for n in (3, 2, 1, 0) if place[:n] in self._sums)
            total, count = self._sums[known]
            seconds += total / count
        return seconds


def clock(seconds: float) -> str:
    """Write a duration for people.

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
