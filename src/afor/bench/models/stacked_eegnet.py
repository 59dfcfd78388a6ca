"""Several EEGNets of one shape as one network: the same signal, each run with its own weights.

The arithmetic is that of EEGNet's fast form. What depends on the signal alone (second moments,
dropout masks) is computed once for all runs; everything else is one batched operation over the
runs. Maps come first, (runs · maps, batch, time), so that a filter is one matrix product.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from afor.bench.models.eegnet import EEGNet
from afor.bench.models.layers.run_stack import RunStack
from afor.bench.models.layers.spatial_first import stacked_moments
from afor.bench.models.layers.toeplitz import same_filter


def can_stack(model: nn.Module) -> bool:
    """Tell whether runs of this network can be trained as one: EEGNets with their fast form."""
    return isinstance(model, EEGNet) and model.can_stack


class StackedEEGNet(RunStack):
    """Several :class:`EEGNet` of one shape; each is trained as it is alone, to rounding."""

    first: EEGNet

    def __call__(self, signal: Tensor, *, training: bool) -> Tensor:
        """Return logits (width, batch, classes) for a signal (batch, channels, samples)."""
        signal = signal.to(self.parameter("temporal.weight").dtype)
        first_pool, second_pool = self.first.pools
        self._bound_spatial_weights()
        maps = self._first_block(signal, training=training)  # (runs·maps, batch, time)
        maps = self._norm_elu_pool("spatial_norm", maps, first_pool, training=training)
        maps = self._dropout(maps, training=training)
        depthwise = self.parameter("depthwise.weight").flatten(2).flatten(0, 1)
        maps = self._mix("pointwise.weight", same_filter(maps, depthwise))
        maps = self._norm_elu_pool("separable_norm", maps, second_pool, training=training)
        maps = self._dropout(maps, training=training)
        runs, batch = self.width, len(signal)
        features = maps.view(runs, -1, batch, maps.shape[-1]).transpose(1, 2).flatten(2)
        weight, bias = self.parameter("classifier.weight"), self.parameter("classifier.bias")
        return torch.baddbmm(bias.unsqueeze(1), features, weight.transpose(1, 2))

    def _bound_spatial_weights(self) -> None:
        """Do what the authors' network does at the start of its forward pass."""
        if self.first.largest_spatial_weight is not None:
            self.parameter("spatial.weight").data.clamp_(max=self.first.largest_spatial_weight)

    def _first_block(self, signal: Tensor, *, training: bool) -> Tensor:
        """Return temporal filter → batch norm → spatial filter; see `spatial_first_block`."""
        batch, channels, samples = signal.shape
        temporal = self.parameter("temporal.weight").flatten(2)  # (runs, filters, kernel)
        spatial = self.parameter("spatial.weight").flatten(2)  # (runs, maps, channels)
        if training:
            mean, variance = stacked_moments(signal, temporal)
            self._update_running("temporal_norm", mean, variance, signal.numel())
        else:
            mean = self.buffer("temporal_norm.running_mean")
            variance = self.buffer("temporal_norm.running_var")
        norm = self.first.temporal_norm
        scale = self.parameter("temporal_norm.weight") * torch.rsqrt(variance + norm.eps)
        shift = self.parameter("temporal_norm.bias") - scale * mean
        filters = (temporal * scale.unsqueeze(2)).flatten(0, 1)
        depth = spatial.shape[1] // temporal.shape[1]
        shift = shift.repeat_interleave(depth, dim=1) * spatial.sum(dim=2)
        rows = signal.transpose(0, 1).reshape(channels, batch * samples)
        virtual = torch.bmm(spatial, rows.expand(len(spatial), -1, -1)).view(-1, batch, samples)
        return same_filter(virtual, filters) + shift.view(-1, 1, 1)

    def _update_running(self, name: str, mean: Tensor, variance: Tensor, count: int) -> None:
        """Move the running statistics as batch norm does: with the unbiased variance."""
        momentum = getattr(self.first, name).momentum
        unbiased = variance.detach() * (count / max(count - 1, 1))
        self.buffer(f"{name}.running_mean").lerp_(mean.detach(), momentum)
        self.buffer(f"{name}.running_var").lerp_(unbiased, momentum)
        self.buffer(f"{name}.num_batches_tracked").add_(1)

    def _norm_elu_pool(self, name: str, maps: Tensor, size: int, *, training: bool) -> Tensor:
        """Apply batch norm, ELU and mean pool to (runs·maps, batch, time); drop the remainder."""
        norm = getattr(self.first, name)
        if training:
            self.buffer(f"{name}.num_batches_tracked").add_(1)
        maps = F.batch_norm(
            maps.unsqueeze(0),
            self.buffer(f"{name}.running_mean").flatten(),
            self.buffer(f"{name}.running_var").flatten(),
            self.parameter(f"{name}.weight").flatten(),
            self.parameter(f"{name}.bias").flatten(),
            training,
            norm.momentum,
            norm.eps,
        ).squeeze(0)
        pooled = maps.shape[-1] // size
        whole = F.elu(maps)[..., : pooled * size]
        return whole.reshape(*maps.shape[:-1], pooled, size).mean(dim=-1)

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
        weight = self.parameter(name).flatten(2)  # (runs, outputs, maps)
        batch, samples = maps.shape[1:]
        mixed = torch.bmm(weight, maps.view(len(weight), weight.shape[2], -1))
        return mixed.view(-1, batch, samples)
