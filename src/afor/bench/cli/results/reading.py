"""Read the results that a command names, grouped into conditions, with their margins."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from afor.bench.cli.options import option
from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.parts import incomplete_sentence
from afor.bench.stats.groups import Conditions, collect_conditions
from afor.bench.store.database import stored_difference
from afor.bench.store.files import load_margins, load_results
from afor.bench.store.locations import find_store
from afor.bench.study.schema import load_study

Margins = Annotated[
    list[str] | None,
    option(
        "METRIC=POINTS: differences up to this size count as equivalent; repeatable.",
        show_default="as the study states, or 1 point (0.02 for kappa)",
    ),
]


def find_all(results: Sequence[str] | None) -> list[Path]:
    """Return the store or file of each name."""
    return [find_results(name) for name in results or ()]


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


def load_conditions(
    paths: list[Path],
    study: list[str] | None,
    margin: list[str] | None,
    allow_different: list[str] | None = None,
) -> Conditions:
    """Read the results, grouped; say on standard error how many runs are missing."""
    if not paths:
        raise ConfigError(
            "Name the results: at least one study, TOML file or store file, or a .csv, .json or "
            ".parquet file of results."
        )
    runs, expected = load_results(paths, study or ())
    margins = read_margins(margin, paths, study)
    conditions = collect_conditions(runs, expected, margins, allow_different or ())
    if sentence := incomplete_sentence(conditions):
        typer.echo(f"{sentence} `afor run` continues.", err=True)
    return conditions


def read_margins(
    pairs: Sequence[str] | None, paths: Sequence[Path], studies: Sequence[str] | None
) -> dict[str, float]:
    """Return the margins by metric: those of the command line, and those of the studies."""
    given = dict(map(_read_pair, pairs or ()))
    return {**load_margins(paths, studies or (), except_for=given), **given}


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
