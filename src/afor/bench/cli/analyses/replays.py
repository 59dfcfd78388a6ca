"""The commands ``afor analyse landscape | memory | shift``: a run trained again and watched."""

from typing import Any, Literal

import typer

from afor.bench.analyses.adaptation.memory import (
    COMPARED,
    memory_content,
    memory_figure,
    watch_memory,
)
from afor.bench.analyses.adaptation.shift import measure_shift, shift_content, shift_figure
from afor.bench.analyses.landscape import compute
from afor.bench.analyses.landscape.record import content_of
from afor.bench.analyses.landscape.trajectories import Trajectory, record_trajectory
from afor.bench.analyses.landscape.views import findings, landscape_figure, landscape_table
from afor.bench.analyses.replay import ChosenRun, find_run
from afor.bench.cli.options import RunOptions
from afor.bench.cli.printing import OutputOptions, progress_bar, render
from afor.bench.cli.studies.selection import cores, resolve_study, with_roots
from afor.bench.cli.terminal import print_next
from afor.bench.study.schema import Study


def landscape(
    name: str,
    *,
    options: RunOptions,
    outputs: OutputOptions,
    optimizer: list[str] | None = None,
    grid: int = 51,
    span: float | None = None,
    directions: Literal["random", "filter", "pca"] = "random",
    windows: int = 512,
    batch_norm: Literal["fixed", "recomputed"] = "fixed",
    jobs: int = 0,
) -> None:
    """Draw the loss around a trained solution.

    Trains one run of a study with each optimizer, and evaluates the loss on a plane through one of
    the solutions. Tables, figures and the report read the values that it writes.

    Args:
        optimizer: Optimizer of the study to train; repeatable. [default: adam and afor]
        grid: Number of grid points along each direction.
        span: The grid reaches from -SPAN to SPAN. [default: wide enough for the paths]
        directions: Directions of the plane: random, filter-normalised, or PCA of the paths.
        windows: Number of training windows to average the loss over; 0 uses all.
        batch_norm: Batch-norm statistics: those of the center, or recomputed at each point.

    Example:
        afor analyse landscape demo --directions pca --output landscape.json
    """
    outputs.check(table=True)
    names = optimizer or ["adam", "afor"]
    compute.check_arguments(names, grid, span, windows)
    study = resolve_study(name)
    runs = [select_run(study, options, optimizer_name) for optimizer_name in names]
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
    optimizer: str = "afor",
    steps: int = 0,
) -> None:
    """Show beta2 and z-scores of one run step by step.

    The run is trained again, beside the same run with constant beta2.

    Args:
        optimizer: AFOR or one of its variants.
        steps: Number of steps to train, without early stopping; 0 trains as the run does.

    Example:
        afor analyse memory demo --output memory.pdf
    """
    outputs.check()
    run = select_run(resolve_study(name), options, optimizer)
    watched = watch_memory(run, steps, _say_training)
    numbers = memory_content(watched)
    outputs.show(_memory_text(numbers), numbers, lambda: memory_figure(watched))
    print_next(f"afor analyse shift {name}")


def shift(
    name: str,
    *,
    options: RunOptions,
    outputs: OutputOptions,
    optimizer: str = "afor",
    batches_per_block: int = 20,
    rounds: int = 20,
    statistics: Literal["paper", "calibrated"] | None = None,
) -> None:
    """Measure how AFOR responds to a change of subject.

    This tests the paper's claim that a change of subject raises the residual and shortens the
    memory. The subjects of training batches change in blocks; a shuffled order is the control.

    Args:
        optimizer: AFOR or one of its variants.
        batches_per_block: Number of batches until the subjects change.
        rounds: Number of blocks of each subject.
        statistics: Statistics of the score. [default: the study's]

    Example:
        afor analyse shift demo --statistics calibrated
    """
    outputs.check()
    measured = measure_shift(
        select_run(resolve_study(name), options, optimizer),
        batches_per_block=batches_per_block,
        rounds=rounds,
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


def select_run(study: Study, options: RunOptions, optimizer: str) -> ChosenRun:
    """Return the run of a study that the options of a command name, with its windows."""
    return find_run(
        with_roots(study, options.root),
        dataset=options.dataset,
        backbone=options.backbone,
        optimizer=optimizer,
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
