"""The command ``afor cost``: operations, memory and time of a step of every optimizer."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from afor.bench.analyses.cost import compute
from afor.bench.analyses.cost.figure import growth_figure
from afor.bench.analyses.cost.flops import OPERATIONS, formula
from afor.bench.analyses.cost.table import cost_table
from afor.bench.cli.options import Json, TableFormat, option
from afor.bench.cli.printing import FORMATS, choose, figures_in, show_result
from afor.bench.cli.terminal import print_next
from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.registry import PAPER_OPTIMIZERS


def cost(
    backbone: Annotated[
        str, option("A backbone that `afor models` lists, or module:Class.")
    ] = "eegnet",
    dataset: Annotated[
        str, option("Data set with the windows' shape: deap, bci2a, isruc, physionet_mi.")
    ] = "deap",
    optimizer: Annotated[
        list[str] | None,
        option(
            "Measure only this optimizer, and Adam; repeatable.", show_default="the paper's seven"
        ),
    ] = None,
    batch: Annotated[
        int, option("Batch size; 0 uses the paper's, 256 or 64.", min=0, max=65_536)
    ] = 0,
    weight_decay: Annotated[
        float, option("Weight decay, by default that of Sec. IV-C; 0 leaves it out.")
    ] = 1e-4,
    rounds: Annotated[int, option("Number of interleaved timing rounds.", min=1, max=100_000)] = 25,
    threads: Annotated[int, option("Number of torch threads.", min=1, max=1024)] = 1,
    form: TableFormat = None,
    output: Annotated[
        list[Path] | None,
        option(
            "A table (.md .tex .csv .txt), the values (.json) or a figure of the growth with "
            "the size of the network (.pdf .svg .png); repeatable.",
            "--output",
            "-o",
        ),
    ] = None,
    lines: Annotated[str, option("Print only the operations in a step of this optimizer.")] = "",
    as_json: Json = False,
) -> None:
    """Measure the operations, memory and time of a step.

    All optimizers are compared with Adam.

    Example:
        afor cost --backbone eegnet --dataset deap --output cost.json
    """
    if lines:
        _print_lines(lines)
        return
    if form is not None:
        choose(form, FORMATS, "--format")
    targets = output or []
    names = tuple(optimizer or PAPER_OPTIMIZERS)
    typer.echo(f"Measuring {len(names)} optimizers on {backbone}, {dataset} ...", err=True)
    costs: dict[str, Any] = compute.measure_cost(
        backbone,
        dataset,
        names,
        batch=batch,
        weight_decay=weight_decay,
        rounds=rounds,
        threads=threads,
    ).as_dict()
    if figures_in(targets):
        typer.echo("Measuring the growth with the size of the network ...", err=True)
        costs["growth"] = compute.measure_growth(names, rounds=rounds, threads=threads)

    def draw() -> Any:
        return growth_figure(costs["growth"])

    show_result(cost_table(costs), costs, draw, targets, form, as_json=as_json)
    print_next("afor cost --lines afor")


def _print_lines(name: str) -> None:
    """Print the operations of one optimizer's step, line by line."""
    if name not in OPERATIONS:
        raise ConfigError(
            f'--lines "{name}": there is no list of its operations. Accepted: '
            f"{', '.join(OPERATIONS)}. `afor cost --optimizer {name}` counts its step."
        )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operations per", no_wrap=True)
    for heading in ("element", "row", "tensor", "host"):
        table.add_column(heading, justify="right")
    table.add_column("when")
    conditions = {
        "": "",
        "decay": "with weight decay",
        "matrix": "for matrices",
        "projected": "if the step is projected",
    }
    for line in OPERATIONS[name]:
        counts = (line.element, line.row, line.tensor, line.host)
        texts = [str(count) if count else "" for count in counts]
        table.add_row(Text(line.text), *texts, conditions[line.when])
    console = Console(highlight=False)
    console.print(table)
    total = formula(name, ("decay", "matrix"))
    console.print(
        f"\n{total} for n elements, r rows, k tensors; host: on Python numbers, per tensor"
    )
    if any(line.when == "projected" for line in OPERATIONS[name]):
        console.print("The projection, which depends on the data, is not counted.")
    print_next("afor cost")
