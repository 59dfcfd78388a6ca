"""Compute the loss in a plane around a solution, with the optimizers' paths projected onto it.

    runs = [find_run(study, optimizer=name) for name in ("adam", "afor")]
    result = landscape(runs, [record_trajectory(run) for run in runs])

This is the right side of the paper's Fig. 1 and Table V. In addition it measures how much of each
path the plane shows.
"""

import copy
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray

from afor.bench.analyses.landscape.loss_surface import WINDOWS, LossSurface
from afor.bench.analyses.landscape.plane import (
    Directions,
    make_plane,
    path_length,
    random_lengths,
)
from afor.bench.analyses.landscape.record import BatchNorm, Landscape, PathInPlane
from afor.bench.analyses.landscape.trajectories import Trajectory
from afor.bench.analyses.replay import ChosenRun
from afor.bench.common.devices import repeatable
from afor.bench.common.errors import ConfigError
from afor.bench.common.seeding import derive_substep

GRID = 51
LEAST_GRID = 3
MARGIN = 1.15  # how far beyond the farthest projected point the grid reaches

Vector = NDArray[np.floating]  # all weights, or all buffers
Watch = Callable[[int, int], None]  # points done, points in all


def landscape(
    runs: Sequence[ChosenRun],
    trajectories: Sequence[Trajectory],
    *,
    study: str = "",
    directions: Directions = "random",
    grid: int = GRID,
    span: float | None = None,
    seed: int = 0,
    windows: int = WINDOWS,
    batch_norm: BatchNorm = "fixed",
    workers: int = 1,
    watch: Watch | None = None,
) -> Landscape:
    """Compute the losses of a grid in a plane and of all paths.

    Args:
        runs: The run of each optimizer.
        trajectories: The path of each run, from `record_trajectory`.
        study: Name of the study, for titles.
        directions: "random", "filter" (random, filter-normalised) or "pca" (of the paths).
        grid: Number of grid points along each direction.
        span: The grid reaches from -span to span; None makes it hold all paths.
        seed: Seed of the random directions and of the choice of windows.
        windows: Number of training windows to average the loss over; 0 uses all.
        batch_norm: "fixed" (statistics of the center) or "recomputed" (at each point).
        workers: Number of threads.
        watch: Called with the points done and the points in all.

    Raises:
        ConfigError: An argument is out of range, or the runs do not start from the same weights.
    """
    center = check_arguments([path.optimizer for path in trajectories], grid, span, windows)
    _check_pairing(trajectories)
    central = next(path for path in trajectories if path.optimizer == center)
    run = next(run for run in runs if run.planned.method == center)
    surface = LossSurface(run, windows=windows, seed=seed, batch_norm=batch_norm)
    paths = [trajectory.points for trajectory in trajectories]
    origin = paths[trajectories.index(central)][central.solution]
    plane = make_plane(directions, origin, np.concatenate(paths), surface.shapes, seed)
    in_plane = [plane.coordinates(points) for points in paths]
    if span is None:
        span = MARGIN * max(float(np.abs(points).max()) for points in in_plane)
    axis = grid_axis(grid, span)
    coordinates = np.concatenate([grid_coordinates(axis), *in_plane])
    own_points = [(path, number) for path in trajectories for number in range(len(path.weights))]

    def point(number: int) -> tuple[Vector, Vector]:
        """Return weights and buffers: in the plane those of the center, on a path its own."""
        if number < len(coordinates):
            weights = plane.at(coordinates[number]).astype(np.float32)
            return weights, central.buffers[central.solution]
        path, position = own_points[number - len(coordinates)]
        return path.weights[position], path.buffers[position]

    count = len(coordinates) + len(own_points)
    losses = evaluate(surface, point, count, workers=workers, watch=watch)
    sizes = [grid * grid, *[len(points) for points in in_plane] * 2]
    grid_loss, *path_losses = np.split(losses, np.cumsum(sizes)[:-1])
    lengths = np.full((len(paths), 2), math.nan)
    if directions == "random":
        drawn = random_lengths(paths, derive_substep(seed, 2))
        lengths = np.stack([drawn.mean(axis=1), drawn.std(axis=1, ddof=1)], axis=1)
    measured = {}
    for number, (trajectory, points) in enumerate(zip(trajectories, paths, strict=True)):
        projected, true = path_losses[number], path_losses[len(paths) + number]
        measured[trajectory.optimizer] = PathInPlane(
            x=in_plane[number][:, 0].tolist(),
            y=in_plane[number][:, 1].tolist(),
            solution=trajectory.solution,
            epochs=trajectory.epochs,
            projected_loss=projected.tolist(),
            true_loss=true.tolist(),
            # Paper: "minimum projected loss", undefined. Here: the loss of the plane at the
            # projected points of the path, lowest of them, because only that needs both the plane
            # and the path.
            minimum_loss=float(projected.min()),
            minimum_true_loss=float(true.min()),
            # Paper: "projected path length", units and points not stated. Here: in the units of
            # the weights, all recorded points, because a length must not depend on the directions'
            # scale.
            path_length=plane.path_length(points),
            path_length_full=path_length(points),
            explained_share=plane.explained_share(points),
            step_share=plane.step_share(points),
            random_length_mean=float(lengths[number, 0]),
            random_length_sd=float(lengths[number, 1]),
        )
    planned = run.planned
    return Landscape(
        study=study,
        dataset=planned.dataset,
        backbone=planned.backbone,
        fold=planned.fold,
        repetition=planned.repetition,
        center=center,
        directions=directions,
        seed=seed,
        weights=plane.center.size,
        span=span,
        windows=len(surface.indices),
        training_windows=surface.training_windows,
        batch_norm=batch_norm,
        axis=axis.tolist(),
        loss=grid_loss.reshape(grid, grid).tolist(),
        paths=measured,
    )


def check_arguments(optimizers: Sequence[str], grid: int, span: float | None, windows: int) -> str:
    """Return the optimizer whose solution is the origin: AFOR, else the last.

    Raises ConfigError if an argument of `landscape` is out of range, before anything is trained.
    """
    if not optimizers or len(set(optimizers)) < len(optimizers):
        names = ", ".join(optimizers) or "(none)"
        raise ConfigError(f"optimizers {names}: name at least one, and each of them once.")
    grid_axis(grid, 1.0 if span is None else span)
    if windows < 0 or windows == 1:
        raise ConfigError(f"windows = {windows}: at least 2 are needed; 0 stands for all.")
    return "afor" if "afor" in optimizers else optimizers[-1]


def grid_axis(points: int, span: float) -> NDArray[np.float64]:
    """Return the coordinates of a grid from -span to span; an odd number has 0 among them.

    >>> grid_axis(5, 1.0).tolist()
    [-1.0, -0.5, 0.0, 0.5, 1.0]
    """
    if points < LEAST_GRID:
        raise ConfigError(f"a grid of {points} x {points}: at least {LEAST_GRID} are needed.")
    if not 0 < span < float("inf"):
        raise ConfigError(f"span {span}: it must be a number above 0, in units of the directions.")
    numbers = np.arange(points, dtype=np.float64) - (points - 1) / 2
    return numbers * np.float64(2 * span / (points - 1))


def grid_coordinates(axis: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return all (x, y) of a grid, row by row: x runs fastest."""
    x, y = np.meshgrid(axis, axis)
    return np.stack([x.ravel(), y.ravel()], axis=1)


def evaluate(
    loss: Callable[[Vector, Vector], float],
    point: Callable[[int], tuple[Vector, Vector]],
    count: int,
    *,
    workers: int = 1,
    watch: Watch | None = None,
) -> NDArray[np.float64]:
    """Return the loss at each point, computed by several threads with a copy of `loss` each.

    One thread of torch computes a point, so the values do not depend on the number of workers.
    """
    own = threading.local()

    def start() -> None:
        torch.set_num_threads(1)  # holds for the thread that calls it
        own.loss = copy.deepcopy(loss)

    values = np.empty(count)
    with repeatable(1), ThreadPoolExecutor(workers, initializer=start) as pool:
        computed = pool.map(lambda number: own.loss(*point(number)), range(count))
        for number, value in enumerate(computed):
            values[number] = value
            if watch is not None:
                watch(number + 1, count)
    return values


def _check_pairing(trajectories: Sequence[Trajectory]) -> None:
    first = trajectories[0]
    for other in trajectories[1:]:
        if not np.array_equal(first.weights[0], other.weights[0]):
            raise ConfigError(
                f"{first.optimizer} and {other.optimizer} do not start from the same weights, so "
                "their paths cannot be compared. Choose optimizers of the same seed."
            )
