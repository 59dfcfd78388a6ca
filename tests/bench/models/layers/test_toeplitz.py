import pytest
import torch
from torch.nn import functional as F

from afor.bench.models.layers.toeplitz import same_filter, same_padding

SHAPES = [(1, 1), (2, 2), (20, 20), (37, 6), (37, 7), (96, 32), (145, 16), (250, 125), (600, 100)]


def _grouped_conv(maps, filters):
    filters = filters.repeat_interleave(maps.shape[0] // filters.shape[0], dim=0)
    padded = F.pad(maps.transpose(0, 1), same_padding(filters.shape[1]))
    return F.conv1d(padded, filters[:, None], groups=maps.shape[0]).transpose(0, 1)


def test_the_longer_padding_is_on_the_right():
    assert same_padding(64) == (31, 32)
    assert same_padding(125) == (62, 62)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize(("samples", "kernel"), SHAPES)
def test_the_filter_is_a_grouped_convolution_forward_and_backward(samples, kernel, depth):
    maps = torch.randn(4 * depth, 3, samples, dtype=torch.float64, requires_grad=True)
    filters = torch.randn(4, kernel, dtype=torch.float64, requires_grad=True)
    ours, theirs = same_filter(maps, filters), _grouped_conv(maps, filters)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(ours)
    expected = torch.autograd.grad(theirs, (maps, filters), weights)
    for got, want in zip(
        torch.autograd.grad(ours, (maps, filters), weights), expected, strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-11)


def test_maps_may_be_views_of_a_batch_first_tensor():
    signal = torch.randn(5, 4, 50, dtype=torch.float64)
    filters = torch.randn(4, 9, dtype=torch.float64)
    expected = same_filter(signal.transpose(0, 1).contiguous(), filters)
    torch.testing.assert_close(same_filter(signal.transpose(0, 1), filters), expected)


@pytest.mark.parametrize(("samples", "kernel"), [(9, 4), (150, 3)])
def test_second_derivatives_are_right(samples, kernel):
    maps = torch.randn(2, 1, samples, dtype=torch.float64, requires_grad=True)
    filters = torch.randn(1, kernel, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(same_filter, (maps, filters), fast_mode=True)
    assert torch.autograd.gradgradcheck(same_filter, (maps, filters), fast_mode=True)


def test_functional_gradients_work():
    maps, filters = torch.randn(2, 3, 40), torch.randn(2, 5)

    def loss(filters):
        return same_filter(maps, filters).square().sum()

    filters.requires_grad_()
    (expected,) = torch.autograd.grad(loss(filters), filters)
    torch.testing.assert_close(torch.func.grad(loss)(filters.detach()), expected)


def test_autocast_sets_the_precision_of_the_product():
    maps, filters = torch.randn(2, 3, 40), torch.randn(2, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        filtered = same_filter(maps, filters)
    assert filtered.dtype == torch.bfloat16
    torch.testing.assert_close(filtered.float(), same_filter(maps, filters), rtol=0.05, atol=0.1)
