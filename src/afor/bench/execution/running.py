"""List the runs in progress in a file: the driver writes it, `afor status` reads it."""

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

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
