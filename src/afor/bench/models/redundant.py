"""Find tensors that cannot change what a network computes in training: biases before a batch norm.

The gradient of such a tensor is rounding, or a trace of it that comes through the epsilon of a norm
alone. Adam-type optimizers divide a gradient by its own size and so move the tensor by steps as
large as the learning rate, and coupled weight decay shrinks it.

A tensor is redundant if its gradient vanishes when the epsilon of every norm is next to nothing. So
a scale is redundant if the next norm divides by it, whatever that norm's epsilon: EEGNet's is 1e-3
as published and 1e-5 in the authors' code, and its ``temporal_norm.weight`` is redundant in both. A
gradient that is small at the start alone, as those of ACRNN's attention, does not count: the
network is trained for some steps on one batch, and the largest gradient of each tensor decides.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from afor.bench.common.seeding import isolated
from afor.bench.models.input_shape import InputShape

WINDOWS = 32  # of the batch on which gradients are compared
STEPS, RATE = 20, 1e-2  # of Adam in float64
NEARLY_ZERO = 1e-20  # epsilon of the norms: not 0, because a map may be constant
# Of the largest gradient of the network. What a norm removes is below 1e-14 in the networks of this
# package, any other gradient above 1e-4.
SMALL = 1e-7


@dataclass(frozen=True)
class TensorGradient:
    """The gradient of one tensor on one random batch."""

    name: str
    numbers: int
    size: float  # largest root mean square of its steps, relative to that of the largest tensor

    @property
    def redundant(self) -> bool:
        """Whether the tensor cannot change what the network computes in training."""
        return self.size < SMALL


def gradients(
    make_model: Callable[[], nn.Module], shape: InputShape, seed: int = 0
) -> list[TensorGradient]:
    """Measure the gradients of a network in float64, in training mode.

    Dropout is switched off and the epsilon of every norm is next to nothing.

    Args:
        make_model: Builds the network.
        shape: Shape of its input.
        seed: Seed of weights and batch.

    Returns:
        One entry per trainable tensor, in the order of the network.
    """
    with isolated(seed, torch.device("cpu")):
        model = make_model().train()
        inputs = torch.randn(WINDOWS, shape.channels, shape.samples).double()
        labels = torch.arange(WINDOWS) % shape.classes
        model = model.double()
        for module in model.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.p = 0.0
            if isinstance(vars(module).get("eps"), float):
                vars(module)["eps"] = NEARLY_ZERO
        tensors = {n: p for n, p in model.named_parameters() if p.requires_grad}
        optimizer = torch.optim.Adam(tensors.values(), RATE)
        largest = dict.fromkeys(tensors, 0.0)
        for _ in range(STEPS):
            loss = cross_entropy(model(inputs), labels)
            grads = torch.autograd.grad(loss, list(tensors.values()), materialize_grads=True)
            sizes = [float(grad.square().mean().sqrt()) for grad in grads]
            top = max(sizes, default=0.0) or 1.0
            for (name, tensor), grad, size in zip(tensors.items(), grads, sizes, strict=True):
                tensor.grad = grad
                largest[name] = max(largest[name], size / top)
            optimizer.step()
    return [TensorGradient(name, p.numel(), largest[name]) for name, p in tensors.items()]


def redundant_tensors(make_model: Callable[[], nn.Module], shape: InputShape) -> tuple[str, ...]:
    """Return the names of the tensors that cannot change what the network computes in training."""
    return tuple(row.name for row in gradients(make_model, shape) if row.redundant)
