"""Compute the loss in a plane around a solution, with the optimizers' paths projected onto it.

    runs = [find_run(study, optimizer=name) for name in ("adam", "afor")]
    result = landscape(runs, [record_trajectory(run) for run in runs], center="afor")

This is the right side of the paper's Fig. 1 and Table V. In addition it measures how much of each
path the plane shows.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from afor.bench.analyses.landscape.loss_grid import Watch, evaluate, grid_axis, grid_coordinates
from afor.bench.analyses.landscape.loss_surface import WINDOWS, LossSurface
from afor.bench.analyses.landscape.plane import (
    Directions,
    Plane,
    make_plane,
    path_length,
    random_lengths,
)
from afor.bench.analyses.landscape.record import BatchNorm, Landscape, PathInPlane
from afor.bench.analyses.landscape.trajectories import Trajectory
from afor.bench.analyses.replay import ChosenRun
from afor.bench.common.errors import ConfigError
from afor.bench.common.seeding import derive_substep

GRID = 51
MARGIN = 1.15  # how far beyond the farthest projected point the grid reaches


@dataclass(frozen=True)
class Points:
    """The points to evaluate: those in the plane, then those of the trajectories; picklable."""

    surface: LossSurface
    plane: Plane
    coordinates: NDArray[np.float64]
    center_buffers: NDArray[np.float64]
    trajectories: Sequence[Trajectory]

    def __len__(self) -> int:
        return len(self.coordinates) + sum(len(path.weights) for path in self.trajectories)

    def __call__(self, number: int) -> float:
        """Return the loss of one point."""
        if number < len(self.coordinates):
            weights = self.plane.at(self.coordinates[number]).astype(np.float32)
            return self.surface(weights, self.center_buffers)
        number -= len(self.coordinates)
        for trajectory in self.trajectories:
            if number < len(trajectory.weights):
                return self.surface(trajectory.weights[number], trajectory.buffers[number])
            number -= len(trajectory.weights)
        raise IndexError(number)


def landscape(
    runs: Sequence[ChosenRun],
    trajectories: Sequence[Trajectory],
    *,
    study: str = "",
    center: str = "",
    directions: Directions = "random",
    grid: int = GRID,
    span: float | None = None,
    seed: int = 0,
    windows: int = WINDOWS,
    batch_norm: BatchNorm = "fixed",
    every_steps: int = 0,
    workers: int = 1,
    watch: Watch | None = None,
) -> Landscape:
    """Compute the losses of a grid in a plane and of all paths.

    Args:
        runs: The run of each optimizer.
        trajectories: The path of each run, from `record_trajectory`.
        study: Name of the study, for titles.
        center: Optimizer whose solution is the origin; by default AFOR, else the last.
        directions: "random", "filter" (random, filter-normalised) or "pca" (of the paths).
        grid: Number of grid points along each direction.
        span: The grid reaches from -span to span; None makes it hold all paths.
        seed: Seed of the random directions and of the choice of windows.
        windows: Number of training windows to average the loss over; 0 uses all.
        batch_norm: "fixed" (statistics of the center) or "recomputed" (at each point).
        every_steps: Steps between two points of a path, for the record; 0 if one per epoch.
        workers: Number of processes.
        watch: Called with the points done and the points in all.

    Raises:
        ConfigError: An argument is out of range, or the runs do not start from the same weights.
    """
    started = time.perf_counter()
    by_name = {trajectory.optimizer: trajectory for trajectory in trajectories}
    center = choose_center([trajectory.optimizer for trajectory in trajectories], center)
    grid_axis(grid, 1.0 if span is None else span)  # reports a mistake before the computation
    _check_pairing(trajectories)
    central, run = by_name[center], next(r for r in runs if r.planned.optimizer == center)
    surface = LossSurface(run, windows=windows, seed=seed, batch_norm=batch_norm)
    plane = make_plane(
        directions,
        central.points[central.solution],
        np.concatenate([trajectory.points for trajectory in trajectories]),
        surface.shapes,
        seed,
    )
    in_plane = [plane.coordinates(trajectory.points) for trajectory in trajectories]
    if span is None:
        span = MARGIN * max(float(np.abs(points).max()) for points in in_plane)
    axis = grid_axis(grid, span)
    coordinates = np.concatenate([grid_coordinates(axis), *in_plane])
    points = Points(surface, plane, coordinates, central.buffers[central.solution], trajectories)
    losses = evaluate(points, len(points), workers=workers, watch=watch)
    sizes = [grid * grid, *[len(points) for points in in_plane] * 2]
    grid_loss, *path_losses = np.split(losses, np.cumsum(sizes)[:-1])
    count = len(trajectories)
    planned = run.planned
    lengths = np.full((count, 2), math.nan)
    if directions == "random":
        drawn = random_lengths([path.points for path in trajectories], derive_substep(seed, 2))
        lengths = np.stack([drawn.mean(axis=1), drawn.std(axis=1, ddof=1)], axis=1)
    return Landscape(
        study=study,
        dataset=planned.dataset,
        backbone=planned.backbone,
        fold=planned.fold,
        draw=planned.draw,
        center=center,
        directions=directions,
        seed=seed,
        weights=plane.center.size,
        span=span,
        windows=len(surface.indices),
        training_windows=surface.training_windows,
        batch_norm=batch_norm,
        norm_layers=surface.norm_layers,
        every_steps=every_steps,
        axis=axis.tolist(),
        loss=grid_loss.reshape(grid, grid).tolist(),
        paths={
            trajectory.optimizer: replace(
                measure_path(plane, trajectory, projected, true),
                random_length_mean=float(length[0]),
                random_length_sd=float(length[1]),
            )
            for trajectory, projected, true, length in zip(
                trajectories, path_losses[:count], path_losses[count:], lengths, strict=True
            )
        },
        workers=workers,
        grid_s=time.perf_counter() - started,
    )


def choose_center(optimizers: Sequence[str], center: str = "") -> str:
    """Return the optimizer whose solution is the origin. Raises ConfigError."""
    if not optimizers or len(set(optimizers)) < len(optimizers):
        names = ", ".join(optimizers) or "(none)"
        raise ConfigError(f"optimizers {names}: name at least one, and each of them once.")
    if center and center not in optimizers:
        raise ConfigError(
            f'The center "{center}" is none of the optimizers: {", ".join(optimizers)}. '
            "Name it among them too."
        )
    return center or ("afor" if "afor" in optimizers else optimizers[-1])


def measure_path(
    plane: Plane,
    trajectory: Trajectory,
    projected_loss: NDArray[np.float64],
    true_loss: NDArray[np.float64],
) -> PathInPlane:
    """Return the measures of one trajectory in a plane."""
    points = trajectory.points
    x, y = plane.coordinates(points).T
    return PathInPlane(
        x=x.tolist(),
        y=y.tolist(),
        steps=trajectory.steps.tolist(),
        solution=trajectory.solution,
        epochs=trajectory.epochs,
        projected_loss=projected_loss.tolist(),
        true_loss=true_loss.tolist(),
        # Paper: "minimum projected loss", undefined. Here: the loss of the plane at the projected
        # points of the path, lowest of them, because only that needs both the plane and the path.
        minimum_loss=float(projected_loss.min()),
        minimum_true_loss=float(true_loss.min()),
        # Paper: "projected path length", units and points not stated. Here: in the units of the
        # weights, all recorded points, because a length must not depend on the directions' scale.
        path_length=plane.path_length(points),
        path_length_full=path_length(points),
        explained_share=plane.explained_share(points),
        step_share=plane.step_share(points),
    )


def _check_pairing(trajectories: Sequence[Trajectory]) -> None:
    first = trajectories[0]
    for other in trajectories[1:]:
        if not np.array_equal(first.weights[0], other.weights[0]):
            raise ConfigError(
                f"{first.optimizer} and {other.optimizer} do not start from the same weights, so "
                "their paths cannot be compared. Choose optimizers of the same seed."
            )
