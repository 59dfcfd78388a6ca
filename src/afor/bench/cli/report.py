"""``afor report``: one HTML file with everything a store says."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afor.bench.common.errors import ConfigError

if TYPE_CHECKING:
    from afor.bench.report.page import Section


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("report")(report)


def report(
    paths: Annotated[list[Path], typer.Argument(help="Stores, or .csv/.json files of results.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Optimizers across subjects",
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", help="Repeatable; the first decides. [default: both]"),
    ] = None,
    baseline: Annotated[str, typer.Option(help="What all others are compared with.")] = "adam",
    study: Annotated[list[str] | None, typer.Option(help="Only runs of these studies.")] = None,
    landscape: Annotated[
        Path | None, typer.Option(help="JSON of `afor landscape`, shown with its figure.")
    ] = None,
    static: Annotated[bool, typer.Option(help="Leave the script out.")] = False,
) -> None:
    """Write one offline HTML file: the answer first, then tables, figures, folds and downloads."""
    from afor.bench.common.output_files import check_output, write_output
    from afor.bench.report.page import ReportInput, render_report
    from afor.bench.stats.groups import collect_conditions
    from afor.bench.stats.labels import PAPER_METRICS
    from afor.bench.store.files import is_store, load_records, load_results, load_studies

    check_output(output)
    results, expected = load_results(paths, study or ())
    stores = [path for path in paths if is_store(path)]
    given = ReportInput(
        results=results,
        sources=[path.name for path in paths],
        records=load_records(stores, study or ()) if stores else (),
        studies=load_studies(stores, study or ()),
        sections=_sections(landscape),
    )
    page = render_report(
        collect_conditions(results, expected),
        given,
        title=title,
        baseline=baseline,
        metrics=metric or PAPER_METRICS,
        static=static,
    )
    write_output(output, page)
    typer.echo(f"{output}  ({len(page.encode()) / 1e6:.1f} MB, opens in any browser)")
    typer.echo(f"\nNext: open {output}", err=True)


def _sections(path: Path | None) -> "list[Section]":
    import json

    from afor.bench.analyses.landscape.compute import read_landscape
    from afor.bench.analyses.landscape.section import landscape_section

    if path is None:
        return []
    try:
        measured = read_landscape(json.loads(path.read_text("utf-8")), str(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--landscape {path} cannot be read as JSON: {error}.") from None
    return [landscape_section(measured)]
