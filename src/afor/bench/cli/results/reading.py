"""Read the results that a command names, grouped into conditions."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from afor.bench.cli.results.margins import read_margins
from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.parts import incomplete_sentence
from afor.bench.stats.groups import Conditions, collect_conditions
from afor.bench.store.files import load_results
from afor.bench.store.locations import find_store


def find_all(results: Sequence[str] | None) -> list[Path]:
    """Return the store or file of each name."""
    return [find_store(name) for name in results or ()]


def joined(paths: Sequence[Path]) -> str:
    """Return the words that name results in a command to copy."""
    return shlex.join(map(str, paths)) or "RESULTS"


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raise ConfigError if it cannot be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}.") from None


def load_conditions(
    paths: list[Path], study: list[str] | None, margin: list[str] | None
) -> Conditions:
    """Read the results, grouped; say on standard error how many runs are missing."""
    if not paths:
        raise ConfigError(
            "Name the results: at least one study, TOML file or store file, or a .csv, .json or "
            ".parquet file of results."
        )
    runs, expected = load_results(paths, study or ())
    conditions = collect_conditions(runs, expected, read_margins(margin, paths, study))
    if sentence := incomplete_sentence(conditions):
        typer.echo(f"{sentence} `afor run` continues.", err=True)
    return conditions
