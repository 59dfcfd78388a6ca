"""A small source of windows, a small network and the settings of a run of milliseconds."""

import numpy as np
import pytest
import torch
from torch import nn

from afor.bench.data.splits import make_splits
from afor.bench.data.window_source import ArrayWindows
from afor.bench.training.run_spec import RunSettings


@pytest.fixture
def source() -> ArrayWindows:
    """Windows of six subjects, two classes told apart by the power of one channel."""
    rng = np.random.default_rng(8)
    subject = np.repeat(np.arange(6), 30)
    trial = np.repeat(np.arange(60), 3)
    labels = trial % 2
    windows = rng.normal(size=(180, 3, 32))
    windows[:, 0] *= 1 + labels[:, None]
    windows += subject[:, None, None]  # each head has an offset of its own
    return ArrayWindows(windows, labels, [f"s{i}" for i in subject], trial)


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


@pytest.fixture
def settings(source: ArrayWindows) -> RunSettings:
    return RunSettings(
        dataset="toy",
        split=make_splits("toy", source.subjects).split(0, 0),
        optimizer="adam",
        lr=1e-2,
        batch_size=16,
        max_epochs=4,
        patience=30,
    )
