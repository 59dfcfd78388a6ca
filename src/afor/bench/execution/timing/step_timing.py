"""Time a short training on random windows, to know the time of a study before its first run.

Times are kept in the cache folder, for this processor and these versions, so a second plan of the
same networks takes no time.
"""

import functools
import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from afor import __version__
from afor.bench.common.devices import pick_device
from afor.bench.common.errors import TrainingError
from afor.bench.common.files import write_atomically
from afor.bench.common.seeding import isolated
from afor.bench.data.prepared import open_cache
from afor.bench.data.splits import Split
from afor.bench.data.window_source import ArrayWindows
from afor.bench.models.input_shape import InputShape
from afor.bench.study.planned_runs import canonical
from afor.bench.training.execute import run_settings
from afor.bench.training.record import RunRecord

if TYPE_CHECKING:
    from torch import nn

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

        Args:
            spec: Spec of the run.
            shape: Shape of its windows.
            together: Number of runs that are trained as one network; the times of one of them are
                its share.
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
    )
    backbone = spec["backbone"]

    def make_model() -> "nn.Module":
        return build_backbone(backbone["name"], shape, **backbone["settings"])

    with isolated(0, pick_device(spec["device"])):
        if not stacks_here(make_model()):
            together = 1  # as a worker trains them on this machine
    outcomes: list[RunRecord | Exception] = []
    train_bundle(
        [settings] * together, windows, make_model, lambda _, outcome, __: outcomes.append(outcome)
    )
    record = outcomes[0]
    if isinstance(record, Exception):
        raise record
    if record.status != "done":
        raise TrainingError(f"{backbone['name']} on random windows: {record.reason}")
    timed = record.history[1:]
    return StepTimes(
        step_s=sum(epoch.train_s for epoch in timed) / (STEPS * len(timed)),
        window_s=sum(epoch.validation_s for epoch in timed) / (EVALUATED * len(timed)),
    )
