"""The command ``afor landscape``: the loss around a solution, and the ways that led there."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afor.bench.cli.study import CachePath, Json, Roots, StudyName, cores, with_roots
from afor.bench.common.errors import ConfigError

if TYPE_CHECKING:
    from afor.bench.analyses.landscape.compute import Landscape
    from afor.bench.analyses.landscape.trajectories import Trajectory
    from afor.bench.analyses.replay import ChosenRun

DATA, FIGURES = ".json", (".pdf", ".svg", ".png")
PLAIN_EVERY_S = 10.0  # between two lines of progress where there is no terminal

Show = Callable[[str, int, int], None]  # what, done, in all


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("landscape")(landscape)


def landscape(
    name: StudyName,
    dataset: Annotated[str, typer.Option(help="[default: the study's first]")] = "",
    backbone: Annotated[str, typer.Option(help="[default: the study's first]")] = "",
    optimizer: Annotated[
        list[str] | None, typer.Option(help="Repeatable. [default: adam and afor]")
    ] = None,
    center: Annotated[
        str, typer.Option(help="Whose solution lies in the middle. [default: afor, else the last]")
    ] = "",
    fold: Annotated[int, typer.Option(min=0, help="The fold of the run.")] = 0,
    draw: Annotated[int, typer.Option(min=0, help="The draw of the run.")] = 0,
    grid: Annotated[int, typer.Option(max=1001, help="Points along each direction.")] = 51,
    span: Annotated[
        float | None, typer.Option(help="The grid reaches from -SPAN to SPAN. [default: the paths]")
    ] = None,
    directions: Annotated[
        str, typer.Option(help="random, filter (random, filter-normalised) or pca (of the paths).")
    ] = "random",
    seed: Annotated[int, typer.Option(help="Of random directions and of the windows.")] = 0,
    windows: Annotated[
        int, typer.Option(help="Training windows the loss is a mean over; 0: all.")
    ] = 512,
    batch_norm: Annotated[
        str, typer.Option(help="fixed: statistics of the center; recomputed: at every point.")
    ] = "fixed",
    every_steps: Annotated[
        int, typer.Option(help="Keep a path's point every so many steps too; 0: epochs alone.")
    ] = 0,
    paths: Annotated[
        Path | None,
        typer.Option(help="An .npz file that keeps the paths: another plane trains nothing."),
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", help=".json, .pdf, .svg or .png; repeatable."),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            "-j", "--jobs", min=0, max=1024, help="Processes for the grid. [default: cores]"
        ),
    ] = 0,
    cache_dir: CachePath = None,
    root: Roots = None,
    json_: Json = False,
) -> None:
    """Train a run once per optimizer and draw the loss around one of the solutions."""
    from afor.bench.analyses.landscape import compute as analysis
    from afor.bench.analyses.landscape.loss_grid import grid_axis
    from afor.bench.analyses.landscape.loss_surface import check_loss
    from afor.bench.analyses.landscape.plane import check_directions
    from afor.bench.analyses.landscape.text import describe
    from afor.bench.analyses.replay import find_run
    from afor.bench.study.schema import load_study

    targets = output or [Path("landscape.json")]
    for target in targets:  # before the work, not after it
        if target.suffix.lower() not in (DATA, *FIGURES):
            accepted = ", ".join((DATA, *FIGURES))
            raise ConfigError(f"--output {target}: a landscape is written as {accepted}.")
    names = optimizer or ["adam", "afor"]
    center = analysis.choose_center(names, center)
    grid_axis(grid, 1.0 if span is None else span)
    kind, norm = check_directions(directions), check_loss(windows, batch_norm)
    study = with_roots(load_study(name), root)
    runs = [
        find_run(
            study, dataset=dataset, backbone=backbone, optimizer=one, fold=fold, draw=draw,
            cache_dir=cache_dir,
        )
        for one in names
    ]  # fmt: skip
    with _progress() as show:
        trajectories = _trajectories(runs, paths, every_steps, show)
        found = analysis.landscape(
            runs,
            trajectories,
            study=study.name,
            center=center,
            directions=kind,
            grid=grid,
            span=span,
            seed=seed,
            windows=windows,
            batch_norm=norm,
            every_steps=every_steps,
            workers=jobs or cores(),
            watch=lambda done, total: show("loss at grid and path points", done, total),
        )
    for target in targets:
        if target.suffix.lower() == DATA:
            analysis.write_landscape(found, target)
        else:
            _write_figure(found, target)
    if json_:
        typer.echo(analysis.landscape_json(found), nl=False)
        return
    typer.echo(describe(found) + "\n")
    for target in targets:
        typer.echo(str(target))
    data = next((t for t in targets if t.suffix.lower() == DATA), None)
    following = (
        f"afor figure landscape --data {data}; afor table landscape --ours {data}; "
        f"afor report STORE --landscape {data}"
        if data
        else f"afor landscape {name} --output landscape.json, which tables and figures read"
    )
    typer.echo(f"\nNext: {following}", err=True)


def _trajectories(
    runs: "Sequence[ChosenRun]", path: Path | None, every_steps: int, show: Show
) -> "list[Trajectory]":
    """Read the paths that a file holds, train the others, and write the file anew."""
    from dataclasses import replace
    from functools import partial

    from afor.bench.analyses.landscape.trajectories import (
        load_trajectories,
        record_trajectory,
        save_trajectories,
    )

    known = load_trajectories(path, every_steps) if path is not None and path.exists() else {}
    found = []
    for run in runs:
        planned = run.planned
        if planned.key not in known:
            watch = partial(_show_epoch, show, planned.optimizer, run.settings.max_epochs)
            watch(0)
            known[planned.key] = record_trajectory(run, every_steps, watch)
            if path is not None:
                save_trajectories(path, list(known.values()), every_steps)
        found.append(replace(known[planned.key], optimizer=planned.optimizer))
    return found


def _show_epoch(show: Show, optimizer: str, most: int, done: int) -> None:
    show(f"training {optimizer}", done, most)


def _write_figure(found: "Landscape", target: Path) -> None:
    from afor.bench.analyses.landscape.figure import landscape_figure
    from afor.bench.report.figures.style import save_figure

    save_figure(landscape_figure(found), target)


@contextmanager
def _progress() -> Iterator[Show]:
    """Show a bar per piece of work on stderr; plain lines where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import Progress, TaskID

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield _plain_lines()
        return
    with Progress(console=console) as bars:
        tasks: dict[str, TaskID] = {}
        finished: dict[str, int] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                for earlier, task in tasks.items():  # early stopping leaves epochs out
                    bars.update(task, total=finished[earlier])
                tasks[what] = bars.add_task(what, total=total)
            finished[what] = done
            bars.update(tasks[what], completed=done)

        yield show


def _plain_lines() -> Show:
    said = time.monotonic()
    current = ""

    def show(what: str, done: int, total: int) -> None:
        nonlocal said, current
        if what != current or done == total or time.monotonic() - said > PLAIN_EVERY_S:
            sys.stderr.write(f"{what}: {done} of {total}\n")
            sys.stderr.flush()
            said, current = time.monotonic(), what

    return show
