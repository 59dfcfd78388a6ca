"""EEGNet-8,2 (Lawhern et al. 2018, J. Neural Eng. 15, 056013, Table 2)."""

import functools
import logging
from collections.abc import Sequence
from operator import attrgetter
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from afor.bench.models.input_shape import InputShape
from afor.bench.models.layers.cancelled_norm import held_affine, next_scale
from afor.bench.models.layers.spatial_first import spatial_first_block
from afor.bench.models.layers.toeplitz import same_filter, same_padding
from afor.bench.models.native.binding import DTYPES, Sizes, unavailable_reason
from afor.bench.models.native.eegnet import (
    Blocks,
    evaluated_features,
    has_tangent,
    mean_pool,
    native_features,
)
from afor.bench.models.settings import (
    Dropout,
    Epsilon,
    Filters,
    FilterSamples,
    Momentum,
)
from afor.torch_private import has_hooks, is_watched, transform_level

EEGNetForm = Literal["auto", "native", "fast", "plain"]

_FIRST_POOL, _SECOND_POOL = 4, 8  # Table 2: at 128 Hz down to 32 Hz, then to 4 Hz
_SEPARABLE_KERNEL = 16  # Table 2: 500 ms at 32 Hz
_VECTOR = 16  # float32 numbers that torch's vector loops take at a time with AVX2
_SPATIAL_MAX_NORM, _CLASS_MAX_NORM = 1.0, 0.25  # Table 2
_OWN_TENSORS = (Tensor, nn.Parameter)  # a subclass may keep its numbers elsewhere


# In the order of `native.binding.PARAMETERS`.
BLOCK_PARAMETERS = (
    "temporal.weight", "temporal_norm.weight", "temporal_norm.bias",
    "spatial.weight", "spatial_norm.weight", "spatial_norm.bias",
    "depthwise.weight", "pointwise.weight", "separable_norm.weight", "separable_norm.bias",
)  # fmt: skip
_block_parameters = attrgetter(*BLOCK_PARAMETERS)
NORMS = ("temporal_norm", "spatial_norm", "separable_norm")

_TAKEN_FOR_GRANTED = {
    nn.Conv2d: ("weight", "bias", "stride", "padding", "dilation", "groups"),
    nn.BatchNorm2d: ("weight", "bias", "running_mean", "running_var", "track_running_stats"),
}


class EEGNet(nn.Module):
    """Classify windows with a temporal filter bank, spatial filters and a separable convolution.

    Args:
        shape: Shape of a window.
        temporal_filters: Number of temporal filters (F1).
        depth: Number of spatial filters per temporal filter (D).
        separable_filters: Number of separable filters (F2).
        kernel_samples: Length of the temporal filters; None is half the sampling rate.
        dropout: Dropout probability.
        max_norm: Constrain the norms of weights; the training loop calls
            :meth:`apply_constraints` after every optimizer step.
        form: How the forward pass is computed; results are equal. ``"plain"`` is layer by layer as
            published, ``"fast"`` has the spatial mixing first, ``"native"`` is that in compiled
            code, with an error where :meth:`why_not_native` has a reason, ``"auto"`` is the fastest
            that can be used. Parameters and state dict are the same.
        norm_momentum: Momentum of the batch norms.
        norm_eps: Epsilon of the batch norms.

    Example:
        >>> model = EEGNet(InputShape.unnamed(32, samples=128, rate_hz=128, classes=2))
        >>> model(torch.zeros(4, 32, 128)).shape
        torch.Size([4, 2])
    """

    pools = (_FIRST_POOL, _SECOND_POOL)
    largest_spatial_weight: float | None = None  # enforced at the start of every forward pass

    def __init__(
        self,
        shape: InputShape,
        *,
        temporal_filters: Filters = 8,  # F1
        depth: Filters = 2,  # D: spatial filters per temporal filter
        separable_filters: Filters = 16,  # F2
        kernel_samples: FilterSamples | None = None,
        dropout: Dropout = 0.25,
        max_norm: bool = True,
        form: EEGNetForm = "auto",
        # Paper (Lawhern): the Keras defaults; momentum 0.99 there is 0.01 in torch's convention.
        norm_momentum: Momentum = 0.01,
        norm_eps: Epsilon = 1e-3,
    ) -> None:
        super().__init__()
        shape.require("EEGNet", samples=_FIRST_POOL * _SECOND_POOL)
        # Paper (Lawhern): half the sampling rate, so that the filters resolve 2 Hz and above.
        kernel = kernel_samples or max(1, round(shape.rate_hz / 2))
        maps = temporal_filters * depth
        self.form = form
        self.max_norm = max_norm
        self.temporal = nn.Conv2d(1, temporal_filters, (1, kernel), bias=False)
        self.temporal_norm = nn.BatchNorm2d(temporal_filters, norm_eps, norm_momentum)
        self.spatial = nn.Conv2d(
            temporal_filters, maps, (shape.channels, 1), groups=temporal_filters, bias=False
        )
        self.spatial_norm = nn.BatchNorm2d(maps, norm_eps, norm_momentum)
        self.depthwise = nn.Conv2d(maps, maps, (1, _SEPARABLE_KERNEL), groups=maps, bias=False)
        self.pointwise = nn.Conv2d(maps, separable_filters, 1, bias=False)
        self.separable_norm = nn.BatchNorm2d(separable_filters, norm_eps, norm_momentum)
        self.dropout = nn.Dropout(dropout)
        pooled = shape.samples // _FIRST_POOL // _SECOND_POOL
        self.classifier = nn.Linear(separable_filters * pooled, shape.classes)
        # Several runs can be one network, see `stacked_eegnet`. Maps fill whole vectors: the rest
        # of a vector loop would have other bits in the last run.
        whole = maps % _VECTOR == 0 and separable_filters % _VECTOR == 0
        self.can_stack = form in ("auto", "native") and kernel <= shape.samples and whole
        for layer in (self.temporal, self.spatial, self.depthwise, self.pointwise, self.classifier):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(self.classifier.bias)
        self._made_with = self._structure()

    def forward(self, signal: Tensor) -> Tensor:
        """Return logits (batch, classes) for a signal (batch, channels, samples)."""
        reason = self.why_not_native(signal)
        if not reason:
            return self._native(signal)
        if self.form == "native":
            raise RuntimeError(
                f'EEGNet with form="native" cannot be computed here: {reason}. Use form="auto".'
            )
        if self.form == "auto" and not torch.compiler.is_compiling():
            _log_once(reason)
        return self._fast(signal) if self.uses_fast_form(signal) else self._plain(signal)

    def why_not_native(self, signal: Tensor) -> str:
        """Return why the compiled code cannot compute this signal; empty if it can.

        It serves the CPU in float32 and float64. Whatever asks for more than it does is left to
        torch: derivatives that it does not have, tools that look at each operator, layers that were
        replaced, changed or given hooks.
        """
        if torch.compiler.is_compiling():  # first: the compiler cannot trace what follows
            return "torch.compile cannot look into compiled code"
        if self.form not in ("auto", "native"):
            return f'form = "{self.form}"'
        if (unavailable := unavailable_reason()) is not None:
            return unavailable
        if torch.jit.is_tracing() or is_watched() or transform_level() is not None:  # type: ignore[attr-defined, no-untyped-call]
            return "a tracer, a dispatch mode or torch.func wants to see every operator"
        if torch.is_autocast_enabled("cpu"):
            return "autocast is on"
        shape = signal.shape
        shortest = max(self.temporal.kernel_size[1], _FIRST_POOL * _SECOND_POOL)
        if len(shape) != 3 or shape[1] != self.spatial.weight.shape[2] or shape[2] < shortest:
            return (
                f"the signal has the shape {tuple(shape)}, expected (batch, "
                f"{self.spatial.weight.shape[2]}, at least {shortest})"
            )
        if signal.numel() == 0:
            return "the batch is empty"
        if torch.is_grad_enabled() and (signal.requires_grad or not self.training):
            return "a gradient of the signal, or in evaluation mode, is not compiled"
        if self._structure() != self._made_with:
            return "a layer was replaced, changed or switched to another mode than the network"
        if has_hooks(*self._layers()):
            return "hooks of layers would not be called"
        for tensor in (signal, *_block_parameters(self)):
            if type(tensor) not in _OWN_TENSORS or tensor.device.type != "cpu":
                return f"it needs plain tensors on the CPU, found one on {tensor.device}"
            if tensor.dtype not in DTYPES or tensor.dtype != signal.dtype:
                return (
                    "signal and weights must all be float32 or float64, found "
                    f"{signal.dtype} and {tensor.dtype}"
                )
            if has_tangent(tensor):
                return "derivatives of forward mode are not compiled"
        return ""

    def uses_fast_form(self, signal: Tensor) -> bool:
        """Return True if the forward pass uses the fast form where it does not use compiled code.

        It needs the layers as they were made, and pays if it mixes channels into fewer maps.
        """
        if self.form == "plain" or self.temporal.kernel_size[1] > signal.shape[2]:
            return False
        channels, depth = signal.shape[1], self.spatial.out_channels // self.temporal.out_channels
        return self._structure() == self._made_with and (self.form == "fast" or channels > depth)

    @torch.no_grad()
    def apply_constraints(self) -> None:
        """Project onto the max-norm balls: spatial filters 1.0, class rows 0.25."""
        if self.max_norm:
            self.spatial.weight.renorm_(2, 0, _SPATIAL_MAX_NORM)
            self.classifier.weight.renorm_(2, 0, _CLASS_MAX_NORM)

    def _plain(self, signal: Tensor) -> Tensor:
        maps = signal.unsqueeze(1)  # (batch, 1, channels, samples)
        maps = self.temporal(F.pad(maps, same_padding(self.temporal.kernel_size[1])))
        if self._is_first_affine_cancelled():
            scale, shift = held_affine(self.temporal_norm.weight, self.temporal_norm.bias)
            held = {"weight": scale, "bias": shift}
            maps = functional_call(self.temporal_norm, held, (maps,))
        else:
            maps = self.temporal_norm(maps)
        maps = self._second_norm(self.spatial(maps))  # (batch, D·F1, 1, samples)
        maps = F.avg_pool2d(F.elu(maps), (1, _FIRST_POOL))
        maps = self.dropout(maps)
        maps = self.depthwise(F.pad(maps, same_padding(_SEPARABLE_KERNEL)))
        maps = self.separable_norm(self.pointwise(maps))
        maps = self.dropout(F.avg_pool2d(F.elu(maps), (1, _SECOND_POOL)))
        logits: Tensor = self.classifier(maps.flatten(1))
        return logits

    def _fast(self, signal: Tensor) -> Tensor:
        affine = self.temporal_norm.weight, self.temporal_norm.bias
        maps = spatial_first_block(
            signal,
            self.temporal.weight.flatten(1),
            self.temporal_norm,
            held_affine(*affine) if self._is_first_affine_cancelled() else affine,
            self.spatial.weight.flatten(1),
        )  # (D·F1, batch, samples): maps first, so that every filter is one matrix product
        maps = F.elu(self._second_norm(maps.unsqueeze(0)).squeeze(0))
        # Batch first again before dropout, so that both forms draw the same masks.
        maps = self.dropout(mean_pool(maps, _FIRST_POOL).transpose(0, 1).contiguous())
        maps = same_filter(maps.transpose(0, 1), self.depthwise.weight.flatten(1))
        maps = torch.matmul(self.pointwise.weight.flatten(1), maps.transpose(0, 1))
        maps = F.elu(self.separable_norm(maps.unsqueeze(2)).squeeze(2))
        logits: Tensor = self.classifier(self.dropout(mean_pool(maps, _SECOND_POOL)).flatten(1))
        return logits

    def _is_first_affine_cancelled(self) -> bool:
        """Return True if the second norm uses the batch's statistics and both are torch's own."""
        first, second = self.temporal_norm, self.spatial_norm
        both = all(type(norm) is nn.BatchNorm2d and norm.affine for norm in (first, second))
        return both and (second.training or second.running_mean is None)

    def _second_norm(self, maps: Tensor) -> Tensor:
        """Apply the second norm; the first one's scale and shift get exact gradients."""
        first, second = self.temporal_norm, self.spatial_norm
        if not self._is_first_affine_cancelled():
            return second(maps)  # type: ignore[no-any-return]
        scale = next_scale(second.weight, first.weight, first.bias, maps, second.eps)
        return functional_call(second, {"weight": scale}, (maps,))  # type: ignore[no-any-return]

    def native_blocks(self, signal: Tensor, networks: int = 1) -> Blocks:
        """Return what the native form computes for a signal, with one or more such networks."""
        norms = self._norms()
        batch, channels, samples = signal.shape
        outputs, maps = self.pointwise.weight.shape[:2]
        filters = self.temporal.weight.shape[0]
        sizes = Sizes(
            batch, channels, samples, filters * networks, maps // filters, outputs * networks,
            self.temporal.kernel_size[1], _SEPARABLE_KERNEL, _FIRST_POOL, _SECOND_POOL,
            networks, signal.dtype,
        )  # fmt: skip
        drop = self.dropout.p
        eps = (norms[0].eps, norms[1].eps, norms[2].eps)
        return Blocks(sizes, eps, 1 / (1 - drop) if drop < 1 else 0.0)

    def native_masks(self, sizes: Sizes) -> list[Tensor | None]:
        """Draw the elements that the two dropouts keep: those that the other forms draw."""
        drop = self.dropout.p
        outputs, maps = self.pointwise.weight.shape[:2]
        shapes = (sizes.batch, maps, sizes.pooled), (sizes.batch, outputs, sizes.second_pooled)
        return [
            torch.empty(shape, dtype=torch.bool, device="cpu").bernoulli_(1 - drop)
            if drop > 0
            else None
            for shape in shapes
        ]

    def _native(self, signal: Tensor) -> Tensor:
        norms, blocks = self._norms(), self.native_blocks(signal)
        parameters = _block_parameters(self)
        if self.training:
            masks = self.native_masks(blocks.sizes)
            features, statistics = native_features(blocks, signal, parameters, masks)
            _move_running(norms, statistics)
        else:
            features = evaluated_features(blocks, signal, parameters, _running(norms))
        return self.classifier(features)  # type: ignore[no-any-return]

    def _norms(self) -> tuple[nn.BatchNorm2d, nn.BatchNorm2d, nn.BatchNorm2d]:
        return self.temporal_norm, self.spatial_norm, self.separable_norm

    def _layers(self) -> tuple[nn.Module, ...]:
        convolutions = (self.temporal, self.spatial, self.depthwise, self.pointwise)
        return *convolutions, *self._norms(), self.dropout

    def _structure(self) -> list[object]:
        """Return what the fast and the native form take for granted about the layers."""
        found: list[object] = []
        for layer in self._layers():
            found += [type(layer), layer.training == self.training]
            for name in _TAKEN_FOR_GRANTED.get(type(layer), ()):
                value = getattr(layer, name)
                found.append(value.shape if isinstance(value, Tensor) else value)
        return found


@functools.cache
def _log_once(reason: str) -> None:
    """Log why EEGNet is not computed by compiled code, which takes several times as long."""
    level = logging.WARNING if reason == unavailable_reason() else logging.INFO
    logging.getLogger("afor").log(level, "EEGNet runs without compiled code: %s.", reason)


def _running(norms: Sequence[nn.BatchNorm2d]) -> list[Tensor]:
    """Return the running mean and variance of each norm."""
    return [n.get_buffer(k) for n in norms for k in ("running_mean", "running_var")]


@torch.no_grad()
def _move_running(norms: Sequence[nn.BatchNorm2d], statistics: Sequence[Tensor]) -> None:
    """Move the running statistics of all norms towards (mean, unbiased variance) of each."""
    for norm, mean, variance in zip(norms, statistics[::2], statistics[1::2], strict=True):
        count = norm.get_buffer("num_batches_tracked").add_(1)
        # Without a momentum, batch norm averages over all batches so far.
        step = 1 / int(count) if norm.momentum is None else norm.momentum
        norm.get_buffer("running_mean").lerp_(mean, step)
        norm.get_buffer("running_var").lerp_(variance, step)
