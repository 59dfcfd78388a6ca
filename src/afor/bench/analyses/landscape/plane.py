"""Define planes in the space of all weights and project paths onto them.

    plane = random_plane(center, seed=0)
    plane.coordinates(points), plane.explained_share(points)

Everything here is geometry on float64 arrays; no network, no loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError
from afor.bench.common.seeding import derive_substep

Directions = Literal["random", "filter", "pca"]
Vectors = NDArray[np.float64]  # (n, weights), or (n, 2) in the plane

# A direction counts as dependent on others if a smaller share of it is orthogonal to them.
DEPENDENT = 1e-9
PLANES = 200  # random planes over which a projected length is averaged


@dataclass(frozen=True)
class Plane:
    """The points center + x·directions[0] + y·directions[1]."""

    center: NDArray[np.float64]  # (weights,)
    directions: Vectors  # (2, weights), independent; of unit length unless filter-normalised

    def at(self, coordinates: Vectors) -> Vectors:
        """Return the weights at each (x, y)."""
        return self.center + coordinates @ self.directions

    def coordinates(self, points: Vectors) -> Vectors:
        """Return (x, y) of the point of the plane nearest to each of `points`."""
        # Filter-normalised directions are not quite orthogonal: least squares, not dot products.
        overlap = self.directions @ self.directions.T
        solved = np.linalg.solve(overlap, self.directions @ (points - self.center).T)
        return np.asarray(solved.T, dtype=np.float64)

    def path_length(self, points: Vectors) -> float:
        """Return the length of the projected path, in the units of the weights."""
        return path_length(self.coordinates(points) @ self.directions)

    def explained_share(self, points: Vectors) -> float:
        """Return the share of the squared displacement from the start that the plane keeps."""
        moved = points - points[0]
        return _share(self._within(moved), moved)

    def step_share(self, points: Vectors) -> float:
        """Return the share of the squared steps from point to point that the plane keeps."""
        steps = np.diff(points, axis=0)
        return _share(self._within(steps), steps)

    def _within(self, moves: Vectors) -> Vectors:
        return self.coordinates(moves + self.center) @ self.directions


def make_plane(
    directions: Directions,
    center: NDArray[np.float64],
    points: Vectors,
    shapes: Sequence[tuple[int, ...]],
    seed: int,
) -> Plane:
    """Return a plane through the center.

    "pca" needs the points of all paths, (points, weights); "filter" the shapes of the parameters.
    The seed is that of random directions. Raises ConfigError if the directions span no plane.
    """
    if directions == "pca":
        return pca_plane(center, points)
    if directions == "random":
        return random_plane(center, seed)
    return filter_plane(center, shapes, seed)


def random_plane(center: NDArray[np.float64], seed: int) -> Plane:
    """Return a plane of two Gaussian directions, made orthonormal."""
    return Plane(center, gram_schmidt(_gaussian(center.size, seed)))


def filter_plane(
    center: NDArray[np.float64], shapes: Sequence[tuple[int, ...]], seed: int
) -> Plane:
    """Return a random plane in which each filter of a direction is as long as that of the center.

    Filter normalisation of Li et al. 2018 (NeurIPS, "Visualizing the loss landscape of neural
    nets"): a filter is a row of a tensor's first dimension. Tensors of one dimension, so biases
    and the scales of batch norm, do not move, as in the figures of that paper.
    """
    raw = gram_schmidt(_gaussian(center.size, seed))
    scaled = np.zeros_like(raw)
    start = 0
    for shape in shapes:
        stop = start + int(np.prod(shape))
        if len(shape) > 1:
            weights = np.linalg.norm(center[start:stop].reshape(shape[0], -1), axis=1)
            for direction, result in zip(raw, scaled, strict=True):
                filters = direction[start:stop].reshape(shape[0], -1)
                ratio = weights / np.linalg.norm(filters, axis=1)
                result[start:stop] = (filters * ratio[:, None]).ravel()
        start = stop
    gram_schmidt(scaled)  # refuses dependent directions, which filters of a single weight make
    return Plane(center, scaled)


def pca_plane(center: NDArray[np.float64], points: Vectors) -> Plane:
    """Return the plane through the center that keeps most of the points' squared distance to it."""
    moved = points - center
    _, sizes, axes = np.linalg.svd(moved, full_matrices=False)
    if len(sizes) < 2 or sizes[1] <= DEPENDENT * sizes[0]:
        raise ConfigError(
            "The trajectories lie on a line, which spans no plane. Train for more epochs, record "
            "more points, or take random directions."
        )
    # The sign of a principal axis is arbitrary: let the first point lie at x, y >= 0.
    signs = np.where(axes[:2] @ moved[0] < 0, -1.0, 1.0)
    return Plane(center, axes[:2] * signs[:, None])


def gram_schmidt(vectors: Vectors) -> Vectors:
    """Return orthonormal directions of the same span; raise ConfigError if one depends on others.

    >>> gram_schmidt(np.array([[2.0, 0.0], [1.0, 3.0]])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    basis, triangle = np.linalg.qr(vectors.T)
    # Of what is orthogonal to the directions before, with a sign; 0 where there is no room left.
    lengths = np.pad(np.diag(triangle), (0, len(vectors) - len(triangle)))
    dependent = ~(np.abs(lengths) > DEPENDENT * np.linalg.norm(vectors, axis=1))
    if dependent.any():
        raise ConfigError(
            f"Direction {np.argmax(dependent) + 1} lies in the span of those before it, or is "
            "zero: together they span no plane. Take another seed or other directions."
        )
    return np.asarray((basis * np.sign(lengths)).T) + 0.0  # no negative zero


def random_lengths(paths: Sequence[Vectors], seed: int, planes: int = PLANES) -> Vectors:
    """Return the length of each path in each of many random planes, (paths, planes).

    It shows how much a projected length depends on the random plane.
    """
    lengths = np.empty((len(paths), planes))
    for number in range(planes):
        size = paths[0].shape[1]
        directions = gram_schmidt(_gaussian(size, derive_substep(seed, number))).T
        lengths[:, number] = [path_length(points @ directions) for points in paths]
    return lengths


def path_length(points: Vectors) -> float:
    """Return the length of the polyline through the points.

    >>> path_length(np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]]))
    6.0
    """
    return float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())


def _gaussian(size: int, seed: int) -> Vectors:
    return np.random.default_rng(seed).standard_normal((2, size))


def _share(kept: Vectors, whole: Vectors) -> float:
    total = float((whole**2).sum())
    return float((kept**2).sum()) / total if total > 0 else float("nan")
