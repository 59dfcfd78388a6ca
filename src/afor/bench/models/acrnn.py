"""ACRNN (Tao et al. 2023, IEEE Trans. Affective Computing 14(1), 382–393)."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from afor.bench.models.input_shape import InputShape
from afor.bench.models.settings import Dropout

Recurrent = Literal["single", "sequence"]

# Sizes of the published model, the same for every data set.
_ATTENTION_HIDDEN = 15
_KERNEL = 45  # samples
_POOL, _POOL_STRIDE = 75, 10  # samples
MAPS = 40
HIDDEN = 64


class ACRNN(nn.Module):
    """Channel attention, convolution, LSTM, feature attention and a linear classifier.

    Args:
        shape: Shape of a window.
        recurrent: ``"single"`` is the published form: all pooled maps are one time step, so the
            LSTM's recurrent weights always multiply a zero state and their gradient is zero.
            ``"sequence"`` runs the LSTM over the pooled steps.
        dropout: Dropout probability.

    Example:
        >>> model = ACRNN(InputShape.unnamed(32, samples=128, rate_hz=128, classes=2))
        >>> model(torch.zeros(4, 32, 128)).shape
        torch.Size([4, 2])
    """

    def __init__(
        self,
        shape: InputShape,
        *,
        recurrent: Recurrent = "single",
        dropout: Dropout = 0.5,
    ) -> None:
        super().__init__()
        self.recurrent: Recurrent = recurrent
        self.squeeze = nn.Linear(shape.channels, _ATTENTION_HIDDEN)
        self.excite = nn.Linear(_ATTENTION_HIDDEN, shape.channels)
        self.convolution, steps = self._make_convolution(shape)
        self.map_dropout = nn.Dropout1d(dropout)
        inputs = MAPS if recurrent == "sequence" else MAPS * steps
        self.lstm = nn.LSTM(inputs, HIDDEN, num_layers=2, batch_first=True)
        self.attention = self._make_attention()
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(HIDDEN, shape.classes)

    def _make_convolution(self, shape: InputShape) -> tuple[nn.Conv1d | nn.Conv2d, int]:
        """Return the convolution and the number of steps that `_pooled_maps` makes with it."""
        shape.require("ACRNN", samples=_KERNEL - 1 + _POOL)
        steps = (shape.samples - _KERNEL + 1 - _POOL) // _POOL_STRIDE + 1
        # A kernel over all channels slides in time only: one-dimensional, channels as inputs.
        return nn.Conv1d(shape.channels, MAPS, _KERNEL), steps

    def _make_attention(self) -> "ExtendedSelfAttention":
        return ExtendedSelfAttention(HIDDEN)

    def forward(self, signal: Tensor) -> Tensor:
        """Return logits (batch, classes) for a signal (batch, channels, samples)."""
        scores = self.excite(torch.tanh(self.squeeze(signal.mean(dim=-1))))
        signal = signal * scores.softmax(dim=-1).unsqueeze(-1)
        maps = self.map_dropout(self._pooled_maps(signal))  # (batch, maps, steps)
        steps = maps.transpose(1, 2) if self.recurrent == "sequence" else maps.flatten(1)[:, None]
        hidden = self.lstm(steps)[0][:, -1]
        hidden = self.dropout(self.attention(hidden))
        # Paper (Tao): softmax output. Here: logits, because cross-entropy on probabilities cannot
        # fall below ln(1 + e⁻¹) = 0.313 for two classes.
        logits: Tensor = self.classifier(self.dropout(hidden))
        return logits

    def _pooled_maps(self, signal: Tensor) -> Tensor:
        """Return the max pool of the ELU of the convolution."""
        # With channels innermost the convolution runs up to twice as fast on a CPU. ELU is
        # monotonic, so it commutes with the maximum and is applied to the pooled values only.
        innermost = torch.channels_last
        rows = signal.unsqueeze(2).contiguous(memory_format=innermost)
        kernel = self.convolution.weight.unsqueeze(2).contiguous(memory_format=innermost)
        maps = F.conv2d(rows, kernel, self.convolution.bias)
        return F.elu(F.max_pool2d(maps, (1, _POOL), (1, _POOL_STRIDE)).squeeze(2))


class ExtendedSelfAttention(nn.Module):
    """Weight the features of one vector by a softmax over the features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.direct = nn.Parameter(torch.empty(width, width))  # W1
        self.through = nn.Parameter(torch.empty(width, width))  # W2
        self.bias = nn.Parameter(torch.zeros(width))
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        # Published code draws these from N(0, 1), which saturates the softmax at width 64.
        nn.init.xavier_uniform_(self.direct)
        nn.init.xavier_uniform_(self.through)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the weighted features, (batch, width)."""
        mixed = hidden @ self.direct + self.first(hidden) @ self.through + self.bias
        weights: Tensor = (self.second(F.elu(mixed)) * hidden).softmax(dim=-1)
        return weights * hidden
