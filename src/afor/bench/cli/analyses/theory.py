"""The command ``afor theory``: Sec. VI evaluated on a toy problem or on a run of a study."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from afor.bench.analyses.replay import ChosenRun
from afor.bench.analyses.theory.figure import memory_figure, toy_figure
from afor.bench.analyses.theory.run import estimate_run
from afor.bench.analyses.theory.summary import RUN_SOURCES, TOY_SOURCES, report
from afor.bench.analyses.theory.table import theory_table
from afor.bench.analyses.theory.toy import judge_toy, make_toy, sweep_eps
from afor.bench.cli.analyses.run_selection import select_run
from afor.bench.cli.options import AforVariant, Json, RunOptions, TableFormat, argument, option
from afor.bench.cli.printing import FORMATS, choose, figures_in, show_result
from afor.bench.cli.terminal import print_next
from afor.bench.common.errors import ConfigError
from afor.bench.study.schema import load_study


def theory(
    options: RunOptions,
    study: Annotated[
        str | None,
        argument(
            "A preset or TOML file, one run of which is trained again.",
            show_default="a toy problem with known constants",
        ),
    ] = None,
    optimizer: AforVariant = "afor",
    eps: Annotated[float, option("Toy problem: AFOR's ε.")] = 1e-8,
    weight_decay: Annotated[float, option("Toy problem: weight decay λ.")] = 1e-4,
    lr: Annotated[
        float, option("Toy problem: learning rate; 0 uses the largest that is permitted.")
    ] = 1e-3,
    steps: Annotated[int, option("Toy problem: number of training steps.", max=1_000_000)] = 500,
    form: TableFormat = None,
    output: Annotated[
        list[Path] | None,
        option(
            "A table (.md .tex .csv .txt), the values (.json) or a figure (.pdf .svg .png): "
            "the bound over ε of the toy problem, or what the second moment of a run remembers; "
            "repeatable.",
            "--output",
            "-o",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Evaluate the constants and the bound of Theorem 1.

    The condition on the step size is checked too.

    Example:
        afor theory demo --output theory.md
    """
    if form is not None:
        choose(form, FORMATS, "--format")
    targets = output or []
    if study is None:
        draws_figure = bool(figures_in(targets))
        values, draw_figure = _toy(eps, weight_decay, lr, steps, draws_figure=draws_figure)
    else:
        values, draw_figure = _run(select_run(load_study(study), options, optimizer))
    show_result(theory_table(values), values, draw_figure, targets, form, as_json=as_json)
    print_next("afor theory demo" if study is None else "afor cost")


def _toy(
    eps: float, weight_decay: float, lr: float, steps: int, *, draws_figure: bool
) -> tuple[dict[str, Any], Callable[[], Any]]:
    if not eps > 0 or weight_decay < 0 or lr < 0 or steps < 1:
        raise ConfigError(
            "--eps must be above 0, --weight-decay and --lr at least 0, --steps at least 1; "
            f"given {eps:g}, {weight_decay:g}, {lr:g} and {steps}."
        )
    toy = make_toy()
    judged = judge_toy(toy, eps=eps, weight_decay=weight_decay, steps=steps, lr=lr)
    values = report(
        judged.assumptions,
        judged.lr,
        {"weights": judged.run.beta2},
        float(judged.run.grad_sq.mean()),
        title="logistic regression with known constants",
        sources=TOY_SOURCES,
    )

    def draw_figure() -> Any:
        return toy_figure(
            {decay: sweep_eps(toy, weight_decay=decay, steps=steps) for decay in (0.0, 1e-4)}
        )

    if draws_figure:
        typer.echo("Training the toy problem over a range of ε ...", err=True)
    return values, draw_figure


def _run(run: ChosenRun) -> tuple[dict[str, Any], Callable[[], Any]]:
    typer.echo(f"Training again: {run.label} ...", err=True)
    estimated = estimate_run(run)
    values = report(
        estimated.assumptions,
        estimated.lr,
        {name: estimated.beta2[:, i] for i, name in enumerate(estimated.tensors)},
        sum(probe.grad_sq for probe in estimated.probes) / len(estimated.probes),
        title=run.label,
        sources=RUN_SOURCES,
    )

    def draw_figure() -> Any:
        title = f"What v remembers after {len(estimated.beta2):,} steps"
        return memory_figure(estimated.beta2, estimated.tensors, title)

    return values, draw_figure
