"""Decide which runs are trained in bundles, and which of them belong together.

Runs that share data, network, split and seeds start from the same weights and see the same
batches: several of them can be trained as one network, each with the bits of the run by itself. So
a bundle is a matter of execution alone.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from afor.bench.models.input_shape import InputShape
from afor.bench.study.schema import BackboneEntry, Study
from afor.bench.training.run_spec import DEFAULT_TRAINER, Training

if TYPE_CHECKING:
    from afor.bench.data.window_source import ExpectedWindows, WindowSource

MAX_BUNDLE = 8  # runs; more are hardly faster, see docs/explanation/speed.md
# The largest windows and batches that are faster in a bundle by benchmarks/bundles.py, on the CPU:
# beyond them the maps of eight runs leave the processor's caches.
MAX_SAMPLES, MAX_BATCH_SAMPLES = 256, 2**15
HALF_PRECISIONS = ("bfloat16", "float16")


@dataclass(frozen=True)
class Bundling:
    """How the runs of a network on a data set are trained."""

    reason: str = ""  # why one by one; empty for several as one network

    @property
    def together(self) -> bool:
        """Whether several runs are trained as one network."""
        return not self.reason

    def sentence(self) -> str:
        """Return the decision in words."""
        if self.reason:
            return f"one by one: {self.reason}"
        return f"up to {MAX_BUNDLE} runs as one network, with the bits of runs by themselves"


def plan_bundling(
    study: Study,
    entry: BackboneEntry,
    source: "WindowSource | ExpectedWindows",
    training: Training,
    device: str,
) -> Bundling:
    """Decide how the runs of a network are trained in a study.

    This does not depend on whether this machine has the compiled EEGNet: a worker without it trains
    one by one.
    """
    shape = InputShape.of(source)
    if not study.bundle:
        return Bundling("bundle = false")
    if study.trainer != DEFAULT_TRAINER:
        return Bundling("the study has a trainer of its own")
    if training.precision in HALF_PRECISIONS:
        return Bundling(f"precision = {training.precision} is not bundled")
    if entry.use not in ("eegnet", "eegnet_authors") or device != "cpu":
        return Bundling("only EEGNets on the CPU have the same bits in a bundle")
    if shape.samples > MAX_SAMPLES or training.batch_size * shape.samples > MAX_BATCH_SAMPLES:
        return Bundling("bundles were not measured to be faster here")
    import torch

    from afor.bench.models.registry import build_backbone
    from afor.bench.models.stacked_eegnet import can_stack

    with torch.device("meta"):
        model = build_backbone(entry.use, shape, **entry.settings)
    return Bundling("" if can_stack(model) else "this form or width is not bundled")


def bundle_key(spec: Mapping[str, Any]) -> str:
    """Return a text that is equal for the runs that can be one network."""
    own = ("clip_norm", "schedule", "decay_exempt")  # of each run
    training = {key: value for key, value in spec["training"].items() if key not in own}
    if "adaptation" in training:
        training["adaptation"] = {**training["adaptation"], "state": ""}
    shared = {**spec, "optimizer": "", "training": training}
    return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()
