"""HSLT, a hierarchical spatial transformer (Wang et al. 2022).

IEEE Sensors Journal 22(5), 4359–4368.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from afor.bench.models.input_shape import InputShape
from afor.bench.models.layers.features import BANDS_HZ, DifferentialEntropy
from afor.bench.models.layers.stacked import stacked_block, stacked_encoder
from afor.bench.models.layers.tokens import LogPowerTokens
from afor.bench.models.regions import region_indices
from afor.bench.models.settings import Bands, Dropout, Form

Tokenizer = Literal["conv", "de", "linear"]

# Sizes of the published model; dropout 0.4 is a setting.
_ELECTRODE_WIDTH, _REGION_WIDTH = 8, 16  # De, Dr
_LAYERS = 2
_HEADS = 16
_ATTENTION_WIDTH = 64
_MLP_RATIO = 4
_REGION_DROPOUT = 0.1
_TOKEN_STD = 0.02  # initial class tokens and position embeddings, as in vision transformers
_NORM_EPS = 1e-6


class RegionTransformer(nn.Module):
    """Attend among the electrodes of a region, then among regions.

    Args:
        tokenizer: Maps a signal to (batch, channels, features).
        features: Number of features.
        indices: Channels of each region.
        kept_tokens: Number of tokens of an encoded region, its class token included.
        dropout: Dropout probability.
        classes: Number of classes.
        form: How the forward pass is computed, as for :class:`HSLT`.
        second_gelu: Whether a GELU follows the second layer of every MLP, too.
    """

    def __init__(
        self,
        tokenizer: nn.Module,
        features: int,
        indices: tuple[tuple[int, ...], ...],
        kept_tokens: int,
        dropout: float,
        classes: int,
        *,
        form: Form,
        second_gelu: bool = False,
    ) -> None:
        super().__init__()
        self.form = form
        self.tokenizer = tokenizer
        self.indices = indices
        self.regions = nn.ModuleList(
            RegionEncoder(features, len(region), kept_tokens, dropout, second_gelu=second_gelu)
            for region in indices
        )
        self.merge = nn.Linear(_ELECTRODE_WIDTH * kept_tokens, _REGION_WIDTH)
        self.merge_dropout = nn.Dropout(_REGION_DROPOUT)
        self.class_token = _token(1, _REGION_WIDTH)
        self.position = _token(len(indices) + 1, _REGION_WIDTH)
        self.blocks = nn.ModuleList(
            Block(_REGION_WIDTH, dropout, second_gelu=second_gelu) for _ in range(_LAYERS)
        )
        self.classifier = nn.Linear(_REGION_WIDTH, classes)
        # Numbers of the regions of each size.
        sizes = sorted({len(region) for region in indices})
        self.groups = [
            [number for number, region in enumerate(indices) if len(region) == size]
            for size in sizes
        ]

    def forward(self, signal: Tensor) -> Tensor:
        """Return logits (batch, classes) for a signal (batch, channels, samples)."""
        electrodes = self.tokenizer(signal)  # (batch, channels, features)
        encode = self._encode_fast if self.form == "fast" else self._encode_plain
        tokens = self.merge_dropout(self.merge(encode(electrodes)))
        tokens = _with_class_token(tokens, self.class_token) + self.position
        if self.form == "fast":
            stacked = tokens.permute(2, 1, 0).unsqueeze(0)  # (1, width, regions + 1, batch)
            for block in self.blocks:
                stacked = stacked_block([block], stacked)
            class_token = stacked[0, :, 0].t()
        else:
            for block in self.blocks:
                tokens = block(tokens)
            class_token = tokens[:, 0]
        logits: Tensor = self.classifier(class_token)
        return logits

    def _encode_plain(self, electrodes: Tensor) -> Tensor:
        encoded = [
            region(electrodes[:, list(indices)])
            for region, indices in zip(self.regions, self.indices, strict=True)
        ]
        return torch.stack(encoded, dim=1)  # (batch, regions, width)

    def _encode_fast(self, electrodes: Tensor) -> Tensor:
        encoded: dict[int, Tensor] = {}
        for group in self.groups:
            channels = [channel for number in group for channel in self.indices[number]]
            batch, size = electrodes.shape[0], len(self.indices[group[0]])
            members = electrodes[:, channels].view(batch, len(group), size, -1).transpose(0, 1)
            outputs = stacked_encoder([self.regions[number] for number in group], members)
            encoded.update(zip(group, outputs.unbind(), strict=True))
        return torch.stack([encoded[number] for number in range(len(self.indices))], dim=1)


class HSLT(RegionTransformer):
    """Attend among the electrodes of a region, then among regions.

    Args:
        shape: Shape of a window.
        tokenizer: Features of an electrode: ``"conv"`` is the log power of a learned filter bank,
            ``"de"`` the differential entropy of frequency bands, ``"linear"`` the raw samples.
        bands_hz: Frequency bands of ``"de"``.
        regions: Lists of channel names; None uses the table or the electrode positions.
        dropout: Dropout probability.
        form: How the forward pass is computed. ``"plain"`` is region by region, ``"fast"`` takes
            regions of equal size in one call. Parameters are the same, and so are results without
            dropout; with it, ``"fast"`` draws other masks of the same distribution.

    Example:
        >>> names = ("F3", "C3", "O1", "F4", "C4", "O2")
        >>> shape = InputShape(names, samples=600, rate_hz=200, classes=5)
        >>> HSLT(shape)(torch.zeros(2, 6, 600)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        shape: InputShape,
        *,
        tokenizer: Tokenizer = "conv",
        bands_hz: Bands = BANDS_HZ,
        regions: Sequence[Sequence[str]] | None = None,
        dropout: Dropout = 0.4,
        form: Form = "fast",
    ) -> None:
        made: nn.Module
        # Paper: "convolutional tokenization", which the original lacks. Here: a per-electrode
        # filter bank by default, because the text names it; "de" is the original's input.
        if tokenizer == "conv":
            made, features = LogPowerTokens(shape, form=form), LogPowerTokens.FEATURES
        elif tokenizer == "de":
            made, features = DifferentialEntropy(shape, bands_hz), len(bands_hz)
        else:
            made, features = nn.Identity(), shape.samples
        indices = region_indices(shape.channel_names, regions)
        kept_tokens = min(len(region) for region in indices) + 1  # q, tokens per region
        super().__init__(made, features, indices, kept_tokens, dropout, shape.classes, form=form)


class RegionEncoder(nn.Module):
    """Encode the electrodes of one region into a fixed number of tokens, flattened."""

    def __init__(
        self,
        features: int,
        electrodes: int,
        kept_tokens: int,
        dropout: float,
        *,
        second_gelu: bool = False,
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(features, _ELECTRODE_WIDTH)
        self.class_token = _token(1, _ELECTRODE_WIDTH)
        self.position = _token(electrodes + 1, _ELECTRODE_WIDTH)
        self.blocks = nn.ModuleList(
            Block(_ELECTRODE_WIDTH, dropout, second_gelu=second_gelu) for _ in range(_LAYERS)
        )
        tokens = electrodes + 1
        self.shrink = nn.Linear(tokens, kept_tokens) if tokens != kept_tokens else None

    def forward(self, electrodes: Tensor) -> Tensor:
        """Map (batch, electrodes, features) to (batch, kept_tokens · width)."""
        tokens = _with_class_token(self.embed(electrodes), self.class_token) + self.position
        for block in self.blocks:
            tokens = block(tokens)
        if self.shrink is not None:
            tokens = self.shrink(tokens.transpose(1, 2)).transpose(1, 2)
        return tokens.flatten(1)


class Block(nn.Module):
    """One pre-norm transformer block whose attention works in a wider space."""

    def __init__(self, width: int, dropout: float, *, second_gelu: bool = False) -> None:
        super().__init__()
        self.second_gelu = second_gelu  # after the second layer of the MLP, too
        self.attention_norm = nn.LayerNorm(width, eps=_NORM_EPS)
        self.widen = nn.Linear(width, _ATTENTION_WIDTH)
        self.attention = nn.MultiheadAttention(
            _ATTENTION_WIDTH, _HEADS, dropout=dropout, batch_first=True
        )
        self.narrow = nn.Linear(_ATTENTION_WIDTH, width)
        self.mlp_norm = nn.LayerNorm(width, eps=_NORM_EPS)
        self.mlp_in = nn.Linear(width, _MLP_RATIO * width)
        self.mlp_out = nn.Linear(_MLP_RATIO * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return tokens of the same shape, (batch, tokens, width)."""
        hidden = self.widen(self.attention_norm(tokens)).relu()
        hidden = self.attention(hidden, hidden, hidden, need_weights=False)[0]
        tokens = tokens + self.narrow(hidden).relu()
        hidden = nn.functional.gelu(self.mlp_in(self.mlp_norm(tokens)))
        outputs: Tensor = self.mlp_out(self.dropout(hidden))
        if self.second_gelu:
            outputs = nn.functional.gelu(outputs)
        outputs = self.dropout(outputs)
        return tokens + outputs


def _token(count: int, width: int) -> nn.Parameter:
    return nn.Parameter(nn.init.trunc_normal_(torch.empty(count, width), std=_TOKEN_STD))


def _with_class_token(tokens: Tensor, class_token: Tensor) -> Tensor:
    return torch.cat([class_token.expand(tokens.shape[0], 1, -1), tokens], dim=1)
