"""The command ``afor analyse cost``: operations, memory and time of a step of every optimizer."""

from pathlib import Path
from typing import Annotated, Any

import typer

from afor.bench.analyses.cost import compute
from afor.bench.analyses.cost.views import cost_table, growth_figure
from afor.bench.cli.options import option
from afor.bench.cli.printing import figures_in, show_result
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
    rounds: Annotated[int, option("Number of interleaved timing rounds.", min=1, max=100_000)] = 25,
    output: Annotated[
        list[Path] | None,
        option(
            "A table (.md .tex .csv .txt), the values (.json) or a figure of the growth with "
            "the size of the network (.pdf .svg .png); repeatable.",
            "--output",
            "-o",
        ),
    ] = None,
) -> None:
    """Measure the operations, memory and time of a step.

    All optimizers are compared with Adam.

    Example:
        afor analyse cost --backbone eegnet --dataset deap --output cost.json
    """
    targets = output or []
    names = tuple(optimizer or PAPER_OPTIMIZERS)
    typer.echo(f"Measuring {len(names)} optimizers on {backbone}, {dataset} ...", err=True)
    costs: dict[str, Any] = compute.measure_cost(
        backbone,
        dataset,
        names,
        rounds=rounds,
    ).as_dict()
    if figures_in(targets):
        typer.echo("Measuring the growth with the size of the network ...", err=True)
        costs["growth"] = compute.measure_growth(names, rounds=rounds)

    def draw() -> Any:
        return growth_figure(costs["growth"])

    show_result(cost_table(costs), costs, draw, targets)
    print_next("afor analyse cost --output growth.pdf")
