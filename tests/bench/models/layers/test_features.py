import math

import pytest
import torch
from scipy.signal import butter, sosfiltfilt

from afor.bench.common.errors import ConfigError
from afor.bench.models.input_shape import InputShape
from afor.bench.models.layers.features import BANDS_HZ, DifferentialEntropy

SECOND = InputShape.unnamed(3, samples=128, rate_hz=128, classes=2)


@pytest.mark.parametrize("band", range(5))
def test_a_tone_has_the_entropy_of_its_variance_in_its_own_band(band):
    low, high = BANDS_HZ[band]
    frequency = math.ceil(low) + 1
    assert frequency < high
    tone = 2 * torch.sin(2 * math.pi * frequency * torch.arange(128) / 128)
    entropy = DifferentialEntropy(SECOND)(tone.expand(1, 3, 128))
    expected = 0.5 * math.log(2 * math.pi * math.e * 2.0)  # variance of amplitude 2 is 2
    torch.testing.assert_close(entropy[0, :, band], torch.full((3,), expected))
    others = [b for b in range(5) if b != band]
    assert (entropy[0, :, others] < expected - 10).all()


def test_band_variance_agrees_with_a_band_pass_filter_on_long_noise():
    shape = InputShape.unnamed(1, samples=25_600, rate_hz=128, classes=2)
    noise = torch.randn(1, 1, shape.samples, dtype=torch.float64)
    entropy = DifferentialEntropy(shape)(noise)[0, 0]
    for band, (low, high) in enumerate(BANDS_HZ):
        sos = butter(5, (low, high), btype="bandpass", fs=128, output="sos")
        variance = float(sosfiltfilt(sos, noise[0, 0].numpy()).var())
        expected = 0.5 * math.log(2 * math.pi * math.e * variance)
        assert float(entropy[band]) == pytest.approx(expected, abs=0.1)


def test_an_offset_and_silence_leave_finite_numbers():
    layer = DifferentialEntropy(SECOND)
    signal = torch.randn(2, 3, 128)
    torch.testing.assert_close(layer(signal + 1e3), layer(signal), rtol=0, atol=1e-2)
    assert torch.isfinite(layer(torch.zeros(2, 3, 128))).all()


def test_volts_and_microvolts_differ_by_a_constant():
    layer = DifferentialEntropy(SECOND)
    signal = torch.randn(2, 3, 128)
    shift = layer(signal * 1e-6) - layer(signal)
    torch.testing.assert_close(shift, torch.full_like(shift, math.log(1e-6)), rtol=1e-5, atol=0)


def test_the_layer_has_no_parameters_and_no_state():
    layer = DifferentialEntropy(SECOND)
    assert list(layer.parameters()) == []
    assert layer.state_dict() == {}


def test_autocast_does_not_lower_its_precision():
    layer, signal = DifferentialEntropy(SECOND), torch.randn(2, 3, 128)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        entropy = layer(signal)
    assert torch.equal(entropy, layer(signal))


def test_a_band_above_the_nyquist_frequency_is_refused():
    slow = InputShape.unnamed(1, samples=640, rate_hz=64, classes=2)
    with pytest.raises(ConfigError, match=r"30–50 Hz needs a sampling rate of at least 100 Hz"):
        DifferentialEntropy(slow)
    assert DifferentialEntropy(slow, [(4, 8), (8, 30)])(torch.randn(1, 1, 640)).shape == (1, 1, 2)


def test_a_window_without_a_bin_in_a_band_is_refused_with_the_minimum():
    short = InputShape.unnamed(1, samples=20, rate_hz=128, classes=2)
    with pytest.raises(ConfigError, match=r"0.5–4 Hz holds no Fourier bin.*at least 37 samples"):
        DifferentialEntropy(short)
    DifferentialEntropy(InputShape.unnamed(1, samples=37, rate_hz=128, classes=2))
