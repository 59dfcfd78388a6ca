"""What the tests of the backbones share: inputs, synthetic EEG, a training step."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from afor.bench.models.eegnet import EEGNet
from afor.bench.models.input_shape import InputShape

SIX = InputShape(("F3", "C3", "O1", "F4", "C4", "O2"), samples=128, rate_hz=128, classes=2)


@pytest.fixture(autouse=True)
def _one_thread_and_a_seed() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def six_channels() -> InputShape:
    return SIX


@pytest.fixture
def batch_of() -> Callable[..., Tensor]:
    def make(shape: InputShape, count: int = 4, **options: object) -> Tensor:
        return torch.randn(count, shape.channels, shape.samples, **options)  # type: ignore[arg-type]

    return make


@pytest.fixture
def synthetic_eeg() -> tuple[Tensor, Tensor]:
    """Return 64 windows: noise, with 10 Hz over the left side (class 0) or the right (class 1)."""
    labels = torch.arange(64) % 2
    time = torch.arange(SIX.samples) / SIX.rate_hz
    phase = 2 * math.pi * torch.rand(64, 1, 1)
    rhythm = 3 * torch.sin(2 * math.pi * 10 * time + phase)
    left = torch.tensor([1.0, 1, 1, 0, 0, 0]).view(1, 6, 1)
    place = torch.where(labels.view(-1, 1, 1) == 0, left, 1 - left)
    return torch.randn(64, 6, SIX.samples) + rhythm * place, labels


@pytest.fixture
def gradients() -> Callable[[nn.Module, Tensor], dict[str, Tensor]]:
    """Return every parameter's gradient of a fixed loss that weighs all logits differently."""

    def compute(model: nn.Module, signal: Tensor) -> dict[str, Tensor]:
        model.zero_grad()
        logits = model(signal)
        weights = torch.linspace(0.5, 2, logits.numel(), dtype=logits.dtype).view_as(logits)
        (logits.sin() * weights).sum().backward()
        return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}

    return compute


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Callable[..., tuple[EEGNet, EEGNet]]:
    """Return a plain EEGNet and its equal in FORM of the module, parameters and statistics odd."""

    def make(
        shape: InputShape,
        network: type[EEGNet] = EEGNet,
        dtype: torch.dtype = torch.float64,
        **settings: Any,
    ) -> tuple[EEGNet, EEGNet]:
        plain = network(shape, form="plain", **settings).to(dtype)
        for norm in plain.modules():
            if isinstance(norm, nn.BatchNorm2d):
                nn.init.uniform_(norm.weight, 0.5, 1.5)
                nn.init.normal_(norm.bias, std=0.3)
                norm.get_buffer("running_mean").normal_(std=0.3)
                norm.get_buffer("running_var").uniform_(0.5, 1.5)
        other = network(shape, form=request.module.FORM, **settings).to(dtype)
        other.load_state_dict(plain.state_dict())
        return plain, other

    return make
