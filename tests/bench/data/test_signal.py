import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.data.signal import (
    bandpass_sos,
    cut_trials,
    filter_signal,
    resample,
    subtract_baseline,
    window_starts,
)


def test_template_baseline_equals_an_explicit_loop_over_seconds():
    trials = np.random.default_rng(0).normal(size=(3, 2, 384 + 60 * 128))
    ours = subtract_baseline(trials, 384, 128, "template")
    for trial in range(3):
        for channel in range(2):
            row = trials[trial, channel]
            template = (row[0:128] + row[128:256] + row[256:384]) / 3
            for second in range(60):
                begin = 384 + 128 * second
                expected = row[begin : begin + 128] - template
                got = ours[trial, channel, 128 * second : 128 * (second + 1)]
                np.testing.assert_allclose(got, expected, atol=1e-12)


def test_mean_baseline_takes_each_channels_mean_and_none_only_drops_it():
    trials = np.random.default_rng(1).normal(size=(2, 3, 20))
    np.testing.assert_allclose(
        subtract_baseline(trials, 5, 5, "mean")[1, 2], trials[1, 2, 5:] - trials[1, 2, :5].mean()
    )
    np.testing.assert_array_equal(subtract_baseline(trials, 5, 5, "none"), trials[..., 5:])


def test_a_baseline_that_is_no_whole_number_of_chunks_is_refused():
    with pytest.raises(ConfigError, match="whole chunks of 128"):
        subtract_baseline(np.zeros((1, 1, 500)), 200, 128)


@pytest.mark.parametrize("rate_hz", [128.0, 160.0, 250.0])
def test_the_filter_has_the_squared_butterworth_gain_of_order_five(rate_hz):
    """Compare with the analogue Butterworth formula after pre-warping, not with scipy's design."""
    low, high = 0.3, 50.0

    def warp(hz):
        return 2 * rate_hz * np.tan(np.pi * np.asarray(hz) / rate_hz)

    samples = int(rate_hz * 120)
    impulse = np.zeros((1, samples))
    impulse[0, samples // 2] = 1.0
    response = np.abs(np.fft.rfft(filter_signal(impulse, rate_hz, (low, high))[0]))
    hz = np.fft.rfftfreq(samples, 1 / rate_hz)[1:-1]
    w, centre2, width = warp(hz), warp(low) * warp(high), warp(high) - warp(low)
    gain = 1 / (1 + ((w**2 - centre2) / (width * w)) ** 10)  # |H|² : forward and backward
    np.testing.assert_allclose(response[1:-1], gain, atol=2e-3)


def test_the_filter_moves_nothing_in_time():
    impulse = np.zeros((1, 10_001))
    impulse[0, 5000] = 1.0
    response = filter_signal(impulse, 250.0, (0.3, 50.0))[0]
    assert response.argmax() == 5000
    np.testing.assert_allclose(response, response[::-1], atol=1e-6)


def test_second_order_sections_have_all_poles_inside_the_unit_circle():
    for section in bandpass_sos(250.0, (0.3, 50.0)):
        assert np.abs(np.roots(section[3:])).max() < 1


def test_no_band_returns_the_signal_itself():
    signal = np.ones((2, 10))
    assert filter_signal(signal, 128.0, "none") is signal


@pytest.mark.parametrize("band", [(0.0, 50.0), (50.0, 0.3), (1.0, 64.0)])
def test_a_band_outside_the_rate_is_refused(band):
    with pytest.raises(ConfigError, match="0 < low < high < 64"):
        filter_signal(np.zeros((1, 1000)), 128.0, band)


def test_a_signal_shorter_than_the_filters_padding_is_refused():
    with pytest.raises(DataError, match="too short"):
        filter_signal(np.zeros((1, 33)), 128.0, (0.3, 50.0))
    filter_signal(np.zeros((1, 34)), 128.0, (0.3, 50.0))


def test_cutting_takes_the_samples_from_onset_plus_first():
    signal = np.arange(40.0).reshape(2, 20)
    cut = cut_trials(signal, np.array([2, 10]), first=1, samples=3)
    assert cut.tolist() == [[[3, 4, 5], [23, 24, 25]], [[11, 12, 13], [31, 32, 33]]]


@pytest.mark.parametrize("onset", [-2, 18])
def test_a_trial_outside_the_signal_is_refused(onset):
    with pytest.raises(DataError, match="Trial 0 would span"):
        cut_trials(np.zeros((2, 20)), np.array([onset]), first=1, samples=3)


def test_resampling_keeps_a_sine_and_its_frequency():
    signal = np.sin(2 * np.pi * 7 * np.arange(2560) / 256)[None]
    ours = resample(signal, 256.0, 200.0)
    expected = np.sin(2 * np.pi * 7 * np.arange(2000) / 200)
    assert ours.shape == (1, 2000)
    np.testing.assert_allclose(ours[0, 100:-100], expected[100:-100], atol=1e-2)


@pytest.mark.parametrize(
    ("trial", "window", "stride", "count"),
    [(7680, 128, 128, 60), (750, 250, 125, 5), (6000, 600, 300, 19)],
    ids=["DEAP", "BCI IV 2a", "ISRUC"],
)
def test_the_papers_settings_give_the_papers_number_of_windows(trial, window, stride, count):
    assert len(window_starts(trial, window, stride)) == count


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 300))
def test_windows_stay_inside_the_trial_and_no_further_one_fits(trial, window, stride):
    if window > trial:
        with pytest.raises(ConfigError, match="longer than the trials"):
            window_starts(trial, window, stride)
        return
    starts = window_starts(trial, window, stride)
    assert starts[0] == 0
    assert all(b - a == stride for a, b in itertools.pairwise(starts))
    assert starts[-1] + window <= trial < starts[-1] + stride + window
