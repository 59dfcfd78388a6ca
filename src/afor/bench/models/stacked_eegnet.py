"""Several EEGNets of one shape as one network: the same signal, each run with its own weights.

The arithmetic is that of EEGNet's native form where a run alone takes it, else that of the fast
form. What depends on the signal alone (second moments, dropout masks) is computed once for all
runs; everything else is one batched operation over the runs. Maps come first,
(runs · maps, batch, time), so that a filter is one matrix product.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from afor.bench.models.eegnet import EEGNet
from afor.bench.models.layers.run_stack import RunStack
from afor.bench.models.layers.spatial_first import stacked_moments
from afor.bench.models.layers.toeplitz import same_filter
from afor.bench.models.native.binding import DTYPES, unavailable_reason
from afor.bench.models.native.eegnet import evaluated_features, mean_pool, native_features

# In the order of `native.binding.PARAMETERS`.
_NATIVE_PARAMETERS = (
    "temporal.weight", "temporal_norm.weight", "temporal_norm.bias",
    "spatial.weight", "spatial_norm.weight", "spatial_norm.bias",
    "depthwise.weight", "pointwise.weight", "separable_norm.weight", "separable_norm.bias",
)  # fmt: skip
_NORMS = ("temporal_norm", "spatial_norm", "separable_norm")


def can_stack(model: nn.Module) -> bool:
    """Return True if runs of this network can be trained as one: EEGNet, not in its plain form."""
    return isinstance(model, EEGNet) and model.can_stack


def has_compiled_form(model: nn.Module) -> bool:
    """Tell whether this network takes the compiled form on machines that have it."""
    return isinstance(model, EEGNet) and model.form in ("auto", "native")


def stacks_exactly(model: nn.Module) -> bool:
    """Tell whether a run has the same bits by itself and in a bundle, here."""
    weight = next(model.parameters())
    return (
        can_stack(model)
        and has_compiled_form(model)
        and unavailable_reason() is None
        and weight.dtype in DTYPES
        and weight.device.type == "cpu"
    )


class StackedEEGNet(RunStack):
    """Several :class:`EEGNet` of one shape; each is trained as it is alone, to rounding."""

    first: EEGNet

    def __init__(self, models: Sequence[EEGNet]) -> None:
        # Decided by what all runs of a bundle share, not by how many they are.
        self.is_native = stacks_exactly(models[0])
        super().__init__(models, least_width=1 if self.is_native else 2)

    def __call__(self, signal: Tensor, *, training: bool) -> Tensor:
        """Return logits (width, batch, classes) for a signal (batch, channels, samples)."""
        signal = signal.to(self.parameters["temporal.weight"].dtype)
        self._bound_spatial_weights()
        weight, bias = self.parameters["classifier.weight"], self.parameters["classifier.bias"]
        if self.is_native:
            features = self._native(signal, training=training)
            return torch.stack([F.linear(*run) for run in zip(features, weight, bias, strict=True)])
        features = self._batched(signal, training=training)
        return torch.baddbmm(bias.unsqueeze(1), features, weight.transpose(1, 2))

    def _native(self, signal: Tensor, *, training: bool) -> Tensor:
        """Return the inputs of the classifiers, (width, batch, features), by compiled code."""
        blocks = self.first.native_blocks(signal, self.width)
        parameters = [self.parameters[name] for name in _NATIVE_PARAMETERS]
        if training:
            masks = self.first.native_masks(blocks.sizes)
            features, batch = native_features(blocks, signal, parameters, masks)
            for name, mean, variance in zip(_NORMS, batch[::2], batch[1::2], strict=True):
                self._move_running(name, mean, variance)
        else:
            running = [f"{norm}.running_{name}" for norm in _NORMS for name in ("mean", "var")]
            statistics = [self.buffers[name].flatten() for name in running]
            features = evaluated_features(blocks, signal, parameters, statistics)
        return features.view(len(signal), self.width, -1).transpose(0, 1).contiguous()

    def _batched(self, signal: Tensor, *, training: bool) -> Tensor:
        """Return the inputs of the classifiers, (width, batch, features), by torch's operators."""
        first_pool, second_pool = self.first.pools
        maps = self._first_block(signal, training=training)  # (runs·maps, batch, time)
        maps = self._norm_elu_pool("spatial_norm", maps, first_pool, training=training)
        maps = self._dropout(maps, training=training)
        depthwise = self.parameters["depthwise.weight"].flatten(2).flatten(0, 1)
        maps = self._mix("pointwise.weight", same_filter(maps, depthwise))
        maps = self._norm_elu_pool("separable_norm", maps, second_pool, training=training)
        maps = self._dropout(maps, training=training)
        runs, batch = self.width, len(signal)
        return maps.view(runs, -1, batch, maps.shape[-1]).transpose(1, 2).flatten(2)

    def _bound_spatial_weights(self) -> None:
        """Do what the authors' network does at the start of its forward pass."""
        if self.first.largest_spatial_weight is not None:
            self.parameters["spatial.weight"].data.clamp_(max=self.first.largest_spatial_weight)

    def _first_block(self, signal: Tensor, *, training: bool) -> Tensor:
        """Return temporal filter → batch norm → spatial filter; see `spatial_first_block`."""
        batch, channels, samples = signal.shape
        temporal = self.parameters["temporal.weight"].flatten(2)  # (runs, filters, kernel)
        spatial = self.parameters["spatial.weight"].flatten(2)  # (runs, maps, channels)
        if training:
            mean, variance = stacked_moments(signal, temporal)
            self._update_running("temporal_norm", mean, variance, signal.numel())
        else:
            mean = self.buffers["temporal_norm.running_mean"]
            variance = self.buffers["temporal_norm.running_var"]
        norm = self.first.temporal_norm
        scale = self.parameters["temporal_norm.weight"] * torch.rsqrt(variance + norm.eps)
        shift = self.parameters["temporal_norm.bias"] - scale * mean
        filters = (temporal * scale.unsqueeze(2)).flatten(0, 1)
        depth = spatial.shape[1] // temporal.shape[1]
        shift = shift.repeat_interleave(depth, dim=1) * spatial.sum(dim=2)
        rows = signal.transpose(0, 1).reshape(channels, batch * samples)
        virtual = torch.bmm(spatial, rows.expand(len(spatial), -1, -1)).view(-1, batch, samples)
        return same_filter(virtual, filters) + shift.view(-1, 1, 1)

    def _update_running(self, name: str, mean: Tensor, variance: Tensor, count: int) -> None:
        """Move the running statistics as batch norm does: with the unbiased variance."""
        unbiased = variance.detach() * (count / max(count - 1, 1))
        self._move_running(name, mean.detach(), unbiased)

    def _move_running(self, name: str, mean: Tensor, unbiased: Tensor) -> None:
        """Move the running statistics of a norm by those of a batch."""
        momentum = getattr(self.first, name).momentum
        for statistic, of_batch in (("running_mean", mean), ("running_var", unbiased)):
            running = self.buffers[f"{name}.{statistic}"]
            running.lerp_(of_batch.view_as(running), momentum)
        self.buffers[f"{name}.num_batches_tracked"].add_(1)

    def _norm_elu_pool(self, name: str, maps: Tensor, size: int, *, training: bool) -> Tensor:
        """Apply batch norm, ELU and mean pool to (runs·maps, batch, time); drop the remainder."""
        norm = getattr(self.first, name)
        if training:
            self.buffers[f"{name}.num_batches_tracked"].add_(1)
        mean, var = (self.buffers[f"{name}.running_{x}"].flatten() for x in ("mean", "var"))
        weight, bias = (self.parameters[f"{name}.{x}"].flatten() for x in ("weight", "bias"))
        options = training, norm.momentum, norm.eps
        maps = F.batch_norm(maps.unsqueeze(0), mean, var, weight, bias, *options).squeeze(0)
        return mean_pool(F.elu(maps), size)

    def _dropout(self, maps: Tensor, *, training: bool) -> Tensor:
        """Drop the same elements in all runs, those that a run alone drops."""
        share = self.first.dropout.p
        if not training or share == 0:
            return maps
        runs, (_, batch, samples) = self.width, maps.shape
        # Drawn batch first, as a run alone does.
        mask = F.dropout(maps.new_ones(batch, len(maps) // runs, samples), share)
        return (maps.view(runs, -1, batch, samples) * mask.transpose(0, 1)).view(maps.shape)

    def _mix(self, name: str, maps: Tensor) -> Tensor:
        """Mix the maps of every run by its weights of a convolution of length 1."""
        weight = self.parameters[name].flatten(2)  # (runs, outputs, maps)
        batch, samples = maps.shape[1:]
        mixed = torch.bmm(weight, maps.view(len(weight), weight.shape[2], -1))
        return mixed.view(-1, batch, samples)
