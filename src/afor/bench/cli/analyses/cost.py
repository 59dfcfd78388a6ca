"""The command ``afor cost``: operations, memory and time of a step of every optimizer."""

from pathlib import Path
from typing import Annotated, Any

import typer

from afor.bench.analyses.cost import compute
from afor.bench.analyses.cost.figure import growth_figure
from afor.bench.analyses.cost.table import cost_table
from afor.bench.cli.options import Json, TableFormat, option
from afor.bench.cli.printing import FORMATS, choose, figures_in, show_result
from afor.bench.cli.terminal import print_next
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
    as_json: Json = False,
) -> None:
    """Measure the operations, memory and time of a step.

    All optimizers are compared with Adam.

    Example:
        afor cost --backbone eegnet --dataset deap --output cost.json
    """
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
    print_next("afor cost --output growth.pdf")
