"""When a new worker may be started, and when to give up, judged by those that never began a run.

A worker that ends by itself before its first run will do so again: a few in a row are the end of
the study. A worker that somebody killed says nothing about the next one, nor about the run it was
given: it is replaced, after a pause that grows, for as long as there is hope.
"""

import time
from collections.abc import Callable

MAX_FALSE_STARTS = 5  # workers in a row that ended by themselves
# A system out of memory, or one that is being emptied for others, may need minutes to recover.
GIVE_UP_AFTER_S = 600.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0


class WorkerStarts:
    """The workers in a row that never began a run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._fallen = self._killed = 0
        self._since = self._not_before = clock()

    def began_run(self) -> None:
        """Forget the bad starts: a worker has come as far as its first run."""
        self._fallen = self._killed = 0
        self._not_before = self._clock()

    def ended_early(self, *, was_killed: bool) -> None:
        """Count a worker that ended before its first run."""
        moment = self._clock()
        if not self._fallen and not self._killed:
            self._since = moment
        if was_killed:
            pause_s = min(FIRST_PAUSE_S * 2.0 ** min(self._killed, 30), LONGEST_PAUSE_S)
            self._not_before = moment + pause_s
            self._killed += 1
        else:
            self._fallen += 1

    def pause_s(self) -> float:
        """Return the seconds until the next worker may be started."""
        return max(self._not_before - self._clock(), 0.0)

    def verdict(self) -> str:
        """Say why no further worker is worth a try; empty while one is."""
        if self._fallen >= MAX_FALSE_STARTS:
            return f"{self._fallen} workers in a row ended before their first run"
        elapsed_s = self._clock() - self._since
        if self._killed and elapsed_s >= GIVE_UP_AFTER_S:
            return (
                f"{self._killed} workers in a row were killed before their first run, for "
                f"{elapsed_s / 60:.0f} minutes"
            )
        return ""
