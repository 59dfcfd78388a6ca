"""Report the state of a store: counts per condition, runs in progress, time left.

The driver lists the runs in progress in a file beside the store.
"""

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from afor.bench.common.text import counted, printable
from afor.bench.execution.timing.run_times import RunTimes, clock
from afor.bench.store.database import Store, StoredRun
from afor.bench.store.lock import driver_of
from afor.bench.store.spool import spool_folder
from afor.bench.study.planned_runs import PlannedRun, describe
from afor.bench.study.protocol import KIND_NOTES

FILE = "running.json"


@dataclass(frozen=True)
class RunningRun:
    """A run in progress."""

    key: str
    worker: str
    since: float  # seconds since 1970
    together: int = 1  # runs that the worker trains at once


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
            text = json.dumps([asdict(run) for run in self._runs.values()])
            temporary.write_text(text, "utf-8")
            temporary.replace(self._path)


def read_running(spool: Path) -> list[RunningRun]:
    """Return the runs in progress; none if the file is missing or malformed."""
    try:
        rows = json.loads((spool / FILE).read_text("utf-8"))
        return [
            RunningRun(
                str(row["key"]),
                str(row["worker"]),
                float(row["since"]),
                int(row.get("together", 1)),
            )
            for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
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
            condition = (run.dataset, run.backbone, run.optimizer)
            grid.setdefault(condition, Counter())[run.status] += 1
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
                        "optimizer": condition[2],
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
        key = (planned.dataset, planned.backbone, planned.optimizer)
        seconds = max(time.time() - running.since, 0.0)
        rows.append(
            {
                "key": running.key,
                "run": describe(planned),
                "worker": running.worker,
                "seconds": seconds,
                "usual_seconds": times.usual_s(key),
                # The usual time of a bundled run is its share.
                "unusually_long": times.is_unusual(key, seconds / max(running.together, 1)),
            }
        )
    return sorted(rows, key=lambda row: -row["seconds"])


def remaining_s(store: Store, runs: Sequence[PlannedRun]) -> float | None:
    """Return the seconds of training that a plan still needs, estimated from stored runs."""
    statuses = store.statuses()
    waiting = {run.key: run.condition for run in runs if run.key not in statuses}
    return _times(store.runs()).total(waiting.values())


def print_status(status: dict[str, Any]) -> None:
    """Print the counts as tables."""
    console = Console(highlight=False)
    for study in status["studies"]:
        counts = ", ".join(f"{study[word]} {word}" for word in STATUSES if study[word])
        left = study["seconds_of_work_left"]
        hint = f"; {clock(left)} of training left" if left else ""
        name = printable(study["study"])
        console.print(f"{name}: {counted(study['planned'], 'run')}: {counts}{hint}", markup=False)
        for dataset, kind in study["data"].items():
            if kind in KIND_NOTES:
                console.print(f"{printable(dataset)}: {KIND_NOTES[kind]}", markup=False)
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0))
        for heading in ("dataset", "backbone", "optimizer"):
            table.add_column(heading)
        columns = [word for word in STATUSES if study[word]]
        for word in columns:
            table.add_column(word, justify="right")
        for condition in study["conditions"]:
            numbers = [str(condition[word]) for word in columns]
            names = (condition["dataset"], condition["backbone"], condition["optimizer"])
            table.add_row(*(Text(printable(name)) for name in names), *numbers)
        console.print(table)
    for line in _driver_lines(status):
        console.print(line, markup=False, soft_wrap=True)
    if not status["studies"]:
        console.print(f"{status['store']} holds no study yet.", markup=False)


def _driver_lines(status: dict[str, Any]) -> list[str]:
    """Return lines about the driver and about runs that take unusually long."""
    if status["driver"] is None:
        return ["No driver is running."]
    lines = [
        f"Driver: process {status['driver']}, {counted(len(status['running']), 'run')} under way."
    ]
    lines += [
        f"UNUSUALLY LONG: {printable(run['run'])} ({printable(run['key'][:12])}), "
        f"{clock(run['seconds'])} on {printable(run['worker'])}; "
        f"usual: {clock(run['usual_seconds'])}."
        for run in status["running"]
        if run["unusually_long"]
    ]
    return lines


def _times(runs: Sequence[StoredRun]) -> RunTimes:
    times = RunTimes()
    for run in runs:
        if run.status in ("done", "diverged"):
            times.add((run.dataset, run.backbone, run.optimizer), run.elapsed_s)
    return times


def _left(runs: Sequence[StoredRun]) -> float | None:
    waiting = [(run.dataset, run.backbone, run.optimizer) for run in runs if run.status == "open"]
    return _times(runs).total(waiting)
