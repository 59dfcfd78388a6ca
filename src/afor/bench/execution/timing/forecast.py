"""Forecast the time, disk space and memory of a study before its first run."""

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from afor.bench.data.window_source import ExpectedWindows, WindowSource
from afor.bench.execution.timing.run_times import clock
from afor.bench.execution.timing.step_timing import StepTimer
from afor.bench.store.database import Store
from afor.bench.study.bundling import MAX_BUNDLE
from afor.bench.study.planned_runs import PlannedRun
from afor.bench.training.execute import input_shape, run_settings

Source = WindowSource | ExpectedWindows
# Of a finished run in the store: the head, each epoch, and the trace of AFOR's controller.
HEAD_BYTES, EPOCH_BYTES = 6_000, 200


@dataclass(frozen=True)
class Span:
    """A number of seconds with the range in which it may lie."""

    low: float
    middle: float
    high: float

    def __add__(self, other: "Span") -> "Span":
        return Span(self.low + other.low, self.middle + other.middle, self.high + other.high)


@dataclass(frozen=True)
class Forecast:
    """What a study needs. Times are seconds of one worker, training one run after another."""

    by_condition: Mapping[tuple[str, str, str], Span]  # data set, backbone, optimizer
    epochs_measured: bool  # by finished runs; otherwise they lie between patience and maximum
    prepared_bytes: int  # of the trials in the cache
    results_bytes: int
    worker_bytes: int | None  # peak memory of a worker; None where the system does not tell

    @property
    def total(self) -> Span:
        """Return the time of all runs."""
        return sum(self.by_condition.values(), Span(0.0, 0.0, 0.0))


def forecast(
    runs: Sequence[PlannedRun],
    sources: Mapping[str, Source],
    timer: StepTimer,
    pilot: Store | None = None,
) -> Forecast:
    """Forecast what runs need from the measured time of a few steps.

    The number of epochs that early stopping takes is not known before a run: it is the mean over
    the finished runs of a pilot with the same data set and backbone, or else the geometric mean of
    the least and the largest number.

    Args:
        runs: The runs.
        sources: The windows of each data set, or what is expected of them.
        timer: Measures steps.
        pilot: Store of finished runs.

    Returns:
        The forecast.
    """
    known_epochs = mean_epochs(pilot) if pilot else {}
    companions = Counter(run.companions for run in runs)
    spans: dict[tuple[str, str, str], Span] = {}
    epochs_of_runs = 0.0
    for run in runs:
        epochs = _epochs(run.spec, known_epochs.get((run.dataset, run.backbone)))
        epochs_of_runs += epochs.middle
        together = min(companions[run.companions], MAX_BUNDLE) if run.companions else 1
        span = _run_span(run.spec, sources[run.dataset], timer, epochs, together)
        spans[run.condition] = spans.get(run.condition, Span(0.0, 0.0, 0.0)) + span
    return Forecast(
        by_condition=spans,
        epochs_measured=bool(runs) and all((r.dataset, r.backbone) in known_epochs for r in runs),
        prepared_bytes=sum(_prepared_bytes(source) for source in sources.values()),
        results_bytes=round(len(runs) * HEAD_BYTES + epochs_of_runs * EPOCH_BYTES),
        worker_bytes=_peak_memory(),
    )


def mean_epochs(store: Store) -> dict[tuple[str, str], float]:
    """Return the mean number of epochs of the finished runs, by data set and backbone."""
    epochs: dict[tuple[str, str], list[int]] = defaultdict(list)
    for stored in store.runs():
        finished = store.run(stored.key) if stored.status == "done" else None
        if finished is not None and finished.record is not None:
            epochs[stored.dataset, stored.backbone].append(len(finished.record.history))
    return {condition: float(np.mean(values)) for condition, values in epochs.items()}


def _epochs(spec: Mapping[str, Any], measured: float | None) -> Span:
    settings = run_settings(spec)
    most = settings.max_epochs
    least = min(most, settings.patience + 1)
    if measured is None:
        return Span(least, math.sqrt(least * most), most)
    return Span(least, min(max(measured, 1), most), most)


def _run_span(
    spec: Mapping[str, Any], source: Source, timer: StepTimer, epochs: Span, together: int
) -> Span:
    times = timer.times(spec, input_shape(source), together)
    split, settings = spec["split"], run_settings(spec)
    windows = {side: source.count_windows(split[side]) for side in ("train", "validation", "test")}
    if settings.order == "stream":
        # Each subject once: scored, trained on in so many passes, then the validation subjects.
        counts = [source.count_windows([subject]) for subject in split["train"]]
        steps = settings.passes * sum(math.ceil(n / settings.batch_size) for n in counts)
        scored = sum(counts) - counts[0] + len(counts) * windows["validation"] + windows["test"]
        seconds = steps * times.step_s + scored * times.window_s
        return Span(seconds, seconds, seconds)
    steps = math.ceil(windows["train"] / settings.batch_size)
    epoch_s = steps * times.step_s + windows["validation"] * times.window_s
    test_s = windows["test"] * times.window_s
    return Span(*(count * epoch_s + test_s for count in (epochs.low, epochs.middle, epochs.high)))


def _prepared_bytes(source: Source) -> int:
    if isinstance(source, ExpectedWindows):
        return source.prepared_bytes
    return sum(4 * math.prod(subject.shape) for subject in source.prepared)


def _peak_memory() -> int | None:
    """Return the largest memory of this process so far, which has trained a step of each kind."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def describe_span(span: Span) -> str:
    """Return a time of one core with its range.

    >>> describe_span(Span(3600, 7200, 36000)), describe_span(Span(60, 60, 60))
    ('2 core-hours (1 to 10)', '1 min 00 s')
    >>> describe_span(Span(20, 60, 600))
    '1 min 00 s (20 s to 10 min 00 s)'
    """
    if span.middle < 3600:
        ends = f" ({clock(span.low)} to {clock(span.high)})" if span.low != span.high else ""
        return f"{clock(span.middle)}{ends}"
    low, middle, high = (_hours(seconds) for seconds in (span.low, span.middle, span.high))
    return f"{middle} core-hours" + (f" ({low} to {high})" if low != high else "")


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}".replace(",", " ") if hours >= 100 else f"{hours:.2g}"


def describe_bytes(size: float) -> str:
    """Return a size in GB or MB.

    >>> describe_bytes(1.26e9), describe_bytes(3e5)
    ('1.3 GB', '0.3 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
