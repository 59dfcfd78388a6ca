"""The commands ``afor judge | table | figure | report``: results to read and to publish."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from afor.bench.analyses.cost import table as cost_table
from afor.bench.analyses.landscape.figure import landscape_figure
from afor.bench.analyses.landscape.record import read_landscape
from afor.bench.analyses.landscape.table import landscape_table
from afor.bench.analyses.landscape.text import landscape_section
from afor.bench.cli.options import Json, TableFormat, argument, option
from afor.bench.cli.printing import FORMATS, by_suffix, check_figures, choose, render
from afor.bench.cli.results.reading import ResultOptions, read_json
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.common.errors import ConfigError
from afor.bench.common.files import check_output, write_output
from afor.bench.report.figures import curves
from afor.bench.report.figures.style import save_figure
from afor.bench.report.page import write_report
from afor.bench.report.registry import (
    FIGURES,
    FROM_NOTHING,
    FROM_RESULTS,
    build_table,
    draw_figure,
)
from afor.bench.report.tables.formats import Table, to_json
from afor.bench.report.tables.paper import paper_cost_table
from afor.bench.stats.sensitivity import Sensitivity

# Tables of measured values, beside the paper's.
MEASURED: Mapping[str, Callable[[Any], Table]] = {
    "cost": lambda measured: cost_table.cost_table(measured) if measured else paper_cost_table(),
    "landscape": landscape_table,
}
TABLES = (*FROM_RESULTS, *FROM_NOTHING, *MEASURED)
FIGURE_NAMES = (*FIGURES, "landscape")
# Figures that a JSON file can hold as well.
FROM_FILE: Mapping[str, Callable[[Any], Any]] = {
    "convergence": curves.convergence_figure,
    "sensitivity": lambda rows: curves.sensitivity_figure([Sensitivity(**row) for row in rows]),
    "forgetting": lambda content: curves.forgetting_figure(
        content["runs"], content.get("train_loss"), content.get("title", "")
    ),
}
DATA_FORMAT = "docs/howto/tables-and-figures.md describes the format"


def judge(options: ResultOptions, as_json: Json = False) -> None:
    """Compare all optimizers with a baseline: verdicts, tests, ranks.

    Each optimizer is better, worse, equivalent within the margin that the study states, or
    undecided; for the last, the text says what would settle it. Prints gains with exact intervals
    and p-values, mean ranks over two or more tasks, and how far another seed moves a result where
    the study has replicates.

    Example:
        afor judge demo --baseline adam
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
    name: Annotated[str, argument(f"The table: {', '.join(TABLES)}.")],
    options: ResultOptions,
    form: TableFormat = None,
    output: Annotated[
        Path | None,
        option(
            "A .md, .tex, .csv, .json or .txt file.",
            "--output",
            "-o",
            show_default="standard output",
        ),
    ] = None,
    ours: Annotated[
        Path | None, option("JSON file of measured values, shown beside the paper's.")
    ] = None,
    standalone: Annotated[
        bool, option("Write LaTeX as a whole document instead of a table.", "--standalone")
    ] = False,
) -> None:
    """Print one table for the terminal, a README, LaTeX or a program.

    Example:
        afor table main demo --output main.tex
    """
    if output is not None:
        check_output(output)
    form = choose(form or by_suffix(output), FORMATS, "--format")
    name = choose(name, TABLES, "the table")
    if name in MEASURED:
        built = MEASURED[name](read_json(ours) if ours else None)
    elif name in FROM_NOTHING:
        built = FROM_NOTHING[name]()
    else:
        built = build_table(name, options.open())
    text = render(built, form, standalone=standalone, to_file=output is not None)
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
    name: Annotated[str, argument(f"The figure: {', '.join(FIGURE_NAMES)}.")],
    options: ResultOptions,
    output: Annotated[
        list[Path] | None,
        option("A .pdf, .svg or .png file; repeatable.", "--output", "-o", show_default="NAME.pdf"),
    ] = None,
    dataset: Annotated[str | None, option("Use only this data set.")] = None,
    backbone: Annotated[str | None, option("Use only this backbone.")] = None,
    data: Annotated[
        Path | None,
        option(
            "JSON file to draw instead of results: convergence, sensitivity, forgetting or "
            "landscape."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw one figure, one column (88 mm) wide, by the first metric.

    Example:
        afor figure gain demo --output gain.pdf
    """
    name = choose(name, FIGURE_NAMES, "the figure")
    targets = output or [Path(f"{name}.pdf")]
    check_figures(targets)
    if data is not None:
        drawn = _draw_file(name, data)
    elif name in FIGURES:
        drawn = draw_figure(name, options.open().only(dataset, backbone))
    else:
        raise ConfigError(
            f"The figure {name!r} needs --data FILE.json; "
            "`afor analyse landscape STUDY` writes one."
        )
    for target in targets:
        save_figure(drawn, target)
        if not as_json:
            typer.echo(str(target))
    if as_json:
        print_json({"figure": name, "files": [str(target) for target in targets]}, indent=None)
    elif options.results and not options.optimizer:  # a report shows all optimizers
        print_next(f"afor report {options.words()}")


def report(
    options: ResultOptions,
    output: Annotated[Path, option("The HTML file to write.", "--output", "-o")] = Path(
        "report.html"
    ),
    title: Annotated[
        str, option("Heading of the page.", show_default="the name of the study")
    ] = "",
    static: Annotated[
        bool, option("Draw figures in place of charts and leave out all scripts.", "--static")
    ] = False,
    landscape: Annotated[
        Path | None, option("Add the figure of this JSON file of `afor analyse landscape`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write an offline HTML report: tables, figures, downloads.

    The page starts with the answer: better, worse, equivalent or undecided, and what would settle
    it.

    Example:
        afor report demo --output report.html
    """
    check_output(output)
    sections = []
    if landscape is not None:
        measured = read_landscape(read_json(landscape), str(landscape))
        sections.append(landscape_section(measured))
    content = write_report(options.open(), output, title=title, sections=sections, static=static)
    if as_json:
        print_json(content, ensure_ascii=False)
        return
    typer.echo(f"{output}  ({content['bytes'] / 1e6:.1f} MB, opens in any browser)")
    print_next(f"open {output}")


def _draw_file(name: str, data: Path) -> Any:
    content = read_json(data)
    if name == "landscape":
        return landscape_figure(read_landscape(content, str(data)))
    if name not in FROM_FILE:
        accepted = ", ".join((*FROM_FILE, "landscape"))
        raise ConfigError(f"--data draws {accepted}; {name!r} is drawn from results.")
    try:
        return FROM_FILE[name](content)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{data} does not hold what the figure {name!r} needs ({error!r}); {DATA_FORMAT}."
        ) from error
