"""The training loss of a network as a function of its weights, on a fixed set of windows.

    surface = LossSurface(run, windows=512)
    surface(weights, buffers)

A surface can be sent to another process, which reads the windows by itself, once.
"""

from functools import cached_property
from typing import Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from afor.bench.analyses.landscape.record import BatchNorm
from afor.bench.analyses.landscape.trajectories import unflatten
from afor.bench.analyses.replay import ChosenRun
from afor.bench.common.devices import pick_device
from afor.bench.common.errors import ConfigError
from afor.bench.common.seeding import derive_substep, isolated
from afor.bench.training.batches import Batch
from afor.bench.training.fit import EVALUATION_BATCH

WINDOWS = 512  # a grid of 51 x 51 then takes EEGNet a minute or two


class LossSurface:
    """Mean cross-entropy over some windows of the training subjects, in evaluation mode."""

    def __init__(
        self,
        run: ChosenRun,
        *,
        windows: int = WINDOWS,
        seed: int = 0,
        batch_norm: BatchNorm = "fixed",
    ) -> None:
        self.run = run
        self.batch_norm = check_loss(windows, batch_norm)
        indices = run.source.indices_of(run.settings.split.train)
        self.training_windows = len(indices)
        if 0 < windows < len(indices):
            picked = np.random.default_rng(derive_substep(seed, 1)).choice(
                len(indices), windows, replace=False
            )
            indices = indices[np.sort(picked)]
        self.indices = indices

    def __getstate__(self) -> dict[str, Any]:
        """Do not pickle the windows and the network; the other process creates its own."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_batches", "_model")}

    def __call__(
        self, weights: NDArray[np.floating], buffers: NDArray[np.floating] | None = None
    ) -> float:
        """Return the loss at these weights; without `buffers` batch norm keeps its present ones."""
        unflatten(self._model, weights, buffers)
        with torch.no_grad():
            if self.batch_norm == "recomputed":
                self._recompute()
            total = sum(
                cross_entropy(self._model(batch.inputs), batch.labels, reduction="sum").double()
                for batch in self._batches
            )
        return float(total) / len(self.indices)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the network's parameters, in its order."""
        return [tuple(p.shape) for p in self._model.parameters()]

    @property
    def norm_layers(self) -> int:
        """Return how many layers keep running statistics."""
        return len(_norms(self._model))

    @cached_property
    def _model(self) -> nn.Module:
        settings = self.run.settings
        with isolated(settings.seed("weights"), pick_device("cpu")):
            return self.run.make_model().eval()

    @cached_property
    def _batches(self) -> list[Batch]:
        side = self.run.training_side(pick_device("cpu"))
        count = max(1, round(len(self.indices) / EVALUATION_BATCH))
        return [side.load(indices) for indices in np.array_split(self.indices, count)]

    def _recompute(self) -> None:
        """Average the statistics of batch norm over the windows; other layers keep their mode."""
        norms = _norms(self._model)
        usual = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain average over the batches
            norm.train()
        for batch in self._batches:
            self._model(batch.inputs)
        for norm, momentum in zip(norms, usual, strict=True):
            norm.momentum = momentum
            norm.eval()


def check_loss(windows: int, batch_norm: str) -> BatchNorm:
    """Return the treatment of batch norm; raise ConfigError for a value that is not accepted."""
    if windows < 0 or windows == 1:
        raise ConfigError(f"windows = {windows}: at least 2 are needed; 0 stands for all.")
    if batch_norm not in get_args(BatchNorm):
        accepted = ", ".join(get_args(BatchNorm))
        raise ConfigError(f'batch norm "{batch_norm}" is not known. Accepted: {accepted}.')
    return cast("BatchNorm", batch_norm)


def _norms(
    model: nn.Module,
) -> list[nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm]:
    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    return [m for m in model.modules() if isinstance(m, norms) and m.track_running_stats]
