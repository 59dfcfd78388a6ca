"""The command ``afor report``: one HTML file with all results of a store."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from afor.bench.analyses.landscape.record import read_landscape
from afor.bench.analyses.landscape.section import landscape_section
from afor.bench.cli.options import Json, OnlyStudies
from afor.bench.cli.results.margins import Margins, read_margins
from afor.bench.cli.results.reading import read_json
from afor.bench.cli.terminal import print_next
from afor.bench.common.files import check_output, write_output
from afor.bench.report.page import ReportInput, Section, render_report
from afor.bench.report.verdicts import verdicts
from afor.bench.stats.comparisons import BASELINE
from afor.bench.stats.groups import collect_conditions, default_metrics
from afor.bench.store.files import is_store, load_records, load_results, load_studies
from afor.bench.store.locations import find_store


def report(
    results: Annotated[
        list[str],
        typer.Argument(
            help="The results: study names, TOML files, store files, or .csv, .json and .parquet "
            "files of results."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Optimizers across subjects",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            help="Metric to show; repeatable, the first one decides.",
            show_default="accuracy, weighted_f1, and nll if recorded",
        ),
    ] = None,
    baseline: Annotated[
        str, typer.Option(help="The optimizer that all others are compared with.")
    ] = BASELINE,
    study: OnlyStudies = None,
    margin: Margins = None,
    landscape: Annotated[
        Path | None, typer.Option(help="Add the figure of this JSON file of `afor landscape`.")
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Leave out the scripts of the page and its charts.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write an offline HTML report: tables, figures, downloads.

    The page starts with the answer: better, worse, equivalent or undecided, and what would decide.

    Example:
        afor report demo --output report.html
    """
    content = write_report(
        results,
        output,
        title=title,
        metric=metric,
        baseline=baseline,
        study=study,
        margin=margin,
        sections=_sections(landscape),
        static=static,
    )
    if as_json:
        typer.echo(json.dumps(content, indent=1, ensure_ascii=False))
        return
    typer.echo(f"{output}  ({content['bytes'] / 1e6:.1f} MB, opens in any browser)")
    print_next(f"open {output}")


def write_report(
    results: Sequence[str],
    output: Path,
    *,
    title: str,
    metric: Sequence[str] | None = None,
    baseline: str = BASELINE,
    study: Sequence[str] | None = None,
    margin: list[str] | None = None,
    sections: Sequence[Section] = (),
    static: bool = False,
) -> dict[str, Any]:
    """Write the report; return the file, its size and a verdict per data set and backbone."""
    check_output(output)
    paths = [find_store(name) for name in results]
    runs, expected = load_results(paths, study or ())
    stores = [path for path in paths if is_store(path)]
    report_input = ReportInput(
        results=runs,
        sources=[path.name for path in paths],
        records=load_records(stores, study or ()) if stores else (),
        studies=load_studies(stores, study or ()),
        sections=sections,
    )
    conditions = collect_conditions(runs, expected, read_margins(margin, paths, study))
    metrics = metric or default_metrics(conditions)
    page = render_report(
        conditions, report_input, title=title, baseline=baseline, metrics=metrics, static=static
    )
    write_output(output, page)
    answers = verdicts(conditions, metrics[0], baseline=baseline)
    return {"file": str(output), "bytes": len(page.encode()), "verdicts": answers}


def _sections(landscape: Path | None) -> list[Section]:
    """Return the sections of analyses whose files are given."""
    if landscape is None:
        return []
    return [landscape_section(read_landscape(read_json(landscape), str(landscape)))]
