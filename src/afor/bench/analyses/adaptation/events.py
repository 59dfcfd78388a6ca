"""Average a series around events (given steps), with intervals over events."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from afor.bench.common.errors import ConfigError

FloatArray = NDArray[np.float64]
LEVEL = 0.95
FLOOR = 1e-3  # smallest value before a logarithm, as a share of its window's mean


@dataclass(frozen=True)
class Response:
    """The mean over events: per step of the window, and over the judged steps after the event."""

    offsets: NDArray[np.int64]  # steps from the event; 0 is the first step after the change
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    by_event: FloatArray  # (events,): the mean over the judged steps
    size: float  # mean of `by_event`
    interval: tuple[float, float]  # of `size`, 95 %

    @property
    def peak(self) -> float:
        """Return the value of the mean curve after the event that is farthest from 0."""
        after = self.mean[self.offsets >= 0]
        return float(after[np.abs(after).argmax()])


def event_windows(
    series: FloatArray, events: Sequence[int], before: int, after: int, *, relative: bool = False
) -> FloatArray:
    """Cut windows around events and subtract the mean before the event from each.

    Args:
        series: Values, (steps, tensors).
        events: For each event, the position of the first step that follows it.
        before: Steps of a window before the event.
        after: Steps of a window from the event on.
        relative: Return the logarithm of the ratio to the geometric mean before the event; 0 for a
            tensor that is zero throughout.

    Returns:
        The windows, (events, before + after, tensors), without those that leave the series.
    """
    complete = [event for event in events if event - before >= 0 and event + after <= len(series)]
    if not complete or before < 1 or after < 1:
        raise ConfigError(
            f"No event has {before} steps before and {after} steps after it in a training of "
            f"{len(series)} steps. Train longer, or make the window or the blocks shorter."
        )
    windows = np.stack([series[event - before : event + after] for event in complete])
    if relative:
        # Ratios to a noisy level exceed 1 on average even if nothing happens; logarithms are 0.
        level = windows.mean(axis=1, keepdims=True)
        windows = np.log(np.where(level > 0, np.maximum(windows, FLOOR * level), 1.0))
    change: FloatArray = windows - windows[:, :before].mean(axis=1, keepdims=True)
    return change


def respond(windows: FloatArray, before: int, judged: int) -> Response:
    """Average windows of `event_windows` over tensors and events.

    The size of the response is its mean over the `judged` steps from the event on.

    >>> steps = np.array([0.0, 0.0, 2.0, 1.0])[None, :, None]
    >>> respond(np.concatenate([steps, steps]), before=2, judged=2).size
    1.5
    """
    curves = windows.mean(axis=2)
    by_event = curves[:, before : before + judged].mean(axis=1)
    mean, low, high = mean_interval(curves)
    size, least, most = mean_interval(by_event[:, None])
    return Response(
        np.arange(-before, windows.shape[1] - before),
        mean,
        low,
        high,
        by_event,
        float(size[0]),
        (float(least[0]), float(most[0])),
    )


def mean_interval(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the mean over the first axis and its 95 % t interval; infinite for a single value."""
    n, mean = len(values), values.mean(axis=0)
    if n < 2:
        return mean, np.full_like(mean, -math.inf), np.full_like(mean, math.inf)
    half = stdtrit(n - 1, (1 + LEVEL) / 2) * values.std(axis=0, ddof=1) / math.sqrt(n)
    return mean, mean - half, mean + half
