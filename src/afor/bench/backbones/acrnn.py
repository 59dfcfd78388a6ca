"""ACRNN (Tao et al. 2023, IEEE Trans. Affective Computing 14(1), 382–393)."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from afor.bench.backbones.shape import InputShape
from afor.bench.errors import ConfigError

Recurrent = Literal["single", "sequence"]

_ATTENTION_HIDDEN = 15
_KERNEL = 45
_POOL, _POOL_STRIDE = 75, 10
_MAPS = 40
_HIDDEN = 64


class ACRNN(nn.Module):
    """Weigh channels, convolve, run an LSTM over the maps, weigh its features, classify.

    ``recurrent="single"`` is the reference form: all pooled maps are one time step, so the LSTM's
    recurrent weights always multiply a zero state and their gradient is exactly zero.
    ``"sequence"`` lets the LSTM walk over the pooled steps.

    >>> model = ACRNN(InputShape.unnamed(32, samples=128, rate_hz=128, classes=2))
    >>> model(torch.zeros(4, 32, 128)).shape
    torch.Size([4, 2])
    """

    def __init__(
        self, shape: InputShape, *, recurrent: Recurrent = "single", dropout: float = 0.5
    ) -> None:
        super().__init__()
        shape.require("ACRNN", samples=_KERNEL - 1 + _POOL)
        if recurrent not in get_args(Recurrent):
            raise ConfigError(f"ACRNN: recurrent must be single or sequence, found {recurrent!r}.")
        self.recurrent = recurrent
        self.squeeze = nn.Linear(shape.channels, _ATTENTION_HIDDEN)
        self.excite = nn.Linear(_ATTENTION_HIDDEN, shape.channels)
        # A kernel over all channels slides in time only: one-dimensional, channels as inputs.
        self.convolution = nn.Conv1d(shape.channels, _MAPS, _KERNEL)
        self.map_dropout = nn.Dropout1d(dropout)
        steps = (shape.samples - _KERNEL + 1 - _POOL) // _POOL_STRIDE + 1
        inputs = _MAPS if recurrent == "sequence" else _MAPS * steps
        self.lstm = nn.LSTM(inputs, _HIDDEN, num_layers=2, batch_first=True)
        self.attention = ExtendedSelfAttention(_HIDDEN)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(_HIDDEN, shape.classes)

    def forward(self, signal: Tensor) -> Tensor:
        """Return logits (batch, classes) for a signal (batch, channels, samples)."""
        scores = self.excite(torch.tanh(self.squeeze(signal.mean(dim=-1))))
        signal = signal * scores.softmax(dim=-1).unsqueeze(-1)
        maps = F.max_pool1d(F.elu(self.convolution(signal)), _POOL, _POOL_STRIDE)
        maps = self.map_dropout(maps)  # (batch, maps, steps)
        steps = maps.transpose(1, 2) if self.recurrent == "sequence" else maps.flatten(1)[:, None]
        hidden = self.lstm(steps)[0][:, -1]
        hidden = self.dropout(self.attention(hidden))
        # Paper (Tao): softmax output. Here: logits, because cross-entropy on probabilities cannot
        # fall below ln(1 + e⁻¹) = 0.313 for two classes.
        logits: Tensor = self.classifier(self.dropout(hidden))
        return logits


class ExtendedSelfAttention(nn.Module):
    """Weigh the features of one vector by a softmax over the features."""

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
        """Return the weighted features, (batch, width) as given."""
        mixed = hidden @ self.direct + self.first(hidden) @ self.through + self.bias
        weights = (self.second(F.elu(mixed)) * hidden).softmax(dim=-1)
        return weights * hidden
