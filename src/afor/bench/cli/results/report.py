"""The command ``afor report``: one HTML file with all results of a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from afor.bench.analyses.landscape.record import read_landscape
from afor.bench.analyses.landscape.text import landscape_section
from afor.bench.cli.options import AllowDifferent, Json, OnlyStudies, argument, option
from afor.bench.cli.results.reading import Margins, find_all, read_json, read_margins
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.common.files import check_output, write_output
from afor.bench.report.page import Section, render_report, report_input
from afor.bench.report.verdicts import verdicts
from afor.bench.stats.comparisons import BASELINE
from afor.bench.stats.groups import collect_conditions, default_metrics
from afor.bench.store.files import load_results


@dataclass(frozen=True)
class ReportOptions:
    """What a report shows of its results."""

    title: Annotated[str, option("Heading of the page.")] = "Optimizers across subjects"
    metric: Annotated[
        list[str] | None,
        option(
            "Metric to show; repeatable, the first one decides.",
            "--metric",
            "-m",
            show_default="accuracy, weighted_f1, and nll if recorded",
        ),
    ] = None
    baseline: Annotated[str, option("The optimizer that all others are compared with.")] = BASELINE
    study: OnlyStudies = None
    margin: Margins = None
    allow_different: AllowDifferent = None
    static: Annotated[
        bool, option("Leave out the scripts of the page and its charts.", "--static")
    ] = False


def report(
    options: ReportOptions,
    results: Annotated[
        list[str],
        argument(
            "The results: study names, TOML files, store files, or .csv, .json and .parquet "
            "files of results."
        ),
    ],
    output: Annotated[Path, option("The HTML file to write.", "--output", "-o")] = Path(
        "report.html"
    ),
    landscape: Annotated[
        Path | None, option("Add the figure of this JSON file of `afor analyse landscape`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write an offline HTML report: tables, figures, downloads.

    The page starts with the answer: better, worse, equivalent or undecided, and what would decide.

    Example:
        afor report demo --output report.html
    """
    sections = []
    if landscape is not None:
        measured = read_landscape(read_json(landscape), str(landscape))
        sections.append(landscape_section(measured))
    content = write_report(results, output, options, sections)
    if as_json:
        print_json(content, ensure_ascii=False)
        return
    typer.echo(f"{output}  ({content['bytes'] / 1e6:.1f} MB, opens in any browser)")
    print_next(f"open {output}")


def write_report(
    results: Sequence[str], output: Path, options: ReportOptions, sections: Sequence[Section] = ()
) -> dict[str, Any]:
    """Write the report; return the file, its size and a verdict per data set and backbone."""
    check_output(output)
    paths, studies = find_all(results), options.study or ()
    runs, expected = load_results(paths, studies)
    margins = read_margins(options.margin, paths, studies)
    conditions = collect_conditions(runs, expected, margins, options.allow_different or ())
    metrics = options.metric or default_metrics(conditions)
    page = render_report(
        conditions,
        report_input(runs, paths, studies, sections),
        title=options.title,
        baseline=options.baseline,
        metrics=metrics,
        static=options.static,
    )
    write_output(output, page)
    answers = verdicts(conditions, metrics[0], baseline=options.baseline)
    return {"file": str(output), "bytes": len(page.encode()), "verdicts": answers}
