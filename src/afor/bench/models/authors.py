"""The four networks as the AFOR authors released them."""

import warnings
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from afor.bench.common.errors import ConfigError
from afor.bench.models.acrnn import ACRNN, MAPS, ExtendedSelfAttention
from afor.bench.models.eegnet import EEGNet, EEGNetForm
from afor.bench.models.hslt import RegionEncoder, RegionTransformer
from afor.bench.models.input_shape import InputShape
from afor.bench.models.nsal_dgat import SMALLEST_CHANNELS, GraphNetwork
from afor.bench.models.settings import Dropout, Epsilon, Form, Momentum


class EEGNetAuthors(EEGNet):
    """Classify windows with the EEGNet that the AFOR authors released.

    The layers are those of :class:`EEGNet`. These differ: temporal filters of half the *window*
    (not half the sampling rate), dropout 0.5, batch norm with torch's defaults, Kaiming-normal
    convolutions, and a Xavier-normal classifier without a constraint. Spatial weights above 1 are
    set to 1 at the start of every forward pass; there is no lower bound and no norm.

    >>> model = EEGNetAuthors(InputShape.unnamed(6, samples=600, rate_hz=200, classes=5))
    >>> model.temporal.weight.shape
    torch.Size([8, 1, 1, 300])

    Args:
        shape: Shape of a window.
        dropout: Probability of dropping an element after each of the two pools.
        norm_momentum: Share of a batch in the running statistics of the three batch norms.
        norm_eps: Added to the variance in the three batch norms.
        form: How the forward pass is computed, as for :class:`EEGNet`.
    """

    largest_spatial_weight = 1.0

    def __init__(
        self,
        shape: InputShape,
        *,
        dropout: Dropout = 0.5,
        norm_momentum: Momentum = 0.1,
        norm_eps: Epsilon = 1e-5,
        form: EEGNetForm = "auto",
    ) -> None:
        super().__init__(
            shape,
            kernel_samples=shape.samples // 2,
            dropout=dropout,
            max_norm=False,
            form=form,
            norm_momentum=norm_momentum,
            norm_eps=norm_eps,
        )
        for layer in (self.temporal, self.spatial, self.depthwise, self.pointwise):
            nn.init.kaiming_normal_(layer.weight)
        nn.init.xavier_normal_(self.classifier.weight)
        self.apply_constraints()  # so that a forward pass in evaluation mode changes nothing

    def forward(self, signal: Tensor) -> Tensor:
        """Return logits (batch, classes) for a signal (batch, channels, samples)."""
        self.apply_constraints()
        return super().forward(signal)

    @torch.no_grad()
    def apply_constraints(self) -> None:
        """Set spatial weights above 1 to 1."""
        # Through .data: a second forward pass before the backward pass changes no value, and
        # must not invalidate what the first one saved.
        self.spatial.weight.data.clamp_(max=self.largest_spatial_weight)


# Constants of the released network, the same for every data set.
_PLANES = 32
_KERNEL = 3  # samples


class ACRNNAuthors(ACRNN):
    """Classify windows with the ACRNN that the AFOR authors released.

    The attended window is repeated as 32 identical planes, convolved over all channels and three
    samples, and all maps and samples together are the one time step of a two-layer LSTM. Because
    the planes are equal, only the sum of the kernel over its planes acts. So one plane is convolved
    with the summed kernel, which gives the same logits and the same gradient for each of the 32
    slices.

    >>> model = ACRNNAuthors(InputShape.unnamed(32, samples=128, rate_hz=128, classes=2))
    >>> model.convolution.weight.shape
    torch.Size([40, 32, 32, 3])

    Args:
        shape: Shape of a window.
        dropout: Probability of dropping a feature map, and an element after the attention (twice).
    """

    def __init__(self, shape: InputShape, *, dropout: Dropout = 0.5) -> None:
        super().__init__(shape, dropout=dropout)

    def _make_convolution(self, shape: InputShape) -> tuple[nn.Conv2d, int]:
        shape.require("ACRNN of the AFOR authors", samples=_KERNEL)
        steps = shape.samples - _KERNEL + 1
        return nn.Conv2d(_PLANES, MAPS, (shape.channels, _KERNEL)), steps

    def _make_attention(self) -> ExtendedSelfAttention:
        attention = super()._make_attention()
        # Authors: from NumPy's global generator. Here: from torch's, which the run seeds.
        nn.init.normal_(attention.direct)
        nn.init.normal_(attention.through)
        return attention

    def _pooled_maps(self, signal: Tensor) -> Tensor:
        """Return the ELU of the convolution, (batch, maps, samples - 2), without a pool."""
        weight = self.convolution.weight.sum(dim=1)
        return F.elu(F.conv1d(signal, weight, self.convolution.bias))


# By number of electrodes: the sizes of the regions, which are consecutive channels, and the number
# of tokens of an encoded region, its class token included.
REGION_SIZES: dict[int, tuple[tuple[int, ...], int]] = {
    6: ((1, 1, 1, 1, 1, 1), 2),
    22: ((2, 2, 2, 3, 2, 3, 3, 2, 3), 4),
    32: ((4, 5, 3, 5, 3, 3, 3, 3, 3), 4),
    62: ((5, 9, 6, 7, 6, 8, 4, 7, 10), 5),
}


class HSLTAuthors(RegionTransformer):
    """Classify windows with the HSLT that the AFOR authors released.

    Every electrode's token is a linear map of its raw samples: there is no convolution. Regions
    are runs of channels in the order of the data, by count alone. A second GELU follows the second
    layer of every MLP, and class tokens and positions start as N(0, 1).

    >>> shape = InputShape.unnamed(22, samples=250, rate_hz=250, classes=4)
    >>> len(HSLTAuthors(shape).regions)
    9

    Args:
        shape: Shape of a window, with 6, 22, 32 or 62 channels.
        dropout: Probability of dropping an attention weight or an element of an MLP.
        form: How the forward pass is computed, as for `hslt`.

    Raises:
        ConfigError: For another number of channels.
    """

    def __init__(self, shape: InputShape, *, dropout: Dropout = 0.4, form: Form = "fast") -> None:
        if shape.channels not in REGION_SIZES:
            raise ConfigError(
                f"HSLT of the AFOR authors has regions for {', '.join(map(str, REGION_SIZES))} "
                f"channels, found {shape.channels}. Use hslt, which takes any montage."
            )
        sizes, kept_tokens = REGION_SIZES[shape.channels]
        bounds = pairwise(accumulate(sizes, initial=0))
        indices = tuple(tuple(range(start, stop)) for start, stop in bounds)
        super().__init__(
            nn.Identity(),
            shape.samples,
            indices,
            kept_tokens,
            dropout,
            shape.classes,
            form=form,
            second_gelu=True,
        )
        tokens = [self.class_token, self.position]
        for region in self.regions:
            assert isinstance(region, RegionEncoder)
            tokens += [region.class_token, region.position]
        for token in tokens:
            nn.init.normal_(token)


_EDGES_PER_UNIT = 128
_LARGEST_KERNEL = 7


class NSALDGATAuthors(GraphNetwork):
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

    working_channels = 12  # the fewest for which channels² // 128 is at least one

    def __init__(
        self,
        shape: InputShape,
        *,
        repair: bool = False,
        dropout: Dropout = 0.25,
    ) -> None:
        if not repair and shape.channels < self.working_channels:
            raise ConfigError(
                f"NSAL-DGAT of the AFOR authors gives NaN for every input of fewer than "
                f"{self.working_channels} channels, found {shape.channels}: its bottleneck has "
                f"{shape.channels**2} // {_EDGES_PER_UNIT} = 0 units. Set repair = true for the "
                f"smallest change that trains, or use nsal_dgat."
            )
        shape.require("NSAL-DGAT of the AFOR authors", channels=SMALLEST_CHANNELS)
        adjacency = PublishedAdjacency(shape.channels, repair=repair)
        super().__init__(shape, nn.Identity(), nn.Identity(), shape.samples, adjacency, dropout)
        kernel = min(shape.channels, _LARGEST_KERNEL)
        kernel -= 1 - kernel % 2  # odd
        self.attention.spatial = nn.Conv2d(2, 1, kernel, padding=kernel // 2)
        for module in self.modules():
            if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear) and module.weight.numel():
                module.reset_parameters()  # torch's defaults everywhere


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
        with warnings.catch_warnings():  # torch's, of layers without elements
            warnings.simplefilter("ignore", UserWarning)
            self.narrow = nn.Linear(edges, width, bias=False)
            self.widen = nn.Linear(width, edges, bias=False)

    def forward(self) -> Tensor:
        """Return the adjacency (channels, channels); every column sums to one, or is NaN."""
        edges = torch.tanh(self.widen(F.elu(self.narrow(self.seed_vector)))).relu()
        adjacency = edges.view(self.channels, self.channels)
        if self.repair:
            empty = adjacency.sum(dim=0) == 0
            adjacency = adjacency + torch.diag(empty.to(adjacency.dtype))
        return adjacency / adjacency.sum(dim=0, keepdim=True)
