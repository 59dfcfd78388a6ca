"""Electrode tokens from raw samples: the log power of a learned filter bank."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from afor.bench.models.input_shape import InputShape
from afor.bench.models.layers.precision import at_least_float32, without_autocast
from afor.bench.models.layers.spatial_first import update_running
from afor.bench.models.layers.toeplitz import same_padding
from afor.bench.models.settings import Form

_POWER_FLOOR = 1e-6  # of batch-normalised maps, whose power is about one


class LogPowerTokens(nn.Module):
    """Map a signal (batch, channels, samples) to (batch, channels, 8).

    Temporal filters of a quarter second shared by all electrodes, batch norm, mean square over the
    window, logarithm. ``form="plain"`` computes just that; ``"fast"`` computes the same from the
    autocorrelation of each window, without filtering the signal.
    """

    FEATURES = 8

    def __init__(self, shape: InputShape, *, form: Form = "fast") -> None:
        super().__init__()
        kernel = max(1, round(shape.rate_hz / 4))
        shape.require("HSLT with tokenizer conv", samples=kernel)
        self.form = form
        self.filters = nn.Conv1d(1, self.FEATURES, kernel, bias=False)
        self.norm = nn.BatchNorm1d(self.FEATURES)

    def forward(self, signal: Tensor) -> Tensor:
        """Return the log power of every filter at every electrode."""
        batch, channels, samples = signal.shape
        rows = signal.reshape(batch * channels, samples)
        # A replaced norm (such as one synchronised across ranks) has other statistics.
        fast = self.form == "fast" and type(self.norm) is nn.BatchNorm1d
        power = self._power_fast(rows) if fast else self._power_plain(rows)
        tokens = torch.log(power.clamp(min=_POWER_FLOOR))
        return tokens.view(batch, channels, self.FEATURES)

    def _power_plain(self, rows: Tensor) -> Tensor:
        padded = F.pad(rows.unsqueeze(1), same_padding(self.filters.kernel_size[0]))
        maps: Tensor = self.norm(self.filters(padded))
        return maps.square().mean(dim=-1)

    def _power_fast(self, rows: Tensor) -> Tensor:
        norm = self.norm
        with without_autocast(rows):
            dtype = at_least_float32(rows.dtype)
            level, spread = filtered_rows(rows.to(dtype), self.filters.weight.squeeze(1).to(dtype))
            if norm.training:
                mean = level.mean(dim=0)
                variance = spread.mean(dim=0) + (level - mean).square().mean(dim=0)
                update_running(norm, mean, variance, rows.numel())
            else:
                mean, variance = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
            scale = norm.weight * torch.rsqrt(variance + norm.eps)
            return scale.square() * spread + (scale * (level - mean) + norm.bias).square()


def filtered_rows(rows: Tensor, filters: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance over time of every row under every filter, each (rows, filters).

    The filters (filters, kernel) act with zero padding as by ``same_padding``. The energy of the
    full filter response is autocorrelation of the row times autocorrelation of the filter; what
    lies outside the window, at most kernel − 1 samples, is computed and taken off.
    """
    samples, kernel = rows.shape[1], filters.shape[1]
    left, right = same_padding(kernel)
    offset = rows.mean(dim=1, keepdim=True)
    rows = rows - offset  # an offset meets only the box below, so float32 does not cancel
    # Response of every filter to a box as long as the window, and its mirror image, which is
    # what each sample adds to the sum of the outputs.
    box_in = F.pad(rows.new_ones(1, 1, samples), (left, right))
    box = F.conv1d(box_in, filters.unsqueeze(1))[0]  # (filters, samples)
    ripple = box - box.mean(dim=1, keepdim=True)
    backwards = filters.flip(1).unsqueeze(1)
    share = F.conv1d(F.pad(rows.new_ones(1, 1, samples), (right, left)), backwards)[0]
    meets_ripple = F.conv1d(
        F.pad(ripple.unsqueeze(0), (right, left)), backwards, groups=filters.shape[0]
    )[0]
    sums = rows @ torch.cat([share, meets_ripple]).t() / samples
    row_mean, row_ripple = sums.chunk(2, dim=1)

    weights = _autocorrelation(filters, kernel)
    weights = torch.cat([weights[:, :1], 2 * weights[:, 1:]], dim=1)  # lags of either sign
    energy = _autocorrelation(rows, kernel) @ weights.t()
    if right:
        energy = energy - _energy(rows[:, :right], filters[:, left + 1 :])
    if left:
        energy = energy - _energy(rows[:, samples - left :].flip(1), filters[:, :left].flip(1))
    variance = (
        energy / samples
        - row_mean.square()
        + 2 * offset * row_ripple
        + offset.square() * ripple.square().mean(dim=1)
    )
    return row_mean + offset * box.mean(dim=1), variance.clamp(min=0)


def _autocorrelation(rows: Tensor, lags: int) -> Tensor:
    """Return Σ_s x[s]·x[s + d] of every row for the lags d = 0 … lags − 1."""
    length = rows.shape[1] + lags
    length += length % 2
    spectrum = torch.fft.rfft(rows, n=length)
    power = spectrum.real.square() + spectrum.imag.square()
    lagged: Tensor = torch.fft.irfft(torch.complex(power, torch.zeros_like(power)), n=length)
    return lagged[:, :lags]


def _energy(edge: Tensor, taps: Tensor) -> Tensor:
    """Return the energy of the outputs at the edge of a row, where ``taps`` overlap it partly.

    Output r is Σ_s edge[s]·taps[s + r], for as many outputs as there are samples.
    """
    count, size = taps.shape
    padded = F.pad(taps, (0, size))
    sample = torch.arange(size, device=taps.device)
    hankel = padded[:, sample[:, None] + sample]  # (filters, sample, output)
    outputs = edge @ hankel.permute(1, 0, 2).reshape(size, count * size)
    return outputs.view(-1, count, size).square().sum(dim=2)
