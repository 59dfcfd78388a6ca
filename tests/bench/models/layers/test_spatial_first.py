import pytest
import torch
from torch import nn
from torch.nn import functional as F

from afor.bench.models.layers.spatial_first import (
    filtered_moments,
    padded_second_moments,
    spatial_first_block,
    update_running,
)
from afor.bench.models.layers.toeplitz import same_padding

SHAPES = [(9, 1), (9, 2), (20, 20), (37, 6), (37, 7), (128, 64), (250, 125), (600, 100), (333, 33)]


def _filtered(signal, filters):
    rows = signal.reshape(-1, 1, signal.shape[-1])
    return F.conv1d(F.pad(rows, same_padding(filters.shape[1])), filters[:, None])


def _moments(signal, filters):
    outputs = _filtered(signal, filters)
    return outputs.mean((0, 2)), outputs.var((0, 2), unbiased=False)


@pytest.mark.parametrize(("samples", "kernel"), SHAPES)
def test_second_moments_are_those_of_the_padded_shifts(samples, kernel):
    rows = torch.randn(5, samples, dtype=torch.float64)
    shifts = F.pad(rows, same_padding(kernel)).unfold(1, samples, 1)  # (rows, kernel, samples)
    expected = torch.einsum("rit,rjt->ij", shifts, shifts)
    torch.testing.assert_close(padded_second_moments(rows, kernel), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("offset", [0.0, 50.0])
@pytest.mark.parametrize(("samples", "kernel"), SHAPES)
def test_moments_and_their_gradient_equal_those_of_the_filtered_signal(samples, kernel, offset):
    signal = torch.randn(3, 4, samples, dtype=torch.float64) + offset
    filters = torch.randn(8, kernel, dtype=torch.float64, requires_grad=True)
    mean, variance = filtered_moments(signal, filters)
    plain_mean, plain_variance = _moments(signal, filters)
    torch.testing.assert_close(mean, plain_mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(variance, plain_variance, rtol=1e-12, atol=1e-12)
    (ours,) = torch.autograd.grad((mean / (variance + 1)).sum(), filters)
    (plain,) = torch.autograd.grad((plain_mean / (plain_variance + 1)).sum(), filters)
    torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-9 * float(plain.abs().max()))


@pytest.mark.parametrize("spread", ["common", "channel", "window"])
@pytest.mark.parametrize("kernel", [1, 8, 64])
def test_float32_is_safe_for_data_with_an_offset(spread, kernel):
    signal = torch.randn(8, 4, 128)
    sizes = {"common": (1, 1, 1), "channel": (1, 4, 1), "window": (8, 4, 1)}
    signal = signal + 1000 * (1 + torch.rand(sizes[spread]))
    filters = torch.randn(8, kernel)
    filters = filters - filters.mean(dim=1, keepdim=True) if kernel > 1 else filters
    _, variance = filtered_moments(signal, filters)
    _, exact = _moments(signal.double(), filters.double())
    torch.testing.assert_close(variance.double(), exact, rtol=1e-4, atol=0)


def test_the_gradient_reaches_the_signal_when_it_asks_for_one():
    signal = torch.randn(2, 3, 70, dtype=torch.float64, requires_grad=True)
    filters = torch.randn(4, 9, dtype=torch.float64)
    ours = torch.autograd.grad(filtered_moments(signal, filters)[1].sin().sum(), signal)
    plain = torch.autograd.grad(_moments(signal, filters)[1].sin().sum(), signal)
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_the_block_is_convolution_norm_and_spatial_filter(training):
    signal = torch.randn(3, 5, 40, dtype=torch.float64)
    temporal, spatial = torch.randn(4, 7).double(), torch.randn(8, 5).double()
    norms = [nn.BatchNorm2d(4, eps=1e-3, momentum=0.01).double() for _ in range(2)]
    for norm in norms:
        nn.init.uniform_(norm.weight, generator=torch.Generator().manual_seed(1))
        nn.init.uniform_(norm.bias, generator=torch.Generator().manual_seed(2))
        norm.running_mean.fill_(0.3)
        norm.train(training)
    padded = F.pad(signal[:, None], same_padding(7))
    maps = norms[0](F.conv2d(padded, temporal[:, None, None]))
    expected = F.conv2d(maps, spatial[:, None, :, None], groups=4)[:, :, 0]
    affine = norms[1].weight, norms[1].bias
    ours = spatial_first_block(signal, temporal, norms[1], affine, spatial).transpose(0, 1)
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)
    for name, value in norms[0].state_dict().items():
        torch.testing.assert_close(norms[1].state_dict()[name], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.3, None])
def test_running_statistics_move_as_in_batch_norm(momentum):
    ours, theirs = (nn.BatchNorm1d(3, momentum=momentum) for _ in range(2))
    for _ in range(3):
        values = 2 * torch.randn(5, 3) + 1
        theirs(values)
        update_running(ours, values.mean(0), values.var(0, unbiased=False), count=5)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)
