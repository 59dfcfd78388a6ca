"""The command ``afor judge``: which method is better, from runs or from any table of scores."""

import json
from contextlib import suppress

import typer

from afor.bench.cli.options import Json
from afor.bench.cli.printing import render
from afor.bench.cli.results.reading import ResultOptions
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.common.errors import ConfigError
from afor.bench.report.registry import build_table
from afor.bench.report.tables.formats import to_json


def judge(options: ResultOptions, as_json: Json = False) -> None:
    """Compare all methods with a baseline: verdicts, tests, ranks.

    Each method is better, worse, equivalent within a margin, or undecided; for the last, the text
    says what would settle it. Prints gains with exact intervals and p-values, the comparison over
    tasks and mean ranks where there are several, and how far another seed moves a result where
    the study has replicates. RESULTS may be any table of scores: a CSV of MOABB, a row per score,
    a column per method, or scores of scikit-learn by method as JSON.

    Example:
        afor judge moabb.csv --baseline "CSP+LDA" --metric accuracy
    """
    results = options.open()
    tables = [build_table("comparisons", results)]
    for name in ("pooled", "ranks", "noise"):
        with suppress(ConfigError):  # one task, or no replicates
            tables.append(build_table(name, results))
    if as_json:
        print_json([json.loads(to_json(table)) for table in tables])
        return
    for built in tables:
        typer.echo(render(built, "terminal"))
    print_next(f"afor table main {options.words()}")
