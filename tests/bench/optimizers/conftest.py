import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn


@pytest.fixture
def convnet() -> nn.Module:
    """A small float64 network with every kind of tensor the backbones have: 1-D to 4-D, BN."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Unflatten(1, (1, 4)),
        nn.Conv2d(1, 3, (1, 5), bias=False),
        nn.BatchNorm2d(3),
        nn.ELU(),  # without it the bias above would have a gradient of rounding errors alone
        nn.Conv2d(3, 6, (4, 1), groups=3, bias=False),
        nn.BatchNorm2d(6),
        nn.ELU(),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(72, 3),
    ).double()


@pytest.fixture
def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(4)
    return [
        (
            torch.randn(8, 4, 16, generator=generator, dtype=torch.float64),
            torch.randint(3, (8,), generator=generator),
        )
        for _ in range(50)
    ]


@pytest.fixture
def largest_difference(
    convnet: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]
) -> Callable[..., float]:
    """Train two copies side by side; return the largest difference relative to the travel."""

    def train(
        ours: Callable[..., torch.optim.Optimizer], theirs: Callable[..., torch.optim.Optimizer]
    ) -> float:
        nets = [copy.deepcopy(convnet), copy.deepcopy(convnet)]
        optimizers = [
            make(net.parameters()) for make, net in zip((ours, theirs), nets, strict=True)
        ]
        for step, (inputs, labels) in enumerate(batches):
            for net, optimizer in zip(nets, optimizers, strict=True):
                torch.manual_seed(step)
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(inputs), labels).backward()
                optimizer.step()
        start, ours_end, theirs_end = (
            nn.utils.parameters_to_vector(net.parameters()).detach() for net in (convnet, *nets)
        )
        return float((ours_end - theirs_end).abs().max() / (theirs_end - start).abs().max())

    return train
