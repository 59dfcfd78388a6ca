"""Record every step of AFOR's controllers in a training, per tensor, as arrays.

log = StepLog()
replay(chosen, watch_step=log.watch)
steps = log.result()
steps["beta2"]        # (steps, tensors)
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim import Optimizer

from afor import AFOR
from afor.bench.common.errors import ConfigError
from afor.bench.training.batches import Batch
from afor.bench.training.controller_trace import layer_group
from afor.bench.training.fit import Fit
from afor.control import FIELDS, ControlSettings, control_settings

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Steps:
    """The state of the controllers of named tensors after each step."""

    names: tuple[str, ...]
    values: Mapping[str, FloatArray]  # by quantity, (steps, tensors)
    loss: FloatArray  # of each step's batch
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
        return replace(self, values=values, loss=self.loss[:steps])


class StepLog:
    """Copies the control states after each step; they stay on the device until the end."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._controls: list[torch.Tensor] = []
        self._settings = ControlSettings()
        self._states: list[torch.Tensor] = []  # (tensors, fields) after each step
        self._losses: list[torch.Tensor] = []

    def watch(self, fit: Fit, _batch: Batch, loss: torch.Tensor) -> None:
        """Record a step of `train`; raise ConfigError for other optimizers than AFOR."""
        if not self._names:
            self._find(fit.optimizer, fit.model)
        self._states.append(torch.stack(self._controls))
        self._losses.append(loss)

    def result(self) -> Steps:
        """Return all steps so far."""
        if not self._states:
            raise ConfigError("No step was recorded: the training took none.")
        control, loss = (
            torch.stack(values).cpu().numpy().astype(np.float64)
            for values in (self._states, self._losses)
        )
        fields = {name: control[..., i] for i, name in enumerate(FIELDS)}
        settings = self._settings
        variance = fields["score_var"]
        if settings.statistics == "calibrated":  # stored without bias correction
            counts = np.arange(1, len(control) + 1)[:, None]
            variance = variance / -np.expm1(counts * np.log(settings.beta2))
        values = {
            "residual": _undo_average(fields["noise_fast"], settings.beta1),
            **{name: fields[name] for name in ("agreement", "score", "zscore")},
            "score_std": np.sqrt(np.maximum(variance, 0.0)),
            "beta2": 1.0 - fields["forgetting"],
        }
        limits = (settings.beta2_min, settings.beta2)
        return Steps(self._names, values, loss, limits, settings.warmup_steps)

    def _find(self, optimizer: Optimizer, model: nn.Module) -> None:
        if not isinstance(optimizer, AFOR):
            raise ConfigError(
                f"{type(optimizer).__name__} has no controller to look at. "
                f'Choose AFOR or one of its variants, such as "afor" or "afor_calibrated".'
            )
        state = optimizer.state
        controls = {
            name: state[p]["control"]
            for name, p in model.named_parameters()
            if "control" in state[p]
        }
        self._names, self._controls = tuple(controls), list(controls.values())
        self._settings = control_settings(optimizer.param_groups[0])


def _undo_average(average: FloatArray, decay: float) -> FloatArray:
    """Return the inputs of an exponential average from zero at each step, up to rounding."""
    before = np.concatenate([np.zeros((1, average.shape[1])), average[:-1]])
    return (average - decay * before) / (1.0 - decay)
