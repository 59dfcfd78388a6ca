"""The command ``afor analyse cost``: operations, memory and time of a step of every optimizer."""

from dataclasses import asdict
from typing import Annotated

import typer

from afor.bench.analyses.cost.compute import measure_cost
from afor.bench.analyses.cost.views import cost_table
from afor.bench.cli.options import option
from afor.bench.cli.printing import OutputOptions, render
from afor.bench.cli.terminal import print_next
from afor.bench.optimizers.registry import PAPER_OPTIMIZERS


def cost(
    outputs: OutputOptions,
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
) -> None:
    """Measure the operations, memory and time of a step.

    All optimizers are compared with Adam.

    Example:
        afor analyse cost --backbone eegnet --dataset deap --output cost.json
    """
    outputs.check(figure=False, table=True)
    names = tuple(optimizer or PAPER_OPTIMIZERS)
    typer.echo(f"Measuring {len(names)} optimizers on {backbone}, {dataset} ...", err=True)
    costs = asdict(measure_cost(backbone, dataset, names, rounds=rounds))
    table = cost_table(costs)
    outputs.show(render(table, "terminal"), costs, table=table)
    print_next("afor analyse cost --output cost.json, afor table cost cost.json")
