"""The command ``afor analyse matched``: a study that holds AdamW at AFOR's own mean beta2."""

from pathlib import Path
from typing import Annotated

import typer

from afor.bench.analyses.adaptation.matched import matched_study
from afor.bench.cli.options import OnlyStudy, Results, Trust, option
from afor.bench.cli.terminal import print_next
from afor.bench.common.files import write_output
from afor.bench.store.database import open_store
from afor.bench.store.locations import find_store
from afor.bench.study.named_code import refuse_stored_code


def matched(
    results: Results,
    output: Annotated[Path, option("The TOML file to write.", "--output", "-o")] = Path(
        "matched.toml"
    ),
    dataset: Annotated[str, option("Data set of the store.", show_default="the only one")] = "",
    backbone: Annotated[str, option("Backbone of the store.", show_default="the only one")] = "",
    study: OnlyStudy = None,
    optimizer: Annotated[str, option("The optimizer whose mean beta2 is used.")] = "afor",
    trust: Trust = False,
) -> None:
    """Write a study of AdamW at AFOR's mean beta2.

    The mean is taken from the finished AFOR runs of a store. The study compares AFOR with AdamW at
    one constant for all tensors, and at one constant per tensor.

    Example:
        afor analyse matched demo --output matched.toml
    """
    path = find_store(results)
    with open_store(path) as opened:
        made = matched_study(opened, study or "", dataset, backbone, optimizer)
    if not trust:
        refuse_stored_code(made.study, str(path))
    write_output(output, made.toml)
    width = max(map(len, made.beta2_by_tensor))
    typer.echo(
        f"Mean beta2 of {made.optimizer} on {made.dataset} × {made.backbone}: {made.runs} "
        f"runs, {made.steps} steps"
    )
    for name, beta2 in made.beta2_by_tensor.items():
        typer.echo(f"  {name:<{width}}  {beta2:.6f}")
    typer.echo(f"  {'over tensors':<{width}}  {made.beta2:.6f}\n{output}")
    judge = f"afor judge {path} --study {made.study.name} --baseline adamw_mean_per_tensor"
    print_next(f"afor run {output} --store {path}, then {judge}")
