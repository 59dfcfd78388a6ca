"""The command ``afor analyse headroom``: what any constant beta2 could gain over 0.999."""

import json
from typing import Annotated

import typer

from afor.bench.analyses.headroom.compute import measure_headroom
from afor.bench.analyses.headroom.views import headroom_figure, headroom_tables
from afor.bench.cli.options import FigureFile, Json, OnlyStudy, Results, option
from afor.bench.cli.printing import render
from afor.bench.cli.terminal import print_next
from afor.bench.common.files import check_output
from afor.bench.common.text import without_nan
from afor.bench.report.figures.style import save_figure
from afor.bench.store.database import open_store
from afor.bench.store.locations import find_store


def headroom(
    results: Results,
    metric: Annotated[
        list[str] | None,
        option(
            "Metric to compare; repeatable.",
            "--metric",
            "-m",
            show_default="nll and accuracy, of streams also on the next subject",
        ),
    ] = None,
    study: OnlyStudy = None,
    output: FigureFile = None,
    as_json: Json = False,
) -> None:
    """Measure what any constant beta2 could gain over 0.999.

    Works on any finished study that has AdamW with several beta2 and, for a fair comparison,
    several learning rates. Constant and learning rate are chosen on one half of the folds or
    draws and scored on the other, both ways. Every other optimizer is a rule: the table compares
    it with beta2 = 0.999 and with the best constant.

    Example:
        afor analyse headroom headroom --output headroom.png
    """
    if output is not None:
        check_output(output)
    with open_store(find_store(results)) as store:
        measured = measure_headroom(store, metric, study=study)
    tables = headroom_tables(measured)
    if output is not None:
        save_figure(headroom_figure(measured), output)
    if as_json:
        records = [record for table in tables for record in table.records]
        typer.echo(json.dumps(without_nan({"table": "headroom", "rows": records}), indent=1))
        return
    typer.echo("\n".join(render(table, "terminal") for table in tables))
    if output is not None:
        typer.echo(str(output))
    print_next(f"afor judge {results} --baseline adamw --metric nll")
