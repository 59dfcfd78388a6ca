"""The command ``afor analyse cost``: operations, memory and time of a step of every optimizer."""

from dataclasses import asdict

import typer

from afor.bench.analyses.cost.compute import measure_cost
from afor.bench.analyses.cost.views import cost_table
from afor.bench.cli.printing import OutputOptions, render
from afor.bench.cli.terminal import print_next
from afor.bench.optimizers.registry import PAPER_OPTIMIZERS


def cost(
    *,
    outputs: OutputOptions,
    backbone: str = "eegnet",
    dataset: str = "deap",
    optimizer: list[str] | None = None,
    rounds: int = 25,
) -> None:
    """Measure the operations, memory and time of a step.

    All optimizers are compared with Adam.

    Args:
        backbone: A backbone that `afor models` lists, or module:Class.
        dataset: Data set with the windows' shape: deap, bci2a, isruc, physionet_mi.
        optimizer: Measure only this optimizer, and Adam; repeatable. [default: the paper's seven]
        rounds: Number of interleaved timing rounds.

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
