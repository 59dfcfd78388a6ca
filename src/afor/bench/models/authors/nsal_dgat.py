"""NSAL-DGAT's encoder and linear head as the AFOR authors released them."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from afor.bench.common.errors import ConfigError
from afor.bench.models.input_shape import InputShape
from afor.bench.models.nsal_dgat import (
    NSALDGAT,
    SMALLEST_CHANNELS,
    ConvolutionalAttention,
    GraphLayer,
    make_head,
)
from afor.bench.models.settings import Dropout

_EDGES_PER_UNIT = 128
_WORKING_CHANNELS = 12  # the fewest channels for which channels² // 128 is at least one
_LARGEST_KERNEL = 7


class PublishedNSALDGAT(NSALDGAT):
    """Build the released network for any number of channels, also where all its outputs are NaN.

    Studies use :class:`NSALDGATAuthors`, which refuses such inputs.
    """

    def __init__(
        self,
        shape: InputShape,
        *,
        repair: bool = False,
        dropout: Dropout = 0.25,
    ) -> None:
        nn.Module.__init__(self)
        if shape.channels < SMALLEST_CHANNELS:
            raise ConfigError(
                f"NSAL-DGAT of the AFOR authors needs at least {SMALLEST_CHANNELS} channels, "
                f"found {shape.channels}."
            )
        features = shape.samples  # of a node
        self.entropy, self.feature_norm = nn.Identity(), nn.Identity()
        self.adjacency = PublishedAdjacency(shape.channels, repair=repair)
        self.first = GraphLayer(features)
        self.second = GraphLayer(features)
        self.attention = ConvolutionalAttention(3 * features)
        kernel = min(shape.channels, _LARGEST_KERNEL)
        kernel -= 1 - kernel % 2  # odd
        self.attention.spatial = nn.Conv2d(2, 1, kernel, padding=kernel // 2)
        self.head = make_head(3 * features * shape.channels, dropout, shape.classes)
        for module in self.modules():
            if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear) and module.weight.numel():
                module.reset_parameters()  # torch's defaults everywhere


class NSALDGATAuthors(PublishedNSALDGAT):
    """Classify windows with the NSAL-DGAT that the AFOR authors released.

    A node's features are its raw samples. The adjacency grows from a random vector through
    channels² // 128 units. Below 12 channels that is none: the adjacency is zero, its columns are
    divided by zero, and every output is NaN, so the published form refuses such inputs.
    ``repair=True`` gives the bottleneck at least one unit and an empty column of the adjacency a
    self-loop; wherever the published form gives numbers, the repaired one gives the same.

    >>> model = NSALDGATAuthors(InputShape.unnamed(22, samples=250, rate_hz=250, classes=4))
    >>> model(torch.zeros(4, 22, 250)).shape
    torch.Size([4, 4])

    Args:
        shape: Shape of a window, with at least 12 channels without ``repair``.
        repair: Make the network usable on few channels.
        dropout: Probability of dropping an element, twice, in the head.

    Raises:
        ConfigError: With fewer than 12 channels and no ``repair``, or fewer than 3 at all.
    """

    def __init__(
        self,
        shape: InputShape,
        *,
        repair: bool = False,
        dropout: Dropout = 0.25,
    ) -> None:
        if not repair and shape.channels < _WORKING_CHANNELS:
            raise ConfigError(
                f"NSAL-DGAT of the AFOR authors gives NaN for every input of fewer than "
                f"{_WORKING_CHANNELS} channels, found {shape.channels}: its bottleneck has "
                f"{shape.channels**2} // {_EDGES_PER_UNIT} = 0 units. Set repair = true for the "
                f"smallest change that trains, or use nsal_dgat."
            )
        super().__init__(shape, repair=repair, dropout=dropout)


class PublishedAdjacency(nn.Module):
    """Learn an adjacency from a random vector, each column divided by its sum and nothing else."""

    seed_vector: Tensor

    def __init__(self, channels: int, *, repair: bool) -> None:
        super().__init__()
        self.channels = channels
        self.repair = repair
        edges = channels**2
        width = edges // _EDGES_PER_UNIT
        if repair:
            width = max(1, width)
        # Authors: a plain attribute, so a reloaded model had another graph. Here: a buffer.
        self.register_buffer("seed_vector", torch.rand(edges))
        self.narrow: nn.Module
        self.widen: nn.Module
        if width:
            self.narrow = nn.Linear(edges, width, bias=False)
            self.widen = nn.Linear(width, edges, bias=False)
        else:  # torch warns when it initialises a tensor without elements
            self.narrow, self.widen = _EmptyLinear(edges, 0), _EmptyLinear(0, edges)

    def forward(self) -> Tensor:
        """Return the adjacency (channels, channels); every column sums to one, or is NaN."""
        edges = torch.tanh(self.widen(F.elu(self.narrow(self.seed_vector)))).relu()
        adjacency = edges.view(self.channels, self.channels)
        if self.repair:
            empty = adjacency.sum(dim=0) == 0
            adjacency = adjacency + torch.diag(empty.to(adjacency.dtype))
        return adjacency / adjacency.sum(dim=0, keepdim=True)


class _EmptyLinear(nn.Module):
    """A linear layer without bias that has no inputs or no outputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return ``inputs`` times the empty weight."""
        return F.linear(inputs, self.weight)
