"""A progress bar for a notebook or a terminal, as a `Watcher` of the runner."""

from collections.abc import Callable, Mapping
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from afor.bench.study.planned_runs import PlannedRun
from afor.bench.training.record import FinishedRun


class ProgressBar:
    """Shows how many runs have ended. Use it as a context manager."""

    def __init__(self, title: str) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeRemainingColumn(), refresh_per_second=4,
        )  # fmt: skip
        self._task: Any = self._bar.add_task(f"{title}: reading", total=None)
        self._title = title
        self._ended: set[str] = set()

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def preparing(self, dataset: str) -> Callable[[int, int, str], None]:
        """Return a callback that shows how many subjects have been read."""

        def show(done: int, total: int, _subject: str) -> None:
            text = f"{self._title}: reading {dataset}"
            self._bar.update(self._task, description=text, completed=done, total=total)

        return show

    def planned(self, runs: tuple[PlannedRun, ...], statuses: Mapping[str, str]) -> None:
        """Show the number of runs and of those that ended earlier."""
        keys = {run.key for run in runs}
        self._ended = keys.intersection(statuses)
        text = f"{self._title}: starting workers"
        ended = len(self._ended)
        self._bar.reset(self._task, total=len(keys), completed=ended, description=text)

    def started(self, key: str, worker: str, together: int = 1) -> None:  # noqa: ARG002
        """Say that runs are trained."""
        self._bar.update(self._task, description=f"{self._title}: training")

    def ended(self, run: FinishedRun) -> None:
        """Count a run that was stored."""
        self._ended.add(run.key)
        self._bar.update(self._task, completed=len(self._ended))
