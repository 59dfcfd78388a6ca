"""`StudyResults`: the results of a study as an object that a notebook shows."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.common.files import write_atomically
from afor.bench.report.figures.results import folds_figure
from afor.bench.report.figures.style import house_style
from afor.bench.report.page import render_report
from afor.bench.report.registry import FROM_RESULTS, build_table, draw_figure, focus
from afor.bench.report.tables.formats import Table, printable, to_html, to_markdown
from afor.bench.report.verdicts import Answer, answers
from afor.bench.stats.diagnosis import diagnose
from afor.bench.stats.groups import Conditions
from afor.bench.stats.results import Results
from afor.bench.store.files import result_rows


@dataclass(frozen=True)
class Shown:
    """A table or figure that a notebook shows; `content` is the object itself."""

    content: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.content, name)


class ShownTable(Shown):
    """A table that a notebook shows as HTML and `print` as Markdown."""

    content: Table

    def __str__(self) -> str:
        return to_markdown(self.content)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = "".join(f"<p><small>{_html(note)}</small></p>" for note in self.content.notes)
        return f"<div>{to_html(self.content)}{notes}</div>"


class ShownFigure(Shown):
    """A Matplotlib figure that a notebook shows as an image, also without ``%matplotlib``."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        with house_style():
            self.content.savefig(file, format="png", dpi=150)
        return file.getvalue()


@dataclass(frozen=True)
class StudyResults:
    """The results of a study, read when it was opened.

    Args:
        results: The runs, and what is asked of them; its first metric is that of the verdict.
        spent: What `compare(minutes=...)` did in its time, and what more time would change.

    Example:
        >>> from afor.bench.stats.design.simulated import simulate_results
        >>> made = simulate_results({"adam": 0.0, "afor": 0.02}, datasets=["bci2a"])
        >>> StudyResults(Results.of(*made)).metric
        'accuracy'
    """

    results: Results
    spent: str = ""

    @property
    def conditions(self) -> Conditions:
        """The runs by data set, backbone and method."""
        return self.results.conditions

    @property
    def baseline(self) -> str:
        """The method that the others are compared with."""
        return self.results.baseline

    @property
    def metric(self) -> str:
        """The metric of verdict and figures."""
        return self.results.metrics[0]

    def table(self, name: str = "main") -> ShownTable:
        """Return a table, by default that of means over folds.

        Args:
            name: One of the tables of `afor table`, such as ``"comparisons"``.

        Raises:
            ConfigError: There is no such table, or the results do not hold what it shows.
        """
        if name not in FROM_RESULTS:
            raise ConfigError(f"No table is called {name!r}. Here: {', '.join(FROM_RESULTS)}.")
        return ShownTable(build_table(name, self.results))

    def verdict(self) -> str:
        """Return what the results show, a paragraph per data set."""
        return "\n".join(answer.text for answer in self._answers())

    def diagnosis(self) -> list[str]:
        """Return what the training and validation curves show, where it is clear."""
        return diagnose(self.results)

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per finished run."""
        return [dict(row) for row in result_rows(self.results.runs)]

    def to_frame(self) -> Any:
        """Return one row per finished run as a pandas DataFrame.

        Raises:
            ConfigError: pandas is not installed; `to_rows` works without it.
        """
        try:
            import pandas as pd
        except ImportError:
            raise ConfigError(
                "to_frame() needs pandas: pip install pandas. to_rows() returns the same as "
                "dictionaries."
            ) from None
        return pd.DataFrame(self.to_rows())

    def plot_gain(self, methods: Sequence[str] = ()) -> ShownFigure:
        """Draw the gain of each method over the baseline.

        Args:
            methods: Methods to draw; empty draws all but controls.

        Returns:
            A figure that the notebook shows; `content` is the Matplotlib figure.
        """
        results = replace(self.results, chosen=tuple(methods)) if methods else self.results
        return ShownFigure(draw_figure("gain", results))

    def plot_folds(
        self,
        method: str | None = None,
        *,
        dataset: str | None = None,
        backbone: str | None = None,
    ) -> ShownFigure:
        """Draw each fold's results of a method and the baseline, joined by a line.

        Args:
            method: The method; None takes AFOR, or else the best one.
            dataset: The data set; None takes the first.
            backbone: The backbone; None takes the first.

        Returns:
            A figure that the notebook shows; `content` is the Matplotlib figure.
        """
        results = self.results.only(dataset, backbone)
        if method is not None:
            results = replace(results, chosen=(method,))
        return ShownFigure(folds_figure(focus(results)))

    def report(self, path: str | Path, title: str = "") -> Path:
        """Write the whole report as one HTML file.

        Args:
            path: The file to write.
            title: Heading of the page; empty takes the name of the study.

        Returns:
            The path.
        """
        write_atomically(Path(path), render_report(self.results, title=title).encode())
        return Path(path)

    def __str__(self) -> str:
        more = "\n\n".join(filter(None, [*self.diagnosis(), self.spent]))
        return f"{self.table()}\n{more}\n" if more else str(self.table())

    def _repr_html_(self) -> str:
        try:
            found = self._answers()
            first = [
                [f"{a.where}. {a.verdict.what}", *a.verdict.lines[1:], a.others] for a in found
            ]
        except ConfigError as error:  # nothing to compare yet
            first = [[str(error)]]
        paragraphs = [
            "<br>".join(
                [f"<strong>{_html(lines[0])}</strong>", *map(_html, filter(None, lines[1:]))]
            )
            for lines in first
        ]
        paragraphs += map(_html, filter(None, [*self.diagnosis(), self.spent]))
        shown = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
        return f"<div>{shown}{self.table()._repr_html_()}</div>"

    def _answers(self) -> list[Answer]:
        self.results.needed_comparisons(self.metric)  # refuses results without any
        return answers(self.results)


def _html(text: str) -> str:
    return escape(printable(text))


def open_results(
    store: str | Path,
    *,
    studies: Sequence[str] = (),
    baseline: str | None = None,
    metric: str | None = None,
    allow_different: Sequence[str] = (),
) -> StudyResults:
    """Open the results of a study that has run, here or elsewhere.

    Args:
        store: The name of a study whose store is ``results/NAME.db``, or the path of a store or of
            a .csv, .json or .parquet file of results.
        studies: Names of the studies to read; empty reads all.
        baseline: The method that the others are compared with; None takes Adam, or else the
            first method.
        metric: The metric of verdict and figures; None takes accuracy.
        allow_different: Settings in which runs that are compared may differ.

    Returns:
        The results, which a notebook shows as verdict and table.

    Raises:
        StoreError: There are no such results.
        ConfigError: The runs cannot be compared, or no run has the metric.

    Example:
        >>> import tempfile
        >>> from afor.bench.stats.design.simulated import simulate_results
        >>> from afor.bench.store.files import results_csv
        >>> path = Path(tempfile.mkdtemp()) / "runs.csv"
        >>> results, _ = simulate_results({"adamw": 0.0, "afor": 0.02}, datasets=["bci2a"])
        >>> _ = path.write_text(results_csv(results))
        >>> open_results(path).baseline
        'adamw'
    """
    opened = Results.open(
        [store], studies=studies, baseline=baseline, allow_different=allow_different
    )
    return StudyResults(opened.by(metric) if metric else opened)
