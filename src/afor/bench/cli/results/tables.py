"""The commands ``afor judge | table | figure | report``: what results say, and to publish it."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from afor.bench.analyses.cost.views import cost_table
from afor.bench.analyses.landscape.record import read_landscape
from afor.bench.analyses.landscape.views import landscape_figure, landscape_section, landscape_table
from afor.bench.cli.options import TableFormat
from afor.bench.cli.printing import by_suffix, check_outputs, choose, render
from afor.bench.cli.results.reading import ResultOptions, read_json
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.common.errors import ConfigError
from afor.bench.common.files import check_output, write_output
from afor.bench.report.figures.style import save_figure
from afor.bench.report.page import write_report
from afor.bench.report.registry import (
    FIGURES,
    FROM_RESULTS,
    build_table,
    draw_figure,
)
from afor.bench.report.tables.formats import Table, to_json

# Tables of what an analysis measured, from its JSON file.
MEASURED: Mapping[str, Callable[[Any, str], Table]] = {
    "cost": lambda ours, _: cost_table(ours),
    "landscape": lambda ours, where: landscape_table(read_landscape(ours, where)),
}
TABLES = (*FROM_RESULTS, *MEASURED)
FIGURE_NAMES = (*FIGURES, "landscape")


def judge(*, options: ResultOptions, as_json: bool = False) -> None:
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


def table(
    name: Annotated[str, TABLES],
    *,
    options: ResultOptions,
    form: TableFormat | None = None,
    output: Path | None = None,
    as_json: bool = False,
) -> None:
    """Print one table for the terminal, a README, LaTeX or a program.

    Args:
        name: The table: {values}.
        output: A .md, .tex, .csv, .json or .txt file. [default: standard output]

    Example:
        afor table main demo --output main.tex
    """
    if output is not None:
        check_output(output)
    name = choose(name, TABLES, "the table")
    if name in MEASURED:
        built = MEASURED[name](*_measured(options))
    else:
        built = build_table(name, options.open())
    written = "json" if as_json else form or by_suffix(output)
    text = render(built, written, to_file=output is not None)
    if output is None:
        typer.echo(text.rstrip("\n"))
    else:
        write_output(output, text)
        typer.echo(str(output))
    if name in FROM_RESULTS:
        drawn = name if name in FIGURES else "gain"
        words = options.words(metric=(options.metric or [])[:1])
        print_next(f"afor figure {drawn} {words} --output {drawn}.pdf")


def figure(
    name: Annotated[str, FIGURE_NAMES],
    *,
    options: ResultOptions,
    output: list[Path] | None = None,
    dataset: str | None = None,
    backbone: str | None = None,
) -> None:
    """Draw one figure, one column (88 mm) wide, by the first metric.

    Args:
        name: The figure: {values}.
        output: A .pdf, .svg or .png file; repeatable. [default: NAME.pdf]
        dataset: Use only this data set.
        backbone: Use only this backbone.

    Example:
        afor figure gain demo --output gain.pdf
    """
    name = choose(name, FIGURE_NAMES, "the figure")
    targets = output or [Path(f"{name}.pdf")]
    check_outputs(targets)
    if name in FIGURES:
        drawn = draw_figure(name, options.open().only(dataset, backbone))
    else:
        drawn = landscape_figure(read_landscape(*_measured(options)))
    for target in targets:
        save_figure(drawn, target)
        typer.echo(str(target))
    if name in FIGURES and not options.method:  # a report shows all methods
        print_next(f"afor report {options.words()}")


def report(
    *,
    options: ResultOptions,
    output: Path = Path("report.html"),
    static: bool = False,
    landscape: Path | None = None,
    as_json: bool = False,
) -> None:
    """Write an offline HTML report: tables, figures, downloads.

    The page starts with the answer: better, worse, equivalent or undecided, and what would settle
    it.

    Args:
        output: The HTML file to write.
        static: Draw figures in place of charts and leave out all scripts.
        landscape: Add the figure of this JSON file of `afor analyse landscape`.

    Example:
        afor report demo --output report.html
    """
    check_output(output)
    sections = []
    if landscape is not None:
        measured = read_landscape(read_json(landscape), str(landscape))
        sections.append(landscape_section(measured))
    content = write_report(options.open(), output, sections=sections, static=static)
    if as_json:
        print_json(content, ensure_ascii=False)
        return
    typer.echo(f"{output}  ({content['bytes'] / 1e6:.1f} MB, opens in any browser)")
    print_next(f"open {output}")


def _measured(options: ResultOptions) -> tuple[Any, str]:
    """Return what the JSON file of an analysis holds, and its name."""
    if options.results is None or len(options.results) != 1:
        raise ConfigError("Name the JSON file of `afor analyse landscape` or `afor analyse cost`.")
    return read_json(Path(options.results[0])), options.results[0]
