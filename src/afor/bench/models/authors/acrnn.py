"""ACRNN as the AFOR authors released it: 32 equal planes, three samples of context, no pooling."""

from torch import Tensor, nn
from torch.nn import functional as F

from afor.bench.models.acrnn import ACRNN, ATTENTION_HIDDEN, HIDDEN, MAPS, ExtendedSelfAttention
from afor.bench.models.input_shape import InputShape
from afor.bench.models.settings import Dropout

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
        nn.Module.__init__(self)
        shape.require("ACRNN of the AFOR authors", samples=_KERNEL)
        self.recurrent = "single"
        self.squeeze = nn.Linear(shape.channels, ATTENTION_HIDDEN)
        self.excite = nn.Linear(ATTENTION_HIDDEN, shape.channels)
        self.convolution = nn.Conv2d(_PLANES, MAPS, (shape.channels, _KERNEL))
        self.map_dropout = nn.Dropout1d(dropout)
        features = MAPS * (shape.samples - _KERNEL + 1)
        self.lstm = nn.LSTM(features, HIDDEN, num_layers=2, batch_first=True)
        self.attention = ExtendedSelfAttention(HIDDEN)
        # Authors: from NumPy's global generator. Here: from torch's, which the run seeds.
        nn.init.normal_(self.attention.direct)
        nn.init.normal_(self.attention.through)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(HIDDEN, shape.classes)

    def _pooled_maps(self, signal: Tensor) -> Tensor:
        """Return the ELU of the convolution, (batch, maps, samples - 2), without a pool."""
        weight = self.convolution.weight.sum(dim=1)
        return F.elu(F.conv1d(signal, weight, self.convolution.bias))
