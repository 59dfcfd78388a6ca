"""`StudyResults`: the results of a study as an object that a notebook shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.common.files import write_atomically
from afor.bench.report.figures.results import folds_figure, gain_figure
from afor.bench.report.page import render_report, report_input
from afor.bench.report.tables.formats import Table, printable, to_markdown
from afor.bench.report.tables.main import main_table
from afor.bench.report.verdicts import verdicts
from afor.bench.stats.comparisons import BASELINE, blocks_of, main_optimizers
from afor.bench.stats.groups import Conditions, collect_conditions, default_metrics
from afor.bench.store.files import load_margins, load_results, result_rows
from afor.bench.store.locations import find_store


@dataclass(frozen=True)
class StudyResults:
    """The results of a study.

    Args:
        store: The store or the file of results.
        studies: Names of the studies to read; empty reads all.
        baseline: The optimizer that the others are compared with.
        metric: The metric of verdict and figures.

    Example:
        >>> StudyResults(Path("results/demo.db")).metric
        'accuracy'
    """

    store: Path
    studies: tuple[str, ...] = ()
    baseline: str = BASELINE
    metric: str = "accuracy"

    @cached_property
    def _loaded(self) -> tuple[list[Any], Conditions]:
        runs, expected = load_results([self.store], self.studies)
        margins = load_margins([self.store], self.studies)
        return runs, collect_conditions(runs, expected, margins)

    @property
    def conditions(self) -> Conditions:
        """The runs by data set, backbone and optimizer."""
        return self._loaded[1]

    @property
    def _metrics(self) -> list[str]:
        return list(dict.fromkeys([self.metric, *default_metrics(self.conditions)]))

    def table(self) -> Table:
        """Return the table of means over folds."""
        return main_table(self.conditions, self._metrics, baseline=self.baseline)

    def verdict(self) -> str:
        """Return what the results show, a sentence per data set."""
        return "\n".join(verdicts(self.conditions, self.metric, baseline=self.baseline))

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per finished run."""
        return [dict(row) for row in result_rows(self._loaded[0])]

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

    def plot_gain(self, optimizers: Sequence[str] | None = None) -> Any:
        """Draw the gain of each optimizer over the baseline.

        Args:
            optimizers: Optimizers to draw; None draws all but controls.

        Returns:
            A Matplotlib figure.
        """
        return gain_figure(
            self.conditions, self.metric, baseline=self.baseline, optimizers=optimizers
        )

    def plot_folds(
        self, optimizer: str | None = None, *, dataset: str | None = None, backbone: str = ""
    ) -> Any:
        """Draw each fold's results of an optimizer and the baseline, joined by a line.

        Args:
            optimizer: The optimizer; None takes AFOR, or else the last of the study.
            dataset: The data set; None takes the first.
            backbone: The backbone; empty takes the first.

        Returns:
            A Matplotlib figure.
        """
        first_dataset, first_backbone = blocks_of(self.conditions)[0]
        others = [o for o in main_optimizers(self.conditions) if o != self.baseline]
        if optimizer is None:
            optimizer = "afor" if "afor" in others else others[-1] if others else self.baseline
        return folds_figure(
            self.conditions,
            dataset or first_dataset,
            backbone or first_backbone,
            optimizer,
            self.metric,
            baseline=self.baseline,
        )

    def report(self, path: str | Path, title: str = "Optimizers across subjects") -> Path:
        """Write the whole report as one HTML file.

        Args:
            path: The file to write.
            title: Heading of the page.

        Returns:
            The path.
        """
        given = report_input(self._loaded[0], [self.store], self.studies)
        page = render_report(
            self.conditions, given, title=title, baseline=self.baseline, metrics=self._metrics
        )
        write_atomically(Path(path), page.encode())
        return Path(path)

    def __str__(self) -> str:
        return to_markdown(self.table())  # its first sentences are the verdict

    def _repr_html_(self) -> str:
        verdict = "".join(
            f"<p><strong>{escape(printable(line))}</strong></p>"
            for line in self._verdict_or_reason().splitlines()
        )
        return f"<div>{verdict}{table_html(self.table())}</div>"

    def _verdict_or_reason(self) -> str:
        try:
            return self.verdict()
        except ConfigError as error:  # nothing to compare yet
            return str(error)


def open_results(
    store: str | Path,
    *,
    studies: Sequence[str] = (),
    baseline: str | None = None,
    metric: str = "accuracy",
) -> StudyResults:
    """Open the results of a study that has run, here or elsewhere.

    Args:
        store: The name of a study whose store is ``results/NAME.db``, or the path of a store or of
            a .csv, .json or .parquet file of results.
        studies: Names of the studies to read; empty reads all.
        baseline: The optimizer that the others are compared with; None takes Adam, or else the
            first optimizer.
        metric: The metric of verdict and figures.

    Returns:
        The results, which a notebook shows as verdict and table.

    Raises:
        StoreError: There are no such results.

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
    path = find_store(str(store))
    results = StudyResults(path, tuple(studies), baseline or BASELINE, metric)
    if baseline is None:
        names = main_optimizers(results.conditions)
        if names and BASELINE not in names:
            results = StudyResults(path, tuple(studies), names[0], metric)
    return results


def table_html(table: Table) -> str:
    """Return a table as HTML without scripts or classes, for a notebook."""
    head = "".join(
        f'<th scope="col">{escape(printable(" ".join([c.group, c.label]).strip()))}</th>'
        for c in table.columns
    )
    body = ""
    for row in table.rows:
        if row.heading:
            label = escape(printable(row.label))
            body += f'<tr><th colspan="{len(table.columns) + 1}">{label}</th></tr>'
            continue
        cells = ""
        for cell in row.cells:
            text = escape(printable(cell.text)) + "*" * cell.star + escape(cell.mark)
            text += f" ({escape(cell.partial)})" if cell.partial else ""
            cells += f"<td>{f'<b>{text}</b>' if cell.best else text}</td>"
        body += f'<tr><th scope="row">{escape(printable(row.label))}</th>{cells}</tr>'
    notes = "".join(f"<p><small>{escape(printable(note))}</small></p>" for note in table.notes)
    return (
        f"<table><caption>{escape(printable(table.title))}</caption><thead><tr>"
        f'<th scope="col">{escape(table.label)}</th>{head}</tr></thead><tbody>{body}</tbody>'
        f"</table>{notes}"
    )
