"""Forecast the time, disk space and memory of a study before its first run.

A short training on random windows is timed. Its times are kept in the cache folder, for this
processor and these versions, so a second plan of the same networks takes no time.
"""

import functools
import json
import math
import platform
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from afor import __version__
from afor.bench.common.devices import pick_device
from afor.bench.common.errors import AforError, TrainingError
from afor.bench.common.files import write_atomically
from afor.bench.common.seeding import isolated
from afor.bench.common.text import counted
from afor.bench.data.prepared import open_cache
from afor.bench.data.splits import Split
from afor.bench.data.window_source import ArrayWindows, ExpectedWindows, WindowSource
from afor.bench.execution.run_times import clock
from afor.bench.models.input_shape import InputShape
from afor.bench.study.bundling import MAX_BUNDLE
from afor.bench.study.plan import make_plan
from afor.bench.study.planned_runs import PlannedRun, canonical
from afor.bench.study.schema import Study
from afor.bench.training.execute import cut_for, run_settings
from afor.bench.training.record import RunRecord
from afor.bench.training.run_spec import DEFAULT_TRAINER

if TYPE_CHECKING:
    from torch import nn

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
    prepared_bytes: int  # of the trials in the cache
    results_bytes: int
    worker_bytes: int | None  # peak memory of a worker; None where the system does not tell

    @property
    def total(self) -> Span:
        """Return the time of all runs."""
        return sum(self.by_condition.values(), Span(0.0, 0.0, 0.0))


def forecast(
    runs: Sequence[PlannedRun], sources: Mapping[str, Source], timer: "StepTimer"
) -> Forecast:
    """Forecast what runs need from the measured time of a few steps.

    The number of epochs that early stopping takes is not known before a run: it lies between
    patience and maximum, and the geometric mean of the two is in the middle.
    """
    groups = Counter(run.bundle_key for run in runs)
    spans: dict[tuple[str, str, str], Span] = {}
    epochs_of_runs = 0.0
    for run in runs:
        settings = run_settings(run.spec)
        least, most = min(settings.max_epochs, settings.patience + 1), settings.max_epochs
        epochs = Span(least, math.sqrt(least * most), most)
        epochs_of_runs += epochs.middle
        together = min(groups[run.bundle_key], MAX_BUNDLE) if run.bundle_key else 1
        windows = cut_for(run.spec, sources[run.dataset])
        span = _run_span(run.spec, windows, timer, epochs, together)
        spans[run.condition] = spans.get(run.condition, Span(0.0, 0.0, 0.0)) + span
    return Forecast(
        by_condition=spans,
        prepared_bytes=sum(_prepared_bytes(source) for source in sources.values()),
        results_bytes=round(len(runs) * HEAD_BYTES + epochs_of_runs * EPOCH_BYTES),
        worker_bytes=_peak_memory(),
    )


def describe_search(
    search: Study, sources: Mapping[str, Source], timer: "StepTimer", workers: int = 1
) -> str:
    """Say what a search of learning rates tries, in how many runs, and how long that takes."""
    runs = make_plan(search, sources).runs
    rates = ", ".join(f"{rate:g}" for rate in sorted({run.rate for run in runs}))
    methods = ", ".join(dict.fromkeys(run.entry for run in runs))
    folds = counted(len({run.fold for run in runs}), "fold")
    text = f"{methods} at {rates} on {folds}, {counted(len(runs), 'run')}"
    if search.trainer != DEFAULT_TRAINER:
        return text
    seconds = forecast(runs, sources, timer).total.middle / workers
    return f"{text}, about {clock(seconds)} of training"


def _run_span(
    spec: Mapping[str, Any], source: Source, timer: "StepTimer", epochs: Span, together: int
) -> Span:
    times = timer.times(spec, InputShape.of(source), together)
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


FILE = "step-times.json"
# No part of a step.
_UNTIMED = ("max_epochs", "patience", "weights", "passes", "adaptation", "schedule")
EPOCHS, STEPS = 3, 5  # ten steps are timed: Sophia estimates the curvature in every tenth
EVALUATED = 256  # windows


@dataclass(frozen=True)
class StepTimes:
    """Seconds of the parts of a training, measured on random windows."""

    step_s: float  # one training step
    window_s: float  # evaluation of one window


class StepTimer:
    """Times steps, each kind once: in this process, and per machine through a file.

    Args:
        cache_dir: Folder of the file; None uses ``$AFOR_CACHE`` or the user's cache.
        announce: Is called with a description before something is timed.
    """

    def __init__(
        self, cache_dir: Path | None = None, announce: Callable[[str], None] | None = None
    ) -> None:
        self._cache_dir = cache_dir
        self._announce = announce or (lambda _: None)
        self._times: dict[str, dict[str, float]] = {}  # known to this process

    def times(self, spec: Mapping[str, Any], shape: InputShape, together: int = 1) -> StepTimes:
        """Return the times of a run's steps; measure them if they are not known.

        Of several runs that are trained `together` as one network, they are the share of one.
        """
        key = _key(spec, shape, together)
        if key not in self._times:
            self._times = {**_read(self._path), **self._times}
        if key not in self._times:
            self._announce(f"{spec['backbone']['name']} with {spec['optimizer']['name']}")
            measured = _measure(spec, shape, together)
            self._times = {**_read(self._path), **self._times, key: asdict(measured)}
            write_atomically(self._path, json.dumps(self._times, indent=1).encode())
        return StepTimes(**self._times[key])

    @functools.cached_property
    def _path(self) -> Path:
        return open_cache(self._cache_dir) / FILE


def _read(path: Path) -> dict[str, dict[str, float]]:
    """Return the times of a file; an unreadable file counts as empty."""
    try:
        content = json.loads(path.read_text("utf-8"))
        return {str(key): asdict(StepTimes(**times)) for key, times in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _key(spec: Mapping[str, Any], shape: InputShape, together: int) -> str:
    """Return all that the times depend on, as text."""
    import torch

    return canonical(
        {
            "backbone": spec["backbone"],
            "optimizer": {k: v for k, v in spec["optimizer"].items() if k != "lr"},
            "training": {k: v for k, v in spec["training"].items() if k not in _UNTIMED},
            "shape": [shape.channels, shape.samples, shape.classes],
            "threads": spec["threads"],
            "device": spec["device"],
            **({"together": together} if together > 1 else {}),
            "machine": [platform.node(), platform.machine(), torch.__version__, __version__],
        }
    )


def _measure(spec: Mapping[str, Any], shape: InputShape, together: int) -> StepTimes:
    """Train for a few epochs on random windows; the first one warms up."""
    from afor.bench.models.registry import build_backbone
    from afor.bench.models.stacked_eegnet import stacks_here
    from afor.bench.training.loop import train_bundle

    planned = run_settings(spec)
    sizes = {"train": STEPS * planned.batch_size, "validation": EVALUATED, "test": 2}
    names = np.repeat(list(sizes), list(sizes.values()))
    rng = np.random.default_rng(0)
    signals = rng.standard_normal((len(names), shape.channels, shape.samples), dtype=np.float32)
    windows = ArrayWindows(signals, rng.integers(shape.classes, size=len(names)), list(names))
    settings = planned.changed(
        split=Split(0, 0, **{name: (name,) for name in sizes}),
        max_epochs=EPOCHS,
        patience=EPOCHS,
        order="shuffled",
        subjects_per_batch=None,
        passes=1,
        adaptation=None,
        hold_redundant=False,
    )
    backbone = spec["backbone"]

    def make_model() -> "nn.Module":
        return build_backbone(backbone["name"], shape, **backbone["settings"])

    with isolated(0, pick_device(spec["device"])):
        if not stacks_here(make_model()):
            together = 1  # as a worker trains them on this machine
    outcomes: list[RunRecord | Exception] = []
    try:
        train_bundle(
            [settings] * together,
            windows,
            make_model,
            lambda _, outcome, __: outcomes.append(outcome),
        )
        record = outcomes[0]
        if isinstance(record, Exception):
            raise record
    except AforError:
        raise
    except Exception as error:  # anybody's network, which may fail in any way
        reason = f"{type(error).__name__}: {error}"
        raise TrainingError(f"{backbone['name']} on random windows: {reason}") from error
    if record.status != "done":
        raise TrainingError(f"{backbone['name']} on random windows: {record.reason}")
    timed = record.history[1:]
    return StepTimes(
        step_s=sum(epoch.train_s for epoch in timed) / (STEPS * len(timed)),
        window_s=sum(epoch.validation_s for epoch in timed) / (EVALUATED * len(timed)),
    )
