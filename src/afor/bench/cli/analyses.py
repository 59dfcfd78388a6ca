"""The commands ``afor analyse``: of a step, of runs trained again, and of stored runs."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import typer

from afor.bench.analyses.adaptation.matched import matched_study
from afor.bench.analyses.adaptation.memory import (
    COMPARED,
    memory_content,
    memory_figure,
    watch_memory,
)
from afor.bench.analyses.adaptation.shift import measure_shift, shift_content, shift_figure
from afor.bench.analyses.cost.compute import measure_cost
from afor.bench.analyses.cost.views import cost_table
from afor.bench.analyses.headroom.compute import measure_headroom
from afor.bench.analyses.headroom.views import headroom_figure, headroom_tables
from afor.bench.analyses.landscape import compute
from afor.bench.analyses.landscape.record import content_of
from afor.bench.analyses.landscape.trajectories import Trajectory, record_trajectory
from afor.bench.analyses.landscape.views import findings, landscape_figure, landscape_table
from afor.bench.analyses.replay import ChosenRun, find_run
from afor.bench.cli.options import RunOptions
from afor.bench.cli.printing import OutputOptions, progress_bar, render
from afor.bench.cli.studies.selection import cores, resolve_study, with_roots
from afor.bench.cli.terminal import print_next
from afor.bench.common.files import write_output
from afor.bench.optimizers.registry import PAPER_OPTIMIZERS
from afor.bench.store.database import open_store
from afor.bench.store.locations import find_store
from afor.bench.study.named_code import refuse_stored_code
from afor.bench.study.schema import Study


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


def landscape(
    name: str,
    *,
    options: RunOptions,
    outputs: OutputOptions,
    method: list[str] | None = None,
    grid: int = 51,
    span: float | None = None,
    directions: Literal["random", "filter", "pca"] = "random",
    windows: int = 512,
    batch_norm: Literal["fixed", "recomputed"] = "fixed",
    jobs: int = 0,
) -> None:
    """Draw the loss around a trained solution.

    Trains one run of a study with each method, and evaluates the loss on a plane through one of
    the solutions. Tables, figures and the report read the values that it writes.

    Args:
        method: Method of the study to train; repeatable. [default: adam and afor]
        grid: Number of grid points along each direction.
        span: The grid reaches from -SPAN to SPAN. [default: wide enough for the paths]
        directions: Directions of the plane: random, filter-normalised, or PCA of the paths.
        windows: Number of training windows to average the loss over; 0 uses all.
        batch_norm: Batch-norm statistics: those of the center, or recomputed at each point.

    Example:
        afor analyse landscape demo --directions pca --output landscape.json
    """
    outputs.check(table=True)
    names = method or ["adam", "afor"]
    compute.check_arguments(names, grid, span, windows)
    study = resolve_study(name)
    runs = [select_run(study, options, name) for name in names]
    trajectories = [_trajectory(run) for run in runs]
    with progress_bar("loss at grid and path points") as show:
        measured = compute.landscape(
            runs,
            trajectories,
            study=study.name,
            directions=directions,
            grid=grid,
            span=span,
            windows=windows,
            batch_norm=batch_norm,
            workers=jobs or cores(),
            watch=show,
        )
    table = landscape_table(measured)
    text = "\n".join([render(table, "terminal"), *findings(measured)])
    outputs.show(text, content_of(measured), lambda: landscape_figure(measured), table)
    data = next((t for t in outputs.output or () if t.suffix.lower() == ".json"), None)
    print_next(
        f"afor figure landscape {data}; afor report RESULTS --landscape {data}"
        if data
        else f"afor analyse landscape {name} --output landscape.json, which tables and figures read"
    )


def memory(
    name: str,
    *,
    options: RunOptions,
    outputs: OutputOptions,
    method: str = "afor",
    steps: int = 0,
) -> None:
    """Show beta2 and z-scores of one run step by step.

    The run is trained again, beside the same run with constant beta2.

    Args:
        method: A method of the study that is AFOR or one of its variants.
        steps: Number of steps to train, without early stopping; 0 trains as the run does.

    Example:
        afor analyse memory demo --output memory.pdf
    """
    outputs.check()
    run = select_run(resolve_study(name), options, method)
    watched = watch_memory(run, steps, _say_training)
    numbers = memory_content(watched)
    outputs.show(_memory_text(numbers), numbers, lambda: memory_figure(watched))
    print_next(f"afor analyse shift {name}")


def shift(
    name: str,
    *,
    options: RunOptions,
    outputs: OutputOptions,
    method: str = "afor",
    batches_per_block: int = 20,
    blocks: int = 20,
    statistics: Literal["paper", "calibrated"] | None = None,
) -> None:
    """Measure how AFOR responds to a change of subject.

    This tests the paper's claim that a change of subject raises the residual and shortens the
    memory. The subjects of training batches change in blocks; a shuffled order is the control.

    Args:
        method: A method of the study that is AFOR or one of its variants.
        batches_per_block: Number of batches until the subjects change.
        blocks: Number of blocks of each subject.
        statistics: Statistics of the score. [default: the study's]

    Example:
        afor analyse shift demo --statistics calibrated
    """
    outputs.check()
    measured = measure_shift(
        select_run(resolve_study(name), options, method),
        batches_per_block=batches_per_block,
        blocks=blocks,
        statistics=statistics or "",
        progress=_say_training,
    )
    lines = [
        f"{measured.label}: {measured.events} changes of subject in {measured.steps} steps, "
        f"every {measured.batches_per_block} batches; score statistics: {measured.statistics}",
        "Mean over the first 10 batches after a change, blocks minus shuffled control:",
        *(f"  {link.sentence}" for link in measured.links),
    ]
    outputs.show("\n".join(lines), shift_content(measured), lambda: shift_figure(measured))
    other = "paper" if measured.statistics == "calibrated" else "calibrated"
    print_next(f"afor analyse shift {name} --statistics {other}")


def select_run(study: Study, options: RunOptions, method: str) -> ChosenRun:
    """Return the run of a study that the options of a command name, with its windows."""
    return find_run(
        with_roots(study, options.root),
        dataset=options.dataset,
        backbone=options.backbone,
        optimizer=method,
        fold=options.fold,
        repetition=min(study.protocol.only_repetitions or [0]),
    )


def _say_training(what: str) -> None:
    typer.echo(f"training: {what}", err=True)


def _trajectory(run: ChosenRun) -> Trajectory:
    _say_training(run.planned.method)
    with progress_bar("epochs") as show:
        return record_trajectory(run, lambda done: show(done, run.settings.max_epochs))


def _memory_text(numbers: dict[str, Any]) -> str:
    lines = [f"{numbers['run']}: {numbers['steps']} steps"]
    for form, label in (("printed", "as printed"), ("calibrated", "calibrated")):
        n = numbers[form]
        since = f"from step {n['active_step']} on" if n["active_step"] else "never"
        lines.append(
            f"  {label:<11} half of the tensors active: {since}; after the warm-up: "
            f"{100 * n['active_share']:.0f} % active, mean |z| {n['mean_abs_zscore']:.2f}, "
            f"beta2 {n['beta2_mean']:.4f}, SD {100 * n['beta2_sd_of_range']:.0f} % of its range"
        )
    printed, inactive = COMPARED["printed"], COMPARED["inactive"]
    return "\n".join(
        [
            *lines,
            f"Distance from {numbers['apart_from']}, relative to the way it travelled:",
            *(_distance_text(COMPARED[name], apart) for name, apart in numbers["apart"].items()),
            f"Distance of {printed} from {inactive}, the adaptation alone:",
            _distance_text(printed, numbers["adaptation"]),
        ]
    )


def _distance_text(label: str, apart: dict[str, Any]) -> str:
    parted = apart["part_step"]
    since = f"above 10 % from step {parted} on" if parted else "never above 10 % for good"
    return f"  {label:<32} {100 * apart['last']:8.2f} % at the end, {since}"


def matched(
    results: str,
    *,
    output: Path = Path("matched.toml"),
    dataset: str = "",
    backbone: str = "",
    study: str | None = None,
    method: str = "afor",
    trust: bool = False,
) -> None:
    """Write a study of AdamW at AFOR's mean beta2.

    The mean is taken from the finished AFOR runs of a store. The study compares AFOR with AdamW at
    one constant for all tensors, and at one constant per tensor.

    Args:
        output: The TOML file to write.
        dataset: Data set of the store. [default: the only one]
        backbone: Backbone of the store. [default: the only one]
        method: The method whose mean beta2 is used.

    Example:
        afor analyse matched demo --output matched.toml
    """
    path = find_store(results)
    with open_store(path) as opened:
        made = matched_study(opened, study or "", dataset, backbone, method)
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
