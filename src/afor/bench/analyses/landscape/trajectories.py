"""Record the path of an optimizer: train one run again and keep its weights.

trajectory = record_trajectory(find_run(study, optimizer="afor"))
trajectory.weights  # (points, weights): as initialised, then after every epoch
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from afor.bench.analyses.replay import ChosenRun, replay
from afor.bench.common.errors import ConfigError


@dataclass(frozen=True)
class Trajectory:
    """Weights and buffers of a network, point by point, flattened in the order of the network."""

    optimizer: str
    weights: NDArray[np.float32]  # (points, weights): as initialised, then after every epoch
    buffers: NDArray[np.float64]  # (points, buffers): the running statistics of batch norm
    solution: int  # the point whose weights the run restores at its end

    @property
    def points(self) -> NDArray[np.float64]:
        """Return the weights for geometry, which needs more digits than training."""
        return self.weights.astype(np.float64)

    @property
    def epochs(self) -> int:
        """Return the number of epochs of the run."""
        return len(self.weights) - 1


def record_trajectory(run: ChosenRun, watch: Callable[[int], None] | None = None) -> Trajectory:
    """Train a run as the study does and record its weights: initial, and after every epoch.

    Args:
        run: The run, from `find_run`.
        watch: Called with the number of each finished epoch.
    """
    points = [flatten(run.initial_model())]

    def after_epoch(_epoch: object, model: nn.Module) -> None:
        points.append(flatten(model))  # what a run restores if this epoch is its best
        if watch is not None:
            watch(len(points) - 1)

    record = replay(run, after_epoch)
    assert record.best_epoch is not None  # every finished training has one
    weights, buffers = map(np.stack, zip(*points, strict=True))
    return Trajectory(run.planned.method, weights, buffers, record.best_epoch + 1)


def flatten(model: nn.Module) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return copies of all parameters and of all buffers, each as one vector."""
    weights = [p.detach().cpu().numpy().ravel() for p in model.parameters()]
    buffers = [b.detach().cpu().numpy().ravel().astype(np.float64) for b in model.buffers()]
    return np.concatenate(weights), np.concatenate([*buffers, np.zeros(0)])


def unflatten(
    model: nn.Module, weights: NDArray[np.floating], buffers: NDArray[np.floating] | None = None
) -> None:
    """Put flat weights, and buffers if given, back into a network."""
    with torch.no_grad():
        _fill(list(model.parameters()), weights)
        if buffers is not None:
            _fill(list(model.buffers()), buffers)


def _fill(tensors: Sequence[torch.Tensor], values: NDArray[np.floating]) -> None:
    start = 0
    for tensor in tensors:
        part = torch.from_numpy(np.ascontiguousarray(values[start : start + tensor.numel()]))
        tensor.copy_(part.view(tensor.shape))
        start += tensor.numel()
    if start != len(values):
        raise ConfigError(f"the network has {start} values of this kind, {len(values)} were given.")
