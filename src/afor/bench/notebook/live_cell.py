"""What a cell of a notebook shows while `compare` trains: the progress and the results so far."""

import base64
import importlib
import sys
import time
from collections.abc import Callable
from html import escape
from typing import Any

from afor.bench.common.errors import AforError
from afor.bench.execution.progress import Progress
from afor.bench.notebook.results import StudyResults
from afor.bench.training.record import FinishedRun


class LiveCell:
    """Text, and below it the verdict, the table and the folds so far; always in the same place.

    Args:
        read: Reads the results so far.
    """

    EVERY_S = 5.0  # results are read at most so often while runs end

    def __init__(self, read: Callable[[], StudyResults]) -> None:
        display: Any = importlib.import_module("IPython.display")
        self._make, self._read = display.HTML, read
        self._handle = display.display(self._make(""), display_id=True)
        self._said: list[str] = []
        self._results = ""
        self._read_at = 0.0

    @classmethod
    def here(cls, read: Callable[[], StudyResults]) -> "LiveCell | None":
        """Return a display of this cell; None outside of a notebook."""
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        return cls(read) if hasattr(shell, "kernel") else None

    def say(self, text: str) -> None:
        """Show a text that stays."""
        self._said.append(text)
        self.show("")

    def show(self, line: str) -> None:
        """Show a line of progress, which replaces the last one."""
        text = escape("\n".join(filter(None, [*self._said, line])))
        self._handle.update(self._make(f"<pre>{text}</pre>{self._results}"))

    def read(self, *, now: bool = False) -> None:
        """Read the results so far, if the last time is some seconds ago or `now`."""
        if not now and time.monotonic() - self._read_at < self.EVERY_S:
            return
        try:
            results = self._read()
            image = base64.b64encode(results.plot_folds()._repr_png_()).decode()
        except AforError:  # no fold has all methods yet
            return
        picture = f'<img width="600" src="data:image/png;base64,{image}">'
        self._results = results._repr_html_() + picture
        self._read_at = time.monotonic()


class CellProgress(Progress):
    """The progress of a study in a cell, as a `Watcher` of the runner.

    Args:
        title: Name of the study.
        workers: Number of parallel processes.
        cell: Where it is shown.
        has_results: Whether the runs are results, and not those of a search.
    """

    def __init__(self, title: str, workers: int, cell: LiveCell, *, has_results: bool) -> None:
        super().__init__(title, workers)
        self.is_live = False
        self._cell, self._has_results = cell, has_results

    def ended(self, run: FinishedRun) -> None:
        """Count a finished run, and show the results so far."""
        super().ended(run)
        if self._has_results:
            self._cell.read()
        self._cell.show(self.line())

    def __exit__(self, error_type: type[BaseException] | None, *rest: object) -> None:
        super().__exit__(error_type, *rest)
        if self._has_results and error_type is None:
            self._cell.read(now=True)
        self._cell.say(self.line() if self._planned else "")

    def _print(self, text: str) -> None:
        self._printed_at = time.monotonic()
        if text.startswith(f"{self._title}: "):
            self._cell.show(text)
        else:  # on a run that failed or on the kind of the data
            self._cell.say(text)
