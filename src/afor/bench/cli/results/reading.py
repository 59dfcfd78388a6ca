"""Read the results that a command names, and write the next command that asks the same of them."""

import json
import math
import shlex
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import typer

from afor.bench.common.errors import ConfigError
from afor.bench.stats.results import Results, incomplete_notes
from afor.bench.store.database import stored_difference
from afor.bench.store.locations import find_store
from afor.bench.study.schema import load_study


@dataclass(frozen=True)
class ResultOptions:
    """Which results a command reads, and what it asks of them.

    Args:
        results: The results: study names, TOML files, store files, or .csv, .json and .parquet
            files of results or of any scores.
        metric: Metric to show; repeatable, the first one decides: accuracy, weighted_f1, macro_f1,
            balanced_accuracy, kappa, auroc, nll, brier or calibration_error. [default: accuracy,
            weighted_f1, and nll if recorded]
        method: Use only this method; Holm's correction then covers these alone; repeatable.
        column: ROLE=NAME: the column of a table of scores that holds the method, unit (subject or
            fold), score, task, repetition or metric; repeatable. [default: recognised by name]
        common: Leave out the units of a table of scores that some method lacks.
    """

    results: list[str] | None = None
    _: KW_ONLY
    metric: list[str] | None = None
    baseline: str | None = None
    method: list[str] | None = None
    study: list[str] | None = None
    margin: list[str] | None = None
    allow_different: list[str] | None = None
    column: list[str] | None = None
    common: bool = False

    def open(self) -> Results:
        """Open the results; say on standard error how many runs are missing."""
        results = Results.open(
            [find_results(name) for name in self.results or ()],
            studies=self.study or (),
            baseline=self.baseline,
            methods=self.method or (),
            metrics=self.metric or (),
            margins=dict(map(_read_pair, self.margin or ())),
            allow_different=self.allow_different or (),
            columns=dict(map(_read_column, self.column or ())),
            common=self.common,
        )
        for sentence in incomplete_notes(results.conditions):
            # A table of scores has remarks, which name the row and --common.
            advice = "" if results.remarks else " `afor run` continues."
            typer.echo(f"{sentence}{advice}", err=True)
        return results

    def words(self, **changes: Any) -> str:
        """Return the words that make another command ask the same; some options may be changed."""
        options = replace(self, **changes)
        words = list(options.results or ["RESULTS"])
        words += ["--baseline", options.baseline] if options.baseline else []
        for name in ("study", "metric", "method", "margin", "allow_different", "column"):
            for value in getattr(options, name) or ():
                words += [f"--{name.replace('_', '-')}", value]
        words += ["--common"] if options.common else []
        return shlex.join(words)


def find_results(name: str) -> Path:
    """Return the store or file of a name; say if a TOML file is not the study that ran."""
    path = find_store(name)
    if not name.endswith(".toml"):
        return path
    study = load_study(name)
    if difference := stored_difference(study, path):
        ours, theirs = difference.values
        typer.echo(
            f"{name} is not the study that ran last as {study.name}: {difference.key} is {ours} "
            f"in the file and {theirs} in {path}, whose runs are shown. `afor run {name}` trains "
            f"those of the file.",
            err=True,
        )
    return path


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raise ConfigError if it cannot be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}.") from None


def _read_column(pair: str) -> tuple[str, str]:
    role, _, name = pair.partition("=")
    if not name:
        raise ConfigError(f"--column {pair}: expected ROLE=NAME, such as unit=participant.")
    return role, name


def _read_pair(pair: str) -> tuple[str, float]:
    metric, _, text = pair.partition("=")
    try:
        margin = float(text)
    except ValueError:
        margin = math.nan
    if not metric or not 0 < margin < math.inf:
        raise ConfigError(
            f"--margin {pair}: expected METRIC=POINTS, more than 0, such as accuracy=1.5."
        )
    return metric, margin
