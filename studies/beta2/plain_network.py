"""A small network without batch norm, for the study `amplitude`."""

import torch.nn.functional as F
from torch import Tensor, nn

from afor.bench import InputShape

FIRST_POOL, SECOND_POOL = 4, 8


class PlainNetwork(nn.Module):
    """The layers of EEGNet in order, with the spatial filters first and no batch norm."""

    def __init__(
        self, shape: InputShape, *, filters: int = 16, kernel: int = 41, dropout: float = 0.25
    ) -> None:
        super().__init__()
        self.spatial = nn.Conv1d(shape.channels, filters, 1)
        self.temporal = nn.Conv1d(filters, filters, kernel, padding="same", groups=filters)
        self.pointwise = nn.Conv1d(filters, filters, 1)
        self.dropout = nn.Dropout(dropout)
        pooled = shape.samples // FIRST_POOL // SECOND_POOL
        self.classifier = nn.Linear(filters * pooled, shape.classes)

    def forward(self, signal: Tensor) -> Tensor:
        """Return logits (batch, classes) for a signal (batch, channels, samples)."""
        maps = F.elu(self.temporal(self.spatial(signal)))
        maps = self.pointwise(self.dropout(F.avg_pool1d(maps, FIRST_POOL)))
        maps = self.dropout(F.avg_pool1d(F.elu(maps), SECOND_POOL))
        logits: Tensor = self.classifier(maps.flatten(1))
        return logits
