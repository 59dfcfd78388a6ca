"""Look for what makes trials useless without being a fault of a file: units, channels, balance."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from afor.bench.data.montage import is_eeg_name
from afor.bench.data.recording import PLAUSIBLE_SD_UV

NEARLY_FLAT = 0.02  # of the median channel's standard deviation
SAME_CORRELATION = 0.9999
MAX_TRIALS_COMPARED = 50
MIN_CLASS_SHARE = 0.25  # of the largest class


def channel_spread(trials: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return each channel's standard deviation within a trial, the median over trials."""
    spread: NDArray[np.float64] = np.median(trials.std(axis=2, dtype=np.float64), axis=0)
    return spread


def signal_warnings(
    trials: NDArray[np.float32], channel_names: Sequence[str], spread: NDArray[np.float64]
) -> list[str]:
    """Return what is odd about the trials of one subject; `spread` is from `channel_spread`."""
    warnings = []
    typical = float(np.median(spread))
    low, high = PLAUSIBLE_SD_UV
    if 0 < typical < low:
        warnings.append(
            f"typical amplitude {typical:.2g} µV: volts or millivolts seem to be read as "
            "microvolts; the option unit of a folder says what .npz files hold"
        )
    elif typical > high:
        warnings.append(
            f"typical amplitude {typical:.2g} µV: microvolts seem to be read as volts, or these "
            "are raw counts of the amplifier"
        )
    flat = [n for n, s in zip(channel_names, spread, strict=True) if s < NEARLY_FLAT * typical]
    if flat:
        warnings.append(f"nearly flat: {', '.join(flat)}")
    if pairs := _same_channels(trials, channel_names, spread):
        warnings.append(f"duplicate channels: {', '.join(pairs)}")
    return warnings


def balance_warning(class_names: Sequence[str], counts: Sequence[int]) -> str:
    """Return a warning for a subject whose classes are far from balanced, or an empty text.

    >>> balance_warning(["rest", "move"], [40, 8])
    'unbalanced: move has 8 trials, rest 40'
    """
    smallest, largest = min(counts), max(counts)
    if smallest >= MIN_CLASS_SHARE * largest or smallest == 0:  # a missing class is said elsewhere
        return ""
    few, many = (class_names[list(counts).index(count)] for count in (smallest, largest))
    return f"unbalanced: {few} has {smallest} trials, {many} {largest}"


def names_warning(channel_names: Sequence[str]) -> str:
    """Return a warning for channels that are not EEG by their names, or an empty text.

    >>> names_warning(["C3", "ECG ECG"])
    'not EEG by name: ECG ECG; leave them out with the option channels'
    """
    others = ", ".join(name for name in channel_names if not is_eeg_name(name))
    return f"not EEG by name: {others}; leave them out with the option channels" if others else ""


def _same_channels(
    trials: NDArray[np.float32], channel_names: Sequence[str], spread: NDArray[np.float64]
) -> list[str]:
    """Return pairs "A = B" of channels that are copies of each other, up to scale and sign."""
    rows = np.flatnonzero(spread > 0)
    signal = trials[:MAX_TRIALS_COMPARED, rows].astype(np.float64)
    signal -= signal.mean(axis=2, keepdims=True)
    flat = signal.transpose(1, 0, 2).reshape(len(rows), -1)
    norms = np.linalg.norm(flat, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.abs(flat @ flat.T / np.outer(norms, norms))
    firsts, seconds = np.nonzero(np.triu(correlation > SAME_CORRELATION, k=1))
    return [
        f"{channel_names[rows[first]]} = {channel_names[rows[second]]}"
        for first, second in zip(firsts, seconds, strict=True)
    ]
