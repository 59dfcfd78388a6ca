"""Networks of equal shape as one network with a leading run dimension.

Each network keeps its own parameters and buffers: they become views of the stacked tensors, so
that its own optimizer, constraints and state dict work as they do alone.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class RunStack:
    """The parameters and buffers of several networks, stacked along a leading run dimension.

    A network belongs to the stack that was made last of it; an earlier stack must not be used then.
    Batched operations treat every run alike, whatever their number; only a batch of one takes other
    paths in torch. Where they are used, a single network is therefore stacked with a copy of
    itself, and its bits are those it has in any bundle.

    Args:
        models: Networks of one class and one shape, on one device.
        least_width: 2 for a stack that uses torch's batched operations, else 1.
    """

    def __init__(self, models: Sequence[nn.Module], least_width: int = 2) -> None:
        self.models = tuple(models)
        self.width = max(least_width, len(models))  # of the run dimension
        self.first = models[0]
        # Each tensor that is trained, with the parameters of the networks.
        self._trained: list[tuple[Tensor, list[nn.Parameter]]] = []
        self.parameters: dict[str, Tensor] = {}  # (width, *shape), by name
        for name, _ in self.first.named_parameters():
            owners = [model.get_parameter(name) for model in models]
            stacked = self._stack(owners)
            for parameter, piece in zip(owners, stacked, strict=False):
                parameter.data = piece
            self.parameters[name] = stacked
            if owners[0].requires_grad:
                self._trained.append((stacked.requires_grad_(), owners))
        self.buffers: dict[str, Tensor] = {}  # (width, *shape), by name
        for name, _ in self.first.named_buffers():
            path, _, attribute = name.rpartition(".")
            modules = [model.get_submodule(path) for model in models]
            stacked = self._stack([module.get_buffer(attribute) for module in modules])
            for module, piece in zip(modules, stacked, strict=False):
                setattr(module, attribute, piece)
            self.buffers[name] = stacked

    def _stack(self, tensors: Sequence[Tensor]) -> Tensor:
        copies = [*tensors, *[tensors[-1]] * (self.width - len(tensors))]
        return torch.stack([tensor.detach() for tensor in copies])

    def __call__(self, signal: Tensor, *, training: bool) -> Tensor:
        """Return logits (width, batch, classes) for a signal (batch, channels, samples)."""
        raise NotImplementedError

    def backward(self, losses: Tensor) -> None:
        """Set the gradients of every network from the losses, (width,)."""
        # No run's loss depends on another's parameters: one backward pass serves all.
        trained = [stacked for stacked, _ in self._trained]
        grads = torch.autograd.grad(losses.sum(), trained, allow_unused=True)
        for (_, owners), grad in zip(self._trained, grads, strict=True):
            pieces = [None] * self.width if grad is None else grad.unbind(0)
            for parameter, piece in zip(owners, pieces, strict=False):
                parameter.grad = piece
