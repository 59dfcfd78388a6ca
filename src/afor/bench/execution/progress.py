"""Show the progress of a study on stderr: a live bar on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from afor.bench.common.text import counted, printable
from afor.bench.execution.run_times import RunTimes, clock
from afor.bench.study.planned_runs import PlannedRun, run_label
from afor.bench.study.protocol import DATA_KIND, KIND_NOTES, setting
from afor.bench.training.record import FinishedRun

PLAIN_EVERY_S = 10.0
MAX_BAR_WIDTH = 60


class Progress:
    """A `Watcher` of the runner that prints progress. Use it as a context manager."""

    def __init__(self, title: str, workers: int) -> None:
        # A live bar moves the cursor. `sys.stderr` may filter such sequences; its raw stream
        # does not.
        raw = getattr(sys.stderr, "raw", None) if sys.stderr.isatty() else None
        self.console = Console(file=raw, stderr=True, highlight=False)
        self.is_live = self.console.is_terminal and not self.console.is_dumb_terminal
        self._title = title
        self._workers = workers
        self._live: Any = None
        self._planned: dict[str, list[PlannedRun]] = {}
        self._status: dict[str, str] = {}
        self._running: dict[str, tuple[float, float]] = {}  # start, and its share of a worker
        self._times = RunTimes()
        self._started = time.monotonic()
        self._printed_at = self._started
        self._preparing = ""
        self._has_news = False  # whether a run ended since the last line
        self._first_ended = threading.Event()  # or the end of the study

    def __enter__(self) -> "Progress":
        if self.is_live:
            self._live = Live(
                console=self.console, get_renderable=self._picture, refresh_per_second=4
            )
            self._live.start()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self._first_ended.set()
        if self._live is not None:
            self._live.stop()
        elif self._planned and error_type is None and self._has_news:
            self._print(self.line())

    def preparing(self, dataset: str) -> Callable[[int, int, str], None]:
        """Return a callback that shows how many subjects of a data set have been read."""

        def show(done: int, total: int, subject: str) -> None:
            self._preparing = f"reading {dataset}: {done} of {total} {subject}" if subject else ""
            if done == 0 and not self.is_live:
                self._print(f"{self._title}: reading {dataset}, {total} subjects")

        return show

    def planned(self, runs: tuple[PlannedRun, ...], statuses: Mapping[str, str]) -> None:
        """Register all planned runs."""
        for planned_run in runs:
            self._planned.setdefault(planned_run.key, []).append(planned_run)
        self._status = {key: statuses[key] for key in self._planned if key in statuses}
        kinds = {run.dataset: setting(run.protocol, DATA_KIND) for run in runs}
        for dataset, kind in kinds.items():
            if kind in KIND_NOTES:
                self._print(f"{dataset}: {KIND_NOTES[kind]}")
        if not self.is_live:
            self._print(self.line())
            threading.Thread(target=self._print_until_first_end, daemon=True).start()

    def started(self, key: str, worker: str, together: int = 1) -> None:  # noqa: ARG002
        """Register the start of a run, one of several that its worker trains at once."""
        self._running[key] = (time.monotonic(), 1.0 / together)

    def ended(self, run: FinishedRun) -> None:
        """Count a finished run; print a line if it failed or diverged."""
        self._first_ended.set()
        self._running.pop(run.key, None)
        self._status[run.key] = run.status
        self._has_news = True
        planned_run = self._planned[run.key][0]
        self._times.add(planned_run.condition, run.elapsed_s)
        if run.status != "done":
            self._print(
                printable(f"{run.status}: {run_label(planned_run)} ({run.key[:12]}): {run.reason}")
            )
        elif not self.is_live and time.monotonic() - self._printed_at > PLAIN_EVERY_S:
            self._print(self.line())
            self._has_news = False

    def line(self) -> str:
        """Return the progress in one line."""
        counts = Counter(self._status.get(key, "open") for key in self._planned)
        ended = len(self._planned) - counts["open"]
        parts = [f"{self._title}: {ended} of {counted(len(self._planned), 'run')}"]
        parts += [f"{counts[word]} {word}" for word in ("diverged", "failed") if counts[word]]
        if counts["open"] and not self._first_ended.is_set():
            starting = f"starting {counted(min(self._workers, counts['open']), 'worker')}"
            parts.append(f"{len(self._running)} training" if self._running else starting)
        parts.append(f"{clock(time.monotonic() - self._started)} elapsed")
        if counts["open"] and (left := self._seconds_left()) is not None:
            parts.append(f"about {clock(left)} left")
        return " · ".join(parts)

    def _print_until_first_end(self) -> None:
        """Print a line now and then while the workers import torch and train their first runs."""
        while not self._first_ended.wait(PLAIN_EVERY_S):
            self._print(self.line())

    def _seconds_left(self) -> float | None:
        waiting = [runs[0] for key, runs in self._planned.items() if key not in self._status]
        seconds = self._times.total(run.condition for run in waiting)
        if seconds is None:
            return None
        now = time.monotonic()
        spent = sum((now - started) * share for started, share in self._running.values())
        busy = max(sum(share for _, share in self._running.values()), 1.0)  # workers
        return max(seconds - spent, 0.0) / (busy if self._running else self._workers)

    def _print(self, text: str) -> None:
        self._printed_at = time.monotonic()
        if self.is_live:
            self.console.print(text, markup=False)
        else:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def _picture(self) -> RenderableType:
        """Return a bar and the line below it, which is cut off where it is too long."""
        if not self._planned:
            return Text(
                self._preparing or f"{self._title}: planning", no_wrap=True, overflow="ellipsis"
            )
        width = min(MAX_BAR_WIDTH, self.console.width)
        bar = ProgressBar(total=len(self._planned), completed=len(self._status), width=width)
        picture = Table.grid()
        picture.add_row(bar)
        picture.add_row(Text(self.line(), no_wrap=True, overflow="ellipsis"))
        return picture
