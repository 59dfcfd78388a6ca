"""Find tensors of a network whose gradient is rounding, such as biases before a batch norm.

Such a tensor does not change what the network computes in training. Adam-type optimizers divide
its rounding by its own size and so move it by steps as large as the learning rate.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from afor.bench.common.seeding import isolated
from afor.bench.models.input_shape import InputShape

WINDOWS = 32  # of the batch on which gradients are compared
SMALL = 1e-6  # of the largest gradient of the network, by root mean square in float64
ROUNDING = 0.05  # relative error of the gradient in float32


@dataclass(frozen=True)
class TensorGradient:
    """The gradient of one tensor on one random batch."""

    name: str
    numbers: int
    size: float  # root mean square in float64, relative to the largest of the network
    error: float  # of float32, relative to the gradient in float64

    @property
    def redundant(self) -> bool:
        """Whether the gradient is zero but for rounding, or its rounding is as large as itself."""
        return self.size < SMALL or self.error > ROUNDING


def gradients(
    make_model: Callable[[], nn.Module], shape: InputShape, seed: int = 0
) -> list[TensorGradient]:
    """Compare the gradients of a network in float32 and float64, in training mode.

    Dropout is switched off, so that both see the same network.

    Args:
        make_model: Builds the network.
        shape: Shape of its input.
        seed: Seed of weights and batch.

    Returns:
        One entry per trainable tensor, in the order of the network.
    """
    found = []
    for dtype in (torch.float64, torch.float32):
        with isolated(seed, torch.device("cpu")):
            model = make_model().train()
            for module in model.modules():
                if isinstance(module, nn.modules.dropout._DropoutNd):
                    module.p = 0.0
            inputs = torch.randn(WINDOWS, shape.channels, shape.samples)
            labels = torch.arange(WINDOWS) % shape.classes
            model = model.to(dtype)
            tensors = {n: p for n, p in model.named_parameters() if p.requires_grad}
            loss = cross_entropy(model(inputs.to(dtype)), labels)
            found.append(
                dict(
                    zip(
                        tensors,
                        torch.autograd.grad(loss, list(tensors.values()), allow_unused=True),
                        strict=True,
                    )
                )
            )
    exact, rounded = found
    sizes = {n: 0.0 if g is None else float(g.square().mean().sqrt()) for n, g in exact.items()}
    largest = max(sizes.values(), default=0.0) or 1.0
    rows = []
    for name, gradient in exact.items():
        other = rounded[name]
        error = 0.0
        if gradient is not None and other is not None and sizes[name] > 0:
            error = float((other.double() - gradient).square().mean().sqrt()) / sizes[name]
        numbers = 0 if gradient is None else gradient.numel()
        rows.append(TensorGradient(name, numbers, sizes[name] / largest, error))
    return rows
