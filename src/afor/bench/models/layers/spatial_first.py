"""EEGNet's first block with the spatial mixing first: the same result for a fraction of the work.

The block is a temporal convolution on every channel, a batch norm and a depthwise spatial
convolution. Nothing in it is nonlinear in the signal, so the channels can be mixed first, and what
batch norm needs to know about the filtered channels follows from second moments of the raw
signal. Derivation: docs/explanation/backbones/eegnet.md.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from afor.bench.models.layers.precision import at_least_float32, without_autocast
from afor.bench.models.layers.toeplitz import same_filter, same_padding

# Samples per slab of the second-moment product: small slabs skip lags beyond the kernel.
_SLAB = 64


def spatial_first_block(
    signal: Tensor,
    temporal: Tensor,
    norm: nn.BatchNorm2d,
    affine: tuple[Tensor, Tensor],
    spatial: Tensor,
) -> Tensor:
    """Return temporal filter → batch norm → depthwise spatial filter as (maps, batch, time).

    ``signal`` is (batch, channels, time), ``temporal`` (filters, kernel) and ``spatial``
    (maps, channels), where filter f feeds maps f·D … f·D + D − 1. ``affine`` is scale and shift of
    ``norm``, whose running statistics are updated in training mode as its own forward would.
    """
    depth = spatial.shape[0] // temporal.shape[0]
    # Statistics of thousands of products: never in half precision, whatever autocast says.
    with without_autocast(signal):
        statistics_dtype = at_least_float32(signal.dtype)
        filters = temporal.to(statistics_dtype)
        if norm.training:
            mean, variance = filtered_moments(signal.to(statistics_dtype), filters)
            update_running(norm, mean, variance, signal.numel())
        else:
            mean, variance = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
        scale = affine[0] * torch.rsqrt(variance + norm.eps)
        shift = affine[1] - scale * mean
        filters = filters * scale[:, None]
        shift = shift.repeat_interleave(depth) * spatial.sum(dim=1)
    # z = W·x: D·F1 virtual channels instead of F1·C maps
    virtual = torch.bmm(spatial.expand(signal.shape[0], -1, -1), signal)
    return same_filter(virtual.transpose(0, 1), filters) + shift.to(virtual.dtype)[:, None, None]


def filtered_moments(signal: Tensor, filters: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of every filter's output over batch, channels and time.

    The output itself is never computed. Gradients flow to ``filters``, and to ``signal`` if it
    requires them.
    """
    windows, second_moments, overall, level_square = _signal_moments(signal, filters.shape[-1])
    # Responses of every filter to the mean window, the level-weighted mean window and the box.
    responses = windows @ filters.t()
    centred_mean, levelled_mean, box_mean = means = responses.mean(dim=1)
    # Products with what the box lacks to be flat: none of them is a difference of large numbers.
    centred = responses - means.unsqueeze(1)
    ripple = (centred * centred[2]).mean(dim=1)  # (3, filters)
    variance = (
        ((filters @ second_moments) * filters).sum(dim=1) / signal.numel()
        - centred_mean.square()
        + _ripple_share(overall, level_square) @ ripple
        + box_mean * (2 * levelled_mean + level_square * box_mean)
    )
    return centred_mean + overall * box_mean, variance.clamp(min=0)


def _signal_moments(signal: Tensor, kernel: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what the statistics of any filter's output need to know of the signal.

    That is the windows (3, samples, kernel) of the mean window, the level-weighted mean window and
    the box, the second moments, the overall mean, and the mean square of the levels.
    """
    batch, channels, samples = signal.shape
    rows = signal.reshape(batch * channels, samples)
    # Second moments of data with an offset cancel in float32: split x into a window's own mean and
    # the rest. The mean meets only the zero-padded box, whose response is known exactly.
    level = rows.mean(dim=1)
    overall = level.mean()
    level = level - overall
    rows = rows - (level + overall)[:, None]
    weights = torch.stack([torch.ones_like(level), level]) / level.numel()
    profiles = torch.cat([weights @ rows, rows.new_ones(1, samples)])
    windows = F.pad(profiles, same_padding(kernel)).unfold(1, kernel, 1)
    return windows, padded_second_moments(rows, kernel), overall, level.square().mean()


def _ripple_share(overall: Tensor, level_square: Tensor) -> Tensor:
    two = torch.full_like(overall, 2)
    return torch.stack([2 * overall, two, level_square + overall.square()])


def padded_second_moments(rows: Tensor, kernel: int) -> Tensor:
    """Return G with G[i, j] = Σ_t x[t+i]·x[t+j], summed over rows, for x zero-padded to "same".

    ``rows`` is (rows, samples) with samples ≥ kernel. Every G[i, j] is the autocorrelation at lag
    |i − j| minus the few products that the shifts push out at either end of the window.
    """
    samples = rows.shape[1]
    lags = _autocorrelation(rows, kernel)
    both_sides = torch.cat([lags.flip(0), lags[1:]])  # lag −(K−1) … K−1
    # Row i starts at lag −i: the same shift by one element as for Toeplitz rows.
    repeated = F.pad(both_sides, (0, 1)).repeat(kernel)[kernel - 1 :]
    repeated = repeated[: kernel * (2 * kernel - 1)]
    toeplitz = repeated.view(kernel, 2 * kernel - 1)[:, :kernel]
    left, right = same_padding(kernel)
    if right == 0:
        return toeplitz
    start, end = rows[:, :right], rows[:, samples - right :]
    lost = _diagonal_sums(torch.stack([start.t() @ start, (end.t() @ end).flip(0, 1)]))
    at_start = F.pad(lost[0], (kernel - right, 0, kernel - right, 0))
    at_end = F.pad(lost[1, :left, :left].flip(0, 1), (0, kernel - left, 0, kernel - left))
    return toeplitz - at_start - at_end


def _autocorrelation(rows: Tensor, lags: int) -> Tensor:
    """Return Σ x[s]·x[s + d] over rows and s for the lags d = 0 … lags − 1."""
    samples = rows.shape[1]
    slab = min(_SLAB, samples)
    width = slab + lags
    flat = rows.new_zeros(slab * (width + 1))
    moments = flat[: slab * width].view(slab, width)
    for start in range(0, samples, slab):
        height = min(slab, samples - start)
        reach = min(width, samples - start)
        block = rows[:, start : start + height]
        moments[:height, :reach].addmm_(block.t(), rows[:, start : start + reach])
    # One element more per row turns diagonals into columns.
    return flat.view(slab, width + 1)[:, :lags].sum(dim=0)


def _diagonal_sums(squares: Tensor) -> Tensor:
    """Replace every entry by the sum of its diagonal from the upper left edge down to it."""
    count, size, _ = squares.shape
    padded = F.pad(squares, (0, size)).reshape(count, 2 * size * size)
    skewed = F.pad(padded, (0, size)).view(count, size, 2 * size + 1)
    summed = skewed.cumsum(dim=1).reshape(count, -1)[:, : 2 * size * size]
    return summed.view(count, size, 2 * size)[:, :, :size]


def update_running(
    norm: nn.BatchNorm1d | nn.BatchNorm2d, mean: Tensor, variance: Tensor, count: int
) -> None:
    """Move the running statistics as batch norm does: with the unbiased variance."""
    running_mean, running_var = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
    with torch.no_grad():
        batches = norm.get_buffer("num_batches_tracked").add_(1)
        # Without a momentum, batch norm averages over all batches so far.
        step = 1 / batches.to(running_mean.dtype) if norm.momentum is None else norm.momentum
        unbiased = variance * (count / max(count - 1, 1))
        running_mean.add_((mean.to(running_mean.dtype) - running_mean) * step)
        running_var.add_((unbiased.to(running_var.dtype) - running_var) * step)
