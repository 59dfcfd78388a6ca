"""Report the state of a store: counts per condition, runs in progress, time left.

The driver lists the runs in progress in a file beside the store.
"""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from afor.bench.execution.run_times import RunTimes
from afor.bench.store.database import Store, StoredRun
from afor.bench.store.lock import driver_of
from afor.bench.store.spool import spool_folder
from afor.bench.study.planned_runs import PlannedRun, run_label

FILE = "running.json"


@dataclass(frozen=True)
class RunningRun:
    """A run in progress."""

    key: str
    worker: str
    since: float  # seconds since 1970
    together: int = 1  # runs that the worker trains at once


_RUNNING = TypeAdapter(list[RunningRun])


class RunningFile:
    """Keeps the file up to date; write errors are ignored because only `afor status` needs it."""

    def __init__(self, spool: Path) -> None:
        self._path = spool / FILE
        self._runs: dict[str, RunningRun] = {}

    def began(self, key: str, worker: str, together: int = 1) -> None:
        """Add a run that started, one of several that its worker trains at once."""
        self._runs[key] = RunningRun(key, worker, time.time(), together)
        self._write()

    def ended(self, key: str) -> None:
        """Remove a run that ended or lost its worker."""
        if self._runs.pop(key, None) is not None:
            self._write()

    def close(self) -> None:
        """Delete the file."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        temporary = self._path.with_name(f".{FILE}.{os.getpid()}.tmp")
        with contextlib.suppress(OSError):
            temporary.write_bytes(_RUNNING.dump_json(list(self._runs.values())))
            temporary.replace(self._path)


def read_running(spool: Path) -> list[RunningRun]:
    """Return the runs in progress; none if the file is missing or malformed."""
    try:
        return _RUNNING.validate_json((spool / FILE).read_bytes())
    except (OSError, ValidationError):
        return []


STATUSES = ("done", "diverged", "failed", "open")


def status_of(store: Store) -> dict[str, Any]:
    """Return the counts of every study of a store and the runs in progress, ready for JSON."""
    runs = store.runs()
    driver = driver_of(store.path)
    studies = []
    for name in dict.fromkeys(run.study for run in runs):
        of_study = [run for run in runs if run.study == name]
        grid: dict[tuple[str, str, str], Counter[str]] = {}
        for run in of_study:
            grid.setdefault(run.condition, Counter())[run.status] += 1
        counts = Counter(run.status for run in of_study)
        studies.append(
            {
                "study": name,
                "planned": len(of_study),
                **{word: counts[word] for word in STATUSES},
                "seconds_of_work_left": _left(of_study),
                "data": {run.dataset: run.data_kind for run in of_study},
                "last_finished_at": max((run.finished_at for run in of_study), default=""),
                "conditions": [
                    {
                        "dataset": condition[0],
                        "backbone": condition[1],
                        "method": condition[2],
                        **{word: count[word] for word in STATUSES},
                    }
                    for condition, count in grid.items()
                ],
            }
        )
    return {
        "store": str(store.path),
        "driver": driver,  # the process that holds the write lock
        "running": _running(store, runs) if driver else [],
        "studies": studies,
    }


def _running(store: Store, runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    times = _times(runs)
    by_key = {run.key: run for run in runs}
    rows = []
    for running in read_running(spool_folder(store.path)):
        planned = by_key.get(running.key)
        if planned is None:
            continue
        seconds = max(time.time() - running.since, 0.0)
        rows.append(
            {
                "key": running.key,
                "run": run_label(planned),
                "worker": running.worker,
                "seconds": seconds,
                "usual_seconds": times.usual_s(planned.condition),
                # The usual time of a bundled run is its share.
                "unusually_long": times.is_unusual(
                    planned.condition, seconds / max(running.together, 1)
                ),
            }
        )
    return sorted(rows, key=lambda row: -row["seconds"])


def remaining_s(store: Store, runs: Sequence[PlannedRun]) -> float | None:
    """Return the seconds of training that a plan still needs, estimated from stored runs."""
    statuses = store.statuses()
    waiting = {run.key: run.condition for run in runs if run.key not in statuses}
    return _times(store.runs()).total(waiting.values())


def _times(runs: Sequence[StoredRun]) -> RunTimes:
    times = RunTimes()
    for run in runs:
        if run.status in ("done", "diverged"):
            times.add(run.condition, run.elapsed_s)
    return times


def _left(runs: Sequence[StoredRun]) -> float | None:
    return _times(runs).total(run.condition for run in runs if run.status == "open")
