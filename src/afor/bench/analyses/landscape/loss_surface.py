"""The training loss of a network as a function of its weights, on a fixed set of windows.

surface = LossSurface(run, windows=512)
surface(weights, buffers)
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from afor.bench.analyses.landscape.record import BatchNorm
from afor.bench.analyses.landscape.trajectories import unflatten
from afor.bench.analyses.replay import ChosenRun
from afor.bench.common.seeding import derive_substep
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
        self._batch_norm = batch_norm
        indices = run.source.indices_of(run.settings.split.train)
        self.training_windows = len(indices)
        if 0 < windows < len(indices):
            picked = np.random.default_rng(derive_substep(seed, 1)).choice(
                len(indices), windows, replace=False
            )
            indices = indices[np.sort(picked)]
        self.indices = indices
        self._model = run.initial_model().eval()
        self.shapes = [tuple(p.shape) for p in self._model.parameters()]
        side = run.side("training", torch.device("cpu"))
        count = max(1, round(len(indices) / EVALUATION_BATCH))
        self._batches = [side.load(part) for part in np.array_split(indices, count)]

    def __call__(
        self, weights: NDArray[np.floating], buffers: NDArray[np.floating] | None = None
    ) -> float:
        """Return the loss at these weights; without `buffers` batch norm keeps its present ones."""
        unflatten(self._model, weights, buffers)
        with torch.no_grad():
            if self._batch_norm == "recomputed":
                self._recompute()
            total = sum(
                cross_entropy(self._model(batch.inputs), batch.labels, reduction="sum").double()
                for batch in self._batches
            )
        return float(total) / len(self.indices)

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


def _norms(
    model: nn.Module,
) -> list[nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm]:
    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    return [m for m in model.modules() if isinstance(m, norms) and m.track_running_stats]
