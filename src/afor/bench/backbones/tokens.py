"""Electrode tokens from raw samples: the log power of a learned filter bank."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from afor.bench.backbones.shape import InputShape
from afor.bench.backbones.toeplitz import same_padding

_POWER_FLOOR = 1e-6  # of batch-normalised maps, whose power is about one


class LogPowerTokens(nn.Module):
    """Map a signal (batch, channels, samples) to (batch, channels, 8).

    Temporal filters of a quarter second shared by all electrodes, batch norm, mean square over the
    window, logarithm.
    """

    FEATURES = 8

    def __init__(self, shape: InputShape) -> None:
        super().__init__()
        kernel = max(1, round(shape.rate_hz / 4))
        shape.require("HSLT with tokenizer conv", samples=kernel)
        self.filters = nn.Conv1d(1, self.FEATURES, kernel, bias=False)
        self.norm = nn.BatchNorm1d(self.FEATURES)

    def forward(self, signal: Tensor) -> Tensor:
        """Return the log power of every filter at every electrode."""
        batch, channels, samples = signal.shape
        rows = signal.reshape(batch * channels, 1, samples)
        maps = self.norm(self.filters(F.pad(rows, same_padding(self.filters.kernel_size[0]))))
        power = maps.square().mean(dim=-1).clamp(min=_POWER_FLOOR)
        return torch.log(power).view(batch, channels, self.FEATURES)
