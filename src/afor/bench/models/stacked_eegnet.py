"""Several EEGNets of one shape as one network: the same signal, each run with its own weights.

Compiled code computes what depends on the signal alone (second moments, dropout masks) once for
all runs, and everything else run by run: each has the bits it has by itself.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from afor.bench.models.eegnet import BLOCK_PARAMETERS, NORMS, EEGNet
from afor.bench.models.native.binding import DTYPES, unavailable_reason
from afor.bench.models.native.eegnet import evaluated_features, native_features


def can_stack(model: nn.Module) -> bool:
    """Return True if runs of this network can be trained as one where there is compiled code."""
    return isinstance(model, EEGNet) and model.can_stack


def stacks_here(model: nn.Module) -> bool:
    """Return True if runs of this network can be trained as one on this machine."""
    weight = next(model.parameters())
    return (
        can_stack(model)
        and unavailable_reason() is None
        and weight.dtype in DTYPES
        and weight.device.type == "cpu"
    )


class StackedEEGNet:
    """The parameters and buffers of several :class:`EEGNet`, stacked along a leading dimension.

    Each network keeps its own parameters and buffers: they become views of the stacked tensors, so
    that its own optimizer, constraints and state dict work as they do alone. A network belongs to
    the stack that was made last of it; an earlier stack must not be used then.

    Args:
        models: Networks of one class and one shape, for which `stacks_here` is true.
    """

    def __init__(self, models: Sequence[EEGNet]) -> None:
        self.models = tuple(models)
        self.first = models[0]
        # Each tensor that is trained, with the parameters of the networks.
        self._trained: list[tuple[Tensor, list[nn.Parameter]]] = []
        self.parameters: dict[str, Tensor] = {}  # (runs, *shape), by name
        for name, _ in self.first.named_parameters():
            owners = [model.get_parameter(name) for model in models]
            stacked = torch.stack([owner.detach() for owner in owners])
            for parameter, piece in zip(owners, stacked, strict=True):
                parameter.data = piece
            self.parameters[name] = stacked
            if owners[0].requires_grad:
                self._trained.append((stacked.requires_grad_(), owners))
        self.buffers: dict[str, Tensor] = {}  # (runs, *shape), by name
        for name, _ in self.first.named_buffers():
            path, _, attribute = name.rpartition(".")
            modules = [model.get_submodule(path) for model in models]
            stacked = torch.stack([module.get_buffer(attribute) for module in modules])
            for module, piece in zip(modules, stacked, strict=True):
                setattr(module, attribute, piece)
            self.buffers[name] = stacked

    def __call__(self, signal: Tensor, *, training: bool) -> Tensor:
        """Return logits (runs, batch, classes) for a signal (batch, channels, samples)."""
        signal = signal.to(self.parameters["temporal.weight"].dtype)
        if self.first.largest_spatial_weight is not None:  # as the authors' forward pass begins
            self.parameters["spatial.weight"].data.clamp_(max=self.first.largest_spatial_weight)
        weight, bias = self.parameters["classifier.weight"], self.parameters["classifier.bias"]
        features = self._features(signal, training=training)
        return torch.stack([F.linear(*run) for run in zip(features, weight, bias, strict=True)])

    def backward(self, losses: Tensor) -> None:
        """Set the gradients of every network from the losses, (runs,)."""
        # No run's loss depends on another's parameters: one backward pass serves all.
        trained = [stacked for stacked, _ in self._trained]
        grads = torch.autograd.grad(losses.sum(), trained)
        for (_, owners), grad in zip(self._trained, grads, strict=True):
            for parameter, piece in zip(owners, grad.unbind(0), strict=True):
                parameter.grad = piece

    def _features(self, signal: Tensor, *, training: bool) -> Tensor:
        """Return the inputs of the classifiers, (runs, batch, features)."""
        runs = len(self.models)
        blocks = self.first.native_blocks(signal, runs)
        parameters = [self.parameters[name] for name in BLOCK_PARAMETERS]
        if training:
            masks = self.first.native_masks(blocks.sizes)
            features, batch = native_features(blocks, signal, parameters, masks)
            for name, mean, variance in zip(NORMS, batch[::2], batch[1::2], strict=True):
                self._move_running(name, mean, variance)
        else:
            running = [f"{norm}.running_{name}" for norm in NORMS for name in ("mean", "var")]
            statistics = [self.buffers[name].flatten() for name in running]
            features = evaluated_features(blocks, signal, parameters, statistics)
        return features.view(len(signal), runs, -1).transpose(0, 1).contiguous()

    def _move_running(self, name: str, mean: Tensor, unbiased: Tensor) -> None:
        """Move the running statistics of a norm by those of a batch."""
        momentum = getattr(self.first, name).momentum
        for statistic, of_batch in (("running_mean", mean), ("running_var", unbiased)):
            running = self.buffers[f"{name}.{statistic}"]
            running.lerp_(of_batch.view_as(running), momentum)
        self.buffers[f"{name}.num_batches_tracked"].add_(1)
