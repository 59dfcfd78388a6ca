"""The command ``afor analyse landscape``: the loss around a solution, and the paths to it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from afor.bench.analyses.landscape import compute as analysis
from afor.bench.analyses.landscape.loss_grid import grid_axis
from afor.bench.analyses.landscape.loss_surface import check_loss
from afor.bench.analyses.landscape.plane import check_directions
from afor.bench.analyses.landscape.record import landscape_json
from afor.bench.analyses.landscape.trajectories import (
    Trajectory,
    load_trajectories,
    record_trajectory,
    save_trajectories,
)
from afor.bench.analyses.landscape.views import describe, landscape_figure
from afor.bench.analyses.replay import ChosenRun
from afor.bench.cli.analyses.run_selection import select_run
from afor.bench.cli.options import Jobs, RunOptions, StudyName, option
from afor.bench.cli.printing import check_figures
from afor.bench.cli.studies.selection import cores, resolve_study
from afor.bench.cli.terminal import print_next
from afor.bench.common.files import write_output
from afor.bench.report.figures.style import save_figure

DATA_SUFFIX = ".json"
SHOWN_EVERY_S = 10.0  # between two lines of progress
ShowProgress = Callable[..., None]  # of the name of a task, items done, and items in `total`


def landscape(
    options: RunOptions,
    name: StudyName,
    optimizer: Annotated[
        list[str] | None,
        option("Optimizer of the study to train; repeatable.", show_default="adam and afor"),
    ] = None,
    grid: Annotated[int, option("Number of grid points along each direction.", max=1001)] = 51,
    span: Annotated[
        float | None,
        option("The grid reaches from -SPAN to SPAN.", show_default="wide enough for the paths"),
    ] = None,
    directions: Annotated[
        Literal["random", "filter", "pca"],
        option("Directions of the plane: random, filter-normalised, or PCA of the paths."),
    ] = "random",
    windows: Annotated[
        int, option("Number of training windows to average the loss over; 0 uses all.")
    ] = 512,
    batch_norm: Annotated[
        Literal["fixed", "recomputed"],
        option("Batch-norm statistics: those of the center, or recomputed at each point."),
    ] = "fixed",
    paths: Annotated[
        Path | None,
        option("An .npz file that keeps the paths, so that another plane needs no training."),
    ] = None,
    output: Annotated[
        list[Path] | None,
        option(
            "The values (.json) or a figure (.pdf .svg .png); repeatable.",
            "--output",
            "-o",
            show_default="landscape.json",
        ),
    ] = None,
    jobs: Jobs = 0,
) -> None:
    """Draw the loss around a trained solution.

    Trains one run of a study with each optimizer, and evaluates the loss on a plane through one of
    the solutions.

    Example:
        afor analyse landscape demo --directions pca --output landscape.json
    """
    targets = output or [Path("landscape.json")]
    check_figures(targets, (DATA_SUFFIX,))
    names = optimizer or ["adam", "afor"]
    center = analysis.choose_center(names, "")
    grid_axis(grid, 1.0 if span is None else span)
    plane, norm = check_directions(directions), check_loss(windows, batch_norm)
    study = resolve_study(name)
    runs = [select_run(study, options, optimizer_name) for optimizer_name in names]
    show = _show_progress()
    measured = analysis.landscape(
        runs,
        _trajectories(runs, paths, show),
        study=study.name,
        center=center,
        directions=plane,
        grid=grid,
        span=span,
        windows=windows,
        batch_norm=norm,
        workers=jobs or cores(),
        watch=partial(show, "loss at grid and path points"),
    )
    for target in targets:
        if target.suffix.lower() == DATA_SUFFIX:
            write_output(target, landscape_json(measured))
        else:
            save_figure(landscape_figure(measured), target)
    typer.echo(describe(measured) + "\n")
    for target in targets:
        typer.echo(str(target))
    data = next((t for t in targets if t.suffix.lower() == DATA_SUFFIX), None)
    print_next(
        f"afor figure landscape {data}; afor table landscape {data}; "
        f"afor report RESULTS --landscape {data}"
        if data
        else f"afor analyse landscape {name} --output landscape.json, which tables and figures read"
    )


def _trajectories(
    runs: Sequence[ChosenRun], path: Path | None, show: ShowProgress
) -> list[Trajectory]:
    """Read the paths that the file holds, train the others, and add these to the file."""
    by_key = load_trajectories(path, 0) if path is not None and path.exists() else {}
    trajectories = []
    for run in runs:
        planned = run.planned
        if planned.key not in by_key:
            task = f"training {planned.optimizer}"
            watch = partial(show, task, total=run.settings.max_epochs)
            watch(0)
            by_key[planned.key] = record_trajectory(run, 0, watch)
            if path is not None:
                save_trajectories(path, list(by_key.values()), 0)
        trajectories.append(replace(by_key[planned.key], optimizer=planned.optimizer))
    return trajectories


def _show_progress() -> ShowProgress:
    """Return a function that prints a task's progress every few seconds, on standard error."""
    printed_at = time.monotonic()
    current = ""

    def show(task: str, done: int, total: int) -> None:
        nonlocal printed_at, current
        if task != current or done == total or time.monotonic() - printed_at > SHOWN_EVERY_S:
            typer.echo(f"{task}: {done} of {total}", err=True)
            printed_at, current = time.monotonic(), task

    return show
