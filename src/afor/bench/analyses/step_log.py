"""Record every step of AFOR's controllers in a training, per tensor, as arrays.

log = StepLog()
replay(chosen, watch_step=log.watch)
steps = log.result()
steps["beta2"]        # (steps, tensors)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim import Optimizer

from afor import AFOR
from afor.bench.common.errors import ConfigError
from afor.bench.training.batches import Batch
from afor.bench.training.controller_trace import layer_group
from afor.bench.training.fit import Fit
from afor.control import FIELDS, ControlSettings, control_settings

FloatArray = NDArray[np.float64]
Parameters = Iterable[tuple[str, torch.nn.Parameter]]
RECORDED = ("noise_fast", "noise_slow", "agreement", "score", "zscore")  # as they are
CHUNK_STEPS = 1024  # control states on the device before they are read back together


@dataclass(frozen=True)
class Steps:
    """The state of the controllers of named tensors after each step."""

    names: tuple[str, ...]
    values: Mapping[str, FloatArray]  # by quantity, (steps, tensors)
    loss: FloatArray  # of each step's batch
    epochs: NDArray[np.int64]  # the epoch of each step, from 0
    beta2_range: tuple[float, float]
    warmup_steps: int

    def __getitem__(self, quantity: str) -> FloatArray:
        return self.values[quantity]

    def __len__(self) -> int:
        return len(self.loss)

    @property
    def groups(self) -> dict[str, list[int]]:
        """Return the tensors of each layer group, by position, in the order of the network."""
        groups: dict[str, list[int]] = {}
        for position, name in enumerate(self.names):
            groups.setdefault(layer_group(name), []).append(position)
        return groups

    def first(self, steps: int) -> "Steps":
        """Return the first `steps` steps."""
        values = {name: series[:steps] for name, series in self.values.items()}
        return replace(self, values=values, loss=self.loss[:steps], epochs=self.epochs[:steps])


class StepLog:
    """Copies the control states after each step; reads them from the device in chunks."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._controls: list[torch.Tensor] = []
        self._settings = ControlSettings()
        self._buffer: torch.Tensor | None = None
        self._losses: torch.Tensor | None = None
        self._filled = 0
        self._chunks: list[NDArray[np.float32]] = []
        self._loss_chunks: list[NDArray[np.float32]] = []
        self._epochs: list[int] = []

    def watch(self, fit: Fit, _batch: Batch, loss: torch.Tensor) -> None:
        """Record a step of `train`."""
        self.record(fit.optimizer, fit.model.named_parameters(), loss, len(fit.history))

    def record(
        self, optimizer: Optimizer, named: Parameters, loss: torch.Tensor, epoch: int = 0
    ) -> None:
        """Record the current control states; raise ConfigError for other optimizers than AFOR."""
        if self._buffer is None or self._losses is None:
            self._find(optimizer, named)
            now = torch.stack(self._controls)
            self._buffer = now.new_empty((CHUNK_STEPS, *now.shape))
            self._losses = loss.new_empty(CHUNK_STEPS)
        torch.stack(self._controls, out=self._buffer[self._filled])
        self._losses[self._filled] = loss
        self._epochs.append(epoch)
        self._filled += 1
        if self._filled == CHUNK_STEPS:
            self._flush()

    def result(self) -> Steps:
        """Return all steps so far."""
        self._flush()
        if not self._chunks:
            raise ConfigError("No step was recorded: the training took none.")
        control = np.concatenate(self._chunks).astype(np.float64)
        fields = {name: control[..., i] for i, name in enumerate(FIELDS)}
        settings = self._settings
        variance = fields["score_var"]
        if settings.statistics == "calibrated":  # stored without bias correction
            counts = np.arange(1, len(control) + 1)[:, None]
            variance = variance / -np.expm1(counts * np.log(settings.beta2))
        values = {
            "residual": _undo_average(fields["noise_fast"], settings.beta1, start=0.0),
            "cosine": _undo_average(fields["agreement"], settings.direction_decay, start=1.0),
            **{name: fields[name] for name in RECORDED},
            "score_std": np.sqrt(np.maximum(variance, 0.0)),
            "beta2": 1.0 - fields["forgetting"],
        }
        return Steps(
            self._names,
            values,
            np.concatenate(self._loss_chunks).astype(np.float64),
            np.array(self._epochs, dtype=np.int64),
            (settings.beta2_min, settings.beta2),
            settings.warmup_steps,
        )

    def _find(self, optimizer: Optimizer, named: Parameters) -> None:
        if not isinstance(optimizer, AFOR):
            raise ConfigError(
                f"{type(optimizer).__name__} has no controller to look at. "
                f'Choose AFOR or one of its variants, such as "afor" or "afor_calibrated".'
            )
        state = optimizer.state
        controls = [(name, state[p]["control"]) for name, p in named if "control" in state[p]]
        self._names = tuple(name for name, _ in controls)
        self._controls = [control for _, control in controls]
        self._settings = control_settings(optimizer.param_groups[0])

    def _flush(self) -> None:
        if self._buffer is None or self._losses is None or not self._filled:
            return
        self._chunks.append(self._buffer[: self._filled].cpu().numpy().copy())
        self._loss_chunks.append(self._losses[: self._filled].cpu().numpy().copy())
        self._filled = 0


def _undo_average(average: FloatArray, decay: float, start: float) -> FloatArray:
    """Return the inputs of an exponential average at each step, up to rounding."""
    before = np.concatenate([np.full((1, average.shape[1]), start), average[:-1]])
    return (average - decay * before) / (1.0 - decay)
