"""NSAL-DGAT's dynamic graph attention encoder (Yang et al. 2025) with a linear head.

The paper trains every backbone with cross-entropy on labelled source subjects alone. The domain
adaptation parts of the original (discriminator, pseudo-labels, memory bank) need unlabelled data
of the target subject, which the strict cross-subject protocol forbids, so they are not built.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from afor.bench.models.input_shape import InputShape
from afor.bench.models.layers.features import BANDS_HZ, DifferentialEntropy
from afor.bench.models.settings import Bands, Dropout, Seed

NodeFeatures = Literal["de", "raw"]

SMALLEST_CHANNELS = 3  # the graph layers convolve over three neighbouring electrodes
_HEAD_WIDTH = 64  # of the published classifier
_REDUCTION = 4  # of the channel attention, as published
_COLUMN_FLOOR = 1e-6


class GraphNetwork(nn.Module):
    """Classify nodes with features by two graph layers, attention and the published head.

    Args:
        shape: Shape of a window.
        make_features: Maps a signal to features, (batch, nodes, features).
        feature_norm: Normalises (batch, features, nodes).
        features: Number of features.
        adjacency: Returns the adjacency (channels, channels).
        dropout: Dropout probability of the classifier.
    """

    def __init__(
        self,
        shape: InputShape,
        make_features: nn.Module,
        feature_norm: nn.Module,
        features: int,
        adjacency: nn.Module,
        dropout: float,
    ) -> None:
        super().__init__()
        self.entropy, self.feature_norm = make_features, feature_norm
        self.adjacency = adjacency
        self.first = GraphLayer(features)
        self.second = GraphLayer(features)
        self.attention = ConvolutionalAttention(3 * features)
        self.head = _make_head(3 * features * shape.channels, dropout, shape.classes)

    def forward(self, signal: Tensor) -> Tensor:
        """Return logits (batch, classes) for a signal (batch, channels, samples)."""
        # Contiguous: all that follows mixes it with contiguous maps, which is slow otherwise.
        features = self.entropy(signal).transpose(1, 2).contiguous()
        nodes = self.feature_norm(features)  # (batch, features, nodes)
        adjacency = self.adjacency()
        first = self.first(nodes, adjacency)
        second = self.second(first, adjacency)
        maps = torch.cat([nodes, first, second], dim=1)
        logits: Tensor = self.head(maps + self.attention(maps))
        return logits


class NSALDGAT(GraphNetwork):
    """Classify electrodes' band entropies with two graph layers over a learned adjacency.

    Args:
        shape: Shape of a window.
        node_features: Features of a node: ``"de"`` is the differential entropy of frequency bands,
            ``"raw"`` the samples.
        bands_hz: Frequency bands of ``"de"``.
        dropout: Dropout probability of the classifier.
        graph_seed: Seed of the fixed random vector that the adjacency is computed from; the vector
            is part of the state dict.

    Example:
        >>> model = NSALDGAT(InputShape.unnamed(32, samples=128, rate_hz=128, classes=2))
        >>> model(torch.zeros(4, 32, 128)).shape
        torch.Size([4, 2])
    """

    def __init__(
        self,
        shape: InputShape,
        *,
        node_features: NodeFeatures = "de",
        bands_hz: Bands = BANDS_HZ,
        dropout: Dropout = 0.25,
        graph_seed: Seed = 0,
    ) -> None:
        shape.require("NSAL-DGAT", channels=SMALLEST_CHANNELS)
        entropy: nn.Module = nn.Identity()
        norm: nn.Module = nn.Identity()
        features = shape.samples
        if node_features == "de":
            features = len(bands_hz)
            entropy, norm = DifferentialEntropy(shape, bands_hz), nn.BatchNorm1d(features)
        adjacency = DynamicAdjacency(shape.channels, graph_seed)
        super().__init__(shape, entropy, norm, features, adjacency, dropout)


def _make_head(inputs: int, dropout: float, classes: int) -> nn.Sequential:
    """Return the published classifier, with two hidden layers of 64 units."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, _HEAD_WIDTH),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(_HEAD_WIDTH, _HEAD_WIDTH),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(_HEAD_WIDTH, classes),
    )


class DynamicAdjacency(nn.Module):
    """Learn a non-negative, column-normalised adjacency from a fixed random vector."""

    seed_vector: Tensor

    def __init__(self, channels: int, seed: int) -> None:
        super().__init__()
        self.channels = channels
        edges = channels**2
        width = max(8, edges // 128)
        generator = torch.Generator().manual_seed(seed)
        vector = torch.rand(edges, generator=generator, device="cpu")  # the same on every device
        # A buffer, so that a reloaded model has the same graph.
        self.register_buffer("seed_vector", vector.to(torch.get_default_device()))
        self.narrow = nn.Linear(edges, width, bias=False)
        self.widen = nn.Linear(width, edges, bias=False)
        nn.init.xavier_uniform_(self.narrow.weight)
        nn.init.xavier_uniform_(self.widen.weight)

    def forward(self) -> Tensor:
        """Return the adjacency (channels, channels); every column sums to one."""
        edges = torch.tanh(self.widen(F.elu(self.narrow(self.seed_vector)))).relu()
        adjacency = edges.view(self.channels, self.channels)
        # Original: columns divided by their sum. Here: self-loops and a floor, because otherwise
        # about 9 % of the initialisations at six channels have an empty column, and with it NaN
        # (all of them with the authors' own width, which is zero there).
        adjacency = adjacency + torch.eye(
            self.channels, dtype=adjacency.dtype, device=adjacency.device
        )
        return adjacency / adjacency.sum(dim=0, keepdim=True).clamp(min=_COLUMN_FLOOR)


class GraphLayer(nn.Module):
    """Filter every feature over neighbouring electrodes, then propagate it along the graph."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.neighbours = nn.Conv1d(features, features, 3, groups=features, bias=False)
        self.neighbour_norm = nn.BatchNorm1d(features)
        # The padding restores the two electrodes that the convolution above removes.
        self.scale = nn.Conv1d(features, features, 1, padding=1, groups=features, bias=False)
        self.scale_norm = nn.BatchNorm1d(features)
        nn.init.xavier_uniform_(self.neighbours.weight)
        nn.init.xavier_uniform_(self.scale.weight)

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Tensor:
        """Return features of the same shape, (batch, features, nodes)."""
        hidden = F.elu(self.neighbour_norm(self.neighbours(nodes)))
        # The convolution `scale`: of length 1 and grouped, it is one factor per feature.
        hidden = F.pad(hidden * self.scale.weight.view(-1, 1), (1, 1))
        hidden = self.scale_norm(hidden)
        return F.elu(nodes + hidden @ adjacency)


class ConvolutionalAttention(nn.Module):
    """Weight maps, then electrodes (CBAM)."""

    def __init__(self, maps: int) -> None:
        super().__init__()
        reduced = max(1, maps // _REDUCTION)
        self.squeeze = nn.Linear(maps, reduced, bias=False)  # 1×1 convolutions of one position
        self.excite = nn.Linear(reduced, maps, bias=False)
        # Square as in CBAM, although electrodes are one row: the outer rows see only padding.
        self.spatial = nn.Conv2d(2, 1, 3, padding=1)
        for layer in (self.squeeze, self.excite, self.spatial):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps of the same shape, (batch, maps, nodes)."""
        # `max` keeps the place of the maximum; the gradient of `amax` looks for it again, slowly.
        summaries = torch.stack([maps.max(dim=2).values, maps.mean(dim=2)])
        weights = self.excite(F.relu(self.squeeze(summaries))).sum(dim=0)
        maps = maps * weights.sigmoid().unsqueeze(2)
        summary = torch.stack([maps.max(dim=1).values, maps.mean(dim=1)], dim=1)
        scores: Tensor = self.spatial(summary.unsqueeze(2)).squeeze(2)
        return maps * scores.sigmoid()
