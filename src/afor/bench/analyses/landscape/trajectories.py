"""Record the path of an optimizer: train one run again and keep its weights.

trajectory = record_trajectory(find_run(study, optimizer="afor"))
trajectory.weights  # (points, weights): as initialised, then after every epoch
"""

import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from afor.bench.analyses.replay import ChosenRun
from afor.bench.common.errors import ConfigError, TrainingError
from afor.bench.common.files import write_output
from afor.bench.training.batches import Batch
from afor.bench.training.fit import Fit
from afor.bench.training.loop import train
from afor.bench.training.record import Epoch

FIELDS = ("weights", "buffers", "steps", "solution", "epochs")


@dataclass(frozen=True)
class Trajectory:
    """Weights and buffers of a network, point by point, flattened in the order of the network."""

    optimizer: str
    key: str  # of the run
    weights: NDArray[np.float32]  # (points, weights)
    buffers: NDArray[np.float64]  # (points, buffers): the running statistics of batch norm
    steps: NDArray[np.int64]  # (points,) optimizer steps taken before each point
    solution: int  # the point whose weights the run restores at its end
    epochs: int

    @property
    def points(self) -> NDArray[np.float64]:
        """Return the weights for geometry, which needs more digits than training."""
        return self.weights.astype(np.float64)


def record_trajectory(
    run: ChosenRun, every_steps: int = 0, watch: Callable[[int], None] | None = None
) -> Trajectory:
    """Train a run as the study does and record its weights: initial, and after every epoch.

    Args:
        run: The run, from `find_run`.
        every_steps: Record the weights after every so many steps too; 0 records epochs alone.
        watch: Called with the number of each finished epoch.
    """
    if every_steps < 0:
        raise ConfigError(f"every_steps = {every_steps}: 0 keeps epochs alone, 1 every step.")
    points_by_step: dict[int, tuple[NDArray[np.float32], NDArray[np.float64]]] = {}
    steps = 0
    at_epochs: list[int] = []

    def make_model() -> nn.Module:
        model = run.make_model()
        points_by_step[0] = flatten(model)
        return model

    def after_step(fit: Fit, batch: Batch, loss: torch.Tensor) -> None:  # noqa: ARG001
        nonlocal steps
        steps += 1
        if every_steps and steps % every_steps == 0:
            points_by_step[steps] = flatten(fit.model)

    def after_epoch(epoch: Epoch, model: nn.Module) -> None:  # noqa: ARG001
        points_by_step[steps] = flatten(model)  # what a run restores if this epoch is its best
        at_epochs.append(steps)
        if watch is not None:
            watch(len(at_epochs))

    record = train(run.settings, run.source, make_model, after_epoch, after_step)
    if record.status != "done" or record.best_epoch is None:
        raise TrainingError(
            f"{run.label}: {record.reason}, so it has no solution to centre on or to reach. "
            "Choose another fold or draw, or a smaller learning rate in the study."
        )
    return Trajectory(
        optimizer=run.planned.optimizer,
        key=run.planned.key,
        weights=np.stack([weights for weights, _ in points_by_step.values()]),
        buffers=np.stack([buffers for _, buffers in points_by_step.values()]),
        steps=np.array(list(points_by_step), dtype=np.int64),
        solution=list(points_by_step).index(at_epochs[record.best_epoch]),
        epochs=len(at_epochs),
    )


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


def save_trajectories(path: Path, trajectories: Sequence[Trajectory], every_steps: int) -> None:
    """Write trajectories to an .npz file, so that another plane needs no training."""
    content: dict[str, NDArray[np.generic]] = {"every_steps": np.array(every_steps)}
    for trajectory in trajectories:
        for field in FIELDS:
            name = f"{trajectory.optimizer}/{trajectory.key}/{field}"
            content[name] = np.asarray(getattr(trajectory, field))
    stream = io.BytesIO()
    np.savez(stream, **content)  # type: ignore[arg-type]
    write_output(path, stream.getvalue())


def load_trajectories(path: Path, every_steps: int) -> dict[str, Trajectory]:
    """Read the trajectories of a file by the key of their run. Raises ConfigError."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
            if int(content["every_steps"]) != every_steps:
                raise ConfigError(
                    f"{path} holds a point every {content['every_steps']} steps, "
                    f"{every_steps} are asked for (0: every epoch). Name another file."
                )
            trajectories = {}
            for file in filter(lambda name: name.endswith("/weights"), content.files):
                optimizer, key, _ = file.rsplit("/", 2)
                fields = (content[f"{optimizer}/{key}/{field}"] for field in FIELDS)
                weights, buffers, steps, solution, epochs = fields
                trajectories[key] = Trajectory(
                    optimizer, key, weights, buffers, steps, int(solution), int(epochs)
                )
            return trajectories
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"{path} does not hold trajectories ({error}). Remove it or name another file; "
            "`afor landscape` writes it anew."
        ) from error
