"""Decide when to start a new worker and when to give up, from workers that never started a run.

A worker that exits by itself before its first run will do so again: a few in a row end the study.
A worker that was killed from outside is replaced, after a pause that grows, up to a time limit.
"""

import time
from collections.abc import Callable

MAX_FALSE_STARTS = 5  # workers in a row that exited by themselves
# A machine out of memory may need minutes to recover.
GIVE_UP_AFTER_S = 600.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0


class WorkerStarts:
    """Counts the workers in a row that never started a run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._exited = self._killed = 0
        self._since = self._not_before = clock()

    def began_run(self) -> None:
        """Reset the failure counters: a worker reached its first run."""
        self._exited = self._killed = 0
        self._not_before = self._clock()

    def ended_early(self, *, was_killed: bool) -> None:
        """Count a worker that ended before its first run."""
        moment = self._clock()
        if not self._exited and not self._killed:
            self._since = moment
        if was_killed:
            pause_s = min(FIRST_PAUSE_S * 2.0 ** min(self._killed, 30), LONGEST_PAUSE_S)
            self._not_before = moment + pause_s
            self._killed += 1
        else:
            self._exited += 1

    def pause_s(self) -> float:
        """Return the seconds until the next worker may start."""
        return max(self._not_before - self._clock(), 0.0)

    def verdict(self) -> str:
        """Return why no further worker is started; empty while one may be."""
        if self._exited >= MAX_FALSE_STARTS:
            return f"{self._exited} workers in a row ended before their first run"
        elapsed_s = self._clock() - self._since
        if self._killed and elapsed_s >= GIVE_UP_AFTER_S:
            return (
                f"{self._killed} workers in a row were killed before their first run, for "
                f"{elapsed_s / 60:.0f} minutes"
            )
        return ""
