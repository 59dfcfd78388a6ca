"""The commands ``afor analyse matched | headroom``: what finished runs say of beta2."""

from pathlib import Path

import typer

from afor.bench.analyses.adaptation.matched import matched_study
from afor.bench.analyses.headroom.compute import measure_headroom
from afor.bench.analyses.headroom.views import headroom_figure, headroom_tables
from afor.bench.cli.printing import OutputOptions, render
from afor.bench.cli.terminal import print_next
from afor.bench.common.files import write_output
from afor.bench.store.database import open_store
from afor.bench.store.locations import find_store
from afor.bench.study.named_code import refuse_stored_code


def matched(
    results: str,
    *,
    output: Path = Path("matched.toml"),
    dataset: str = "",
    backbone: str = "",
    study: str | None = None,
    optimizer: str = "afor",
    trust: bool = False,
) -> None:
    """Write a study of AdamW at AFOR's mean beta2.

    The mean is taken from the finished AFOR runs of a store. The study compares AFOR with AdamW at
    one constant for all tensors, and at one constant per tensor.

    Args:
        output: The TOML file to write.
        dataset: Data set of the store. [default: the only one]
        backbone: Backbone of the store. [default: the only one]
        optimizer: The optimizer whose mean beta2 is used.

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


def headroom(
    results: str,
    *,
    outputs: OutputOptions,
    metric: list[str] | None = None,
    study: str | None = None,
) -> None:
    """Measure what any constant beta2 could gain over 0.999.

    Works on any finished study that has AdamW with several beta2 and, for a fair comparison,
    several learning rates. Constant and learning rate are chosen on one half of the folds or
    repetitions and scored on the other, both ways. Every other optimizer is a rule: the table
    compares it with beta2 = 0.999 and with the best constant.

    Args:
        metric: Metric to compare; repeatable. [default: nll and accuracy, of streams also on the
            next subject]

    Example:
        afor analyse headroom headroom --output headroom.png
    """
    outputs.check()
    with open_store(find_store(results)) as store:
        measured = measure_headroom(store, metric, study=study)
    tables = headroom_tables(measured)
    records = [record for table in tables for record in table.records]
    outputs.show(
        "\n".join(render(table, "terminal") for table in tables),
        {"table": "headroom", "rows": records},
        lambda: headroom_figure(measured),
    )
    print_next(f"afor judge {results} --baseline adamw --metric nll")
