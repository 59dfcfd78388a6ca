from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from afor.bench.array_windows import ArrayWindows


@pytest.fixture
def make_windows() -> Callable[..., ArrayWindows]:
    """Windows of a few subjects, two classes told apart by the power of one channel."""

    def make(
        n_subjects: int = 6, trials: int = 10, per_trial: int = 3, n_classes: int = 2
    ) -> ArrayWindows:
        rng = np.random.default_rng(8)
        count = n_subjects * trials * per_trial
        labels = np.repeat(np.arange(n_subjects * trials) % n_classes, per_trial)
        windows = rng.normal(size=(count, 3, 32))
        for label in range(n_classes):
            windows[labels == label, 0] *= 1 + label
        subject = np.repeat(np.arange(n_subjects), trials * per_trial)
        windows += subject[:, None, None]  # each head has an offset of its own
        return ArrayWindows(
            windows,
            labels,
            [f"s{i}" for i in subject],
            np.repeat(np.arange(n_subjects * trials), per_trial),
        )

    return make


class TinyNet(nn.Module):
    """Batch norm, dropout, log-power and a linear layer: what backbones are made of."""

    def __init__(self, channels: int = 3, classes: int = 2) -> None:
        super().__init__()
        self.mix = nn.Conv1d(channels, 6, 5, bias=False)
        self.norm = nn.BatchNorm1d(6)
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(6, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        power = self.norm(self.mix(inputs)).square().mean(dim=-1)
        return self.head(self.drop(torch.log1p(power)))


@pytest.fixture
def tiny_net() -> type[nn.Module]:
    return TinyNet
