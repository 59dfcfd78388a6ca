"""Differential entropy per frequency band, as a layer without parameters."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from afor.bench.common.errors import ConfigError
from afor.bench.models.input_shape import InputShape
from afor.bench.models.layers.precision import at_least_float32, without_autocast

# The five bands of NSAL-DGAT and HSLT: delta, theta, alpha, beta, gamma.
BANDS_HZ: tuple[tuple[float, float], ...] = ((0.5, 4), (4, 8), (8, 14), (14, 30), (30, 50))

# Far below the variance of EEG in volts (about 1e-12): only constant signals are clamped.
_MIN_VARIANCE = 1e-20


class DifferentialEntropy(nn.Module):
    """Map a signal (batch, channels, samples) to (batch, channels, bands).

    A band's entropy is that of a Gaussian with the band's variance, ½·ln(2πe·variance); the
    variance is the power of the Fourier bins with low ≤ f < high.

    >>> layer = DifferentialEntropy(InputShape.unnamed(1, samples=128, rate_hz=128, classes=2))
    >>> tone = (2 * math.pi * 10 * torch.arange(128) / 128).sin()  # 10 Hz, variance ½
    >>> alpha = layer(tone[None, None])[0, 0, 2].item()
    >>> math.isclose(alpha, 0.5 * math.log(2 * math.pi * math.e * 0.5), rel_tol=1e-5)
    True
    """

    weights: Tensor

    def __init__(
        self, shape: InputShape, bands_hz: Sequence[tuple[float, float]] = BANDS_HZ
    ) -> None:
        super().__init__()
        resolution_hz = shape.rate_hz / shape.samples
        frequencies = [index * resolution_hz for index in range(shape.samples // 2 + 1)]
        bands = []
        for low_hz, high_hz in bands_hz:
            if not 0 <= low_hz < high_hz:
                raise ConfigError(
                    f"The band {low_hz:g}–{high_hz:g} Hz is empty: bands_hz needs pairs of hertz "
                    f"with 0 <= low < high."
                )
            if high_hz > shape.rate_hz / 2:
                raise ConfigError(
                    f"The band {low_hz:g}–{high_hz:g} Hz needs a sampling rate of at least "
                    f"{2 * high_hz:g} Hz, found {shape.rate_hz:g} Hz. Set bands_hz to bands below "
                    f"{shape.rate_hz / 2:g} Hz."
                )
            in_band = [low_hz <= frequency < high_hz for frequency in frequencies]
            if not any(in_band):
                raise ConfigError(
                    f"The band {low_hz:g}–{high_hz:g} Hz holds no Fourier bin of a window of "
                    f"{shape.samples} samples at {shape.rate_hz:g} Hz: use windows of at least "
                    f"{math.ceil(shape.rate_hz / (high_hz - low_hz))} samples, or wider bands_hz."
                )
            bands.append(in_band)
        weights = torch.tensor(bands, dtype=torch.float32).t() * (2 / shape.samples**2)  # ±f
        # Derived from the settings, so not part of the state dict.
        self.register_buffer("weights", weights, persistent=False)

    def forward(self, signal: Tensor) -> Tensor:
        """Return the entropy in nats; an offset of the signal has no effect."""
        with without_autocast(signal):
            signal = signal.to(at_least_float32(signal.dtype))
            spectrum = torch.fft.rfft(signal - signal.mean(dim=-1, keepdim=True))
            power = spectrum.real.square() + spectrum.imag.square()
            variance = power @ self.weights.to(power.dtype)
            return 0.5 * torch.log(2 * math.pi * math.e * variance.clamp(min=_MIN_VARIANCE))
