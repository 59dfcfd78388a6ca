"""The preprocessing of the paper: baseline, filter, trials, windows.

Each step is one pure function on arrays whose last axis is time (Sec. IV-A of the paper).
"""

from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError, DataError

BUTTERWORTH_ORDER = 5  # Sec. IV-A: "a fifth-order Butterworth bandpass filter"
PAPER_BAND_HZ = (0.3, 50.0)  # Sec. IV-A: "(0.3-50 Hz)", DEAP and BCI IV 2a

BaselineMode = Literal["template", "mean", "none"]
Array = NDArray[np.floating]
Band = tuple[float, float]  # the pass band of a filter, in hertz


def subtract_baseline(
    trials: Array, baseline_samples: int, chunk_samples: int, mode: BaselineMode = "template"
) -> Array:
    """Subtract the baseline at the beginning of each trial and return the remaining samples.

    ``"template"`` averages the chunks of the baseline and subtracts the average from every chunk of
    the trial; ``"mean"`` subtracts the mean of each channel's baseline; ``"none"`` only drops it.

    >>> trials = np.concatenate([np.full((1, 1, 4), 2.0), np.full((1, 1, 4), 5.0)], axis=-1)
    >>> subtract_baseline(trials, baseline_samples=4, chunk_samples=2).tolist()
    [[[3.0, 3.0, 3.0, 3.0]]]
    """
    baseline, signal = trials[..., :baseline_samples], trials[..., baseline_samples:]
    if mode == "none":
        return signal
    if mode == "mean":
        centred: Array = signal - baseline.mean(axis=-1, keepdims=True)
        return centred
    if baseline_samples % chunk_samples or signal.shape[-1] % chunk_samples:
        raise ConfigError(
            f"A baseline of {baseline_samples} samples and a trial of {signal.shape[-1]} cannot be "
            f"cut into whole chunks of {chunk_samples}; use baseline = 'mean'."
        )
    # Paper: "a 3 s pre-trial baseline is subtracted from each trial"; how 3 s are subtracted from
    # 60 s is not stated. Here: the mean of its three 1-s chunks is subtracted from every second,
    # because that is the usual reading of this step for DEAP.
    template = baseline.reshape(*baseline.shape[:-1], -1, chunk_samples).mean(axis=-2)
    repeats = signal.shape[-1] // chunk_samples
    corrected: Array = signal - np.tile(template, (1,) * (signal.ndim - 1) + (repeats,))
    return corrected


def bandpass_sos(rate_hz: float, band: Band, order: int = BUTTERWORTH_ORDER) -> NDArray[np.float64]:
    """Return the second-order sections of a Butterworth band pass."""
    from scipy.signal import butter

    low_hz, high_hz = band
    if not 0 < low_hz < high_hz < rate_hz / 2:
        raise ConfigError(
            f"A band of {low_hz:g} to {high_hz:g} Hz does not fit a rate of {rate_hz:g} "
            f"Hz: needed is 0 < low < high < {rate_hz / 2:g}."
        )
    sos: NDArray[np.float64] = butter(order, band, btype="bandpass", fs=rate_hz, output="sos")
    return sos


def filter_signal(signal: Array, rate_hz: float, band: Band | Literal["none"]) -> Array:
    """Filter the last axis forward and backward (zero phase); "none" returns the signal itself."""
    if band == "none":
        return signal
    from scipy.signal import sosfiltfilt

    # Paper: "a fifth-order Butterworth bandpass filter"; causal or not is not stated. Here: zero
    # phase, so that the signal is not delayed, and second-order sections, because the (b, a) form
    # loses ten of sixteen digits for a band that starts at 0.3 Hz.
    try:
        filtered: Array = sosfiltfilt(bandpass_sos(rate_hz, band), signal, axis=-1)
    except ValueError as error:
        raise DataError(
            f"A signal of {signal.shape[-1]} samples is too short for the filter ({error})."
        ) from None
    return filtered


def cut_trials(
    signal: Array, onsets: NDArray[np.integer[Any]], first: int, samples: int
) -> NDArray[np.floating]:
    """Cut (channels, time) into (trials, channels, samples), starting at ``onset + first``."""
    starts = np.asarray(onsets) + first
    inside = (starts >= 0) & (starts + samples <= signal.shape[-1])
    if not inside.all():
        outside = int(np.flatnonzero(~inside)[0])
        start = starts[outside]
        raise DataError(
            f"Trial {outside} would span samples {start} to {start + samples}, but the signal "
            f"has {signal.shape[-1]}: the recording is cut short or the event is wrong."
        )
    return np.stack([signal[:, start : start + samples] for start in starts])


def cut_epochs(signal: Array, samples: int) -> Array:
    """Cut (channels, time) into (trials, channels, samples), one after another from the start."""
    count = signal.shape[-1] // samples
    return signal[:, : count * samples].reshape(len(signal), count, samples).transpose(1, 0, 2)


def resample(signal: Array, rate_hz: float, target_hz: float) -> Array:
    """Resample the last axis by a rational factor with an anti-alias filter."""
    if rate_hz == target_hz:
        return signal
    from scipy.signal import resample_poly

    ratio = Fraction(target_hz / rate_hz).limit_denominator(1000)
    resampled: Array = resample_poly(signal, ratio.numerator, ratio.denominator, axis=-1)
    return resampled


def window_starts(trial_samples: int, window_samples: int, stride_samples: int) -> list[int]:
    """Return the first sample of each whole window of a trial.

    >>> window_starts(750, 250, 125)  # BCI IV 2a
    [0, 125, 250, 375, 500]
    """
    if window_samples < 1 or stride_samples < 1:
        raise ConfigError(
            f"window_samples = {window_samples} and stride_samples = {stride_samples}: both must "
            "be at least 1."
        )
    if window_samples > trial_samples:
        raise ConfigError(
            f"window_samples = {window_samples} is longer than the trials, which have "
            f"{trial_samples} samples."
        )
    return list(range(0, trial_samples - window_samples + 1, stride_samples))
