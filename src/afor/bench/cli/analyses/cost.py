"""``afor cost``: operations, state and time of a step, for every optimizer on any backbone."""

from pathlib import Path
from typing import Annotated

import typer

from afor.bench.cli.printing import FORMATS, by_suffix, choose, render
from afor.bench.common.errors import ConfigError

FIGURES = (".pdf", ".svg", ".png")


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("cost")(cost)


def cost(
    backbone: Annotated[
        str, typer.Option(help="A name that `afor models` lists, or module:Class.")
    ] = "eegnet",
    dataset: Annotated[
        str, typer.Option(help="Whose windows: deap, bci2a, isruc, physionet_mi.")
    ] = "deap",
    optimizer: Annotated[
        list[str] | None,
        typer.Option(help="Only these, and Adam; repeatable. [default: the paper's seven]"),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=0, max=65_536, help="Windows; 0: the paper's, 256 or 64.")
    ] = 0,
    weight_decay: Annotated[float, typer.Option(help="As Sec. IV-C; 0 leaves it out.")] = 1e-4,
    rounds: Annotated[
        int, typer.Option(min=1, max=100_000, help="In each, all take their turn.")
    ] = 25,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Of torch.")] = 1,
    form: Annotated[
        str | None,
        typer.Option("--format", "-f", help=f"{', '.join(FORMATS)}. [default: by --output]"),
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            help="A table (.md .tex .csv .txt), the values (.json) or the growth with the size "
            "of the network (.pdf .svg .png); repeatable.",
        ),
    ] = None,
    lines: Annotated[
        str, typer.Option(help="Print the operations of this optimizer's step, and stop.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure what a step costs beside Adam's: operations, state, time."""
    import json

    if lines:
        _print_lines(lines)
        return
    if form is not None:
        choose(form, FORMATS, "--format")
    targets = output or []
    from afor.bench.analyses.cost.compute import measure_cost, measure_growth
    from afor.bench.optimizers.registry import PAPER_OPTIMIZERS

    names = tuple(optimizer or PAPER_OPTIMIZERS)
    pictures = [target for target in targets if target.suffix.lower() in FIGURES]
    tables = [target for target in targets if target not in pictures]
    typer.echo(f"Measuring {len(names)} optimizers on {backbone}, {dataset} ...", err=True)
    found = measure_cost(
        backbone,
        dataset,
        names,
        batch=batch,
        weight_decay=weight_decay,
        rounds=rounds,
        threads=threads,
    ).as_dict()
    if pictures:
        typer.echo("Measuring how it grows ...", err=True)
        found["growth"] = measure_growth(names, rounds=rounds, threads=threads)
    from afor.bench.analyses.cost.table import cost_table

    built = cost_table(found)
    if as_json:
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
    elif not tables or form:
        typer.echo(render(built, form or "terminal", standalone=False).rstrip("\n"))
    from afor.bench.common.output_files import write_output

    for target in tables:
        kind = by_suffix(target)
        text = (
            json.dumps(found, indent=1, ensure_ascii=False) + "\n"
            if kind == "json"
            else render(built, kind, standalone=False, to_file=True)
        )
        write_output(target, text)
        typer.echo(str(target), err=True)
    if pictures:
        from afor.bench.analyses.cost.figure import growth_figure
        from afor.bench.report.figures.style import save_figure

        drawn = growth_figure(found["growth"])  # type: ignore[arg-type]
        for target in pictures:
            save_figure(drawn, target)
            typer.echo(str(target), err=True)
    typer.echo("\nNext: afor cost --lines afor, afor theory", err=True)


def _print_lines(name: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from afor.bench.analyses.cost.flops import OPERATIONS, formula

    if name not in OPERATIONS:
        raise ConfigError(
            f'--lines "{name}": no formula is written down for it. Accepted: '
            f"{', '.join(OPERATIONS)}. `afor cost --optimizer {name}` counts its step."
        )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operations per", no_wrap=True)
    for heading in ("element", "row", "tensor", "host"):
        table.add_column(heading, justify="right")
    table.add_column("when")
    words = {
        "": "",
        "decay": "with decay",
        "matrix": "for matrices",
        "projected": "if the test says so",
    }
    for line in OPERATIONS[name]:
        counts = (line.element, line.row, line.tensor, line.host)
        texts = [str(count) if count else "" for count in counts]
        table.add_row(Text(line.text), *texts, words[line.when])
    console = Console(highlight=False)
    console.print(table)
    total = formula(name, ("decay", "matrix"))
    console.print(
        f"\n{total} for n elements, r rows, k tensors; host: on Python numbers, per tensor"
    )
    if any(line.when == "projected" for line in OPERATIONS[name]):
        console.print("without the projection, which depends on the data")
    typer.echo("\nNext: afor cost", err=True)
