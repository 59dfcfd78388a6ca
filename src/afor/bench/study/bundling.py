"""Decide which runs are trained in bundles, and which of them belong together.

Runs that share data, network, split and seeds start from the same weights and see the same
batches. Those of a network with a stacked form can be trained as one network; they are then
*bundled*. The arithmetic does not depend on how many runs a bundle has.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from afor.bench.models.input_shape import InputShape
from afor.bench.study.schema import BackboneEntry, Study
from afor.bench.training.execute import input_shape
from afor.bench.training.run_spec import DEFAULT_TRAINER

if TYPE_CHECKING:
    from afor.bench.data.expected_windows import ExpectedWindows
    from afor.bench.data.window_source import WindowSource

# Runs of one bundle for bundle = "auto"; more are hardly faster, see docs/explanation/speed.md.
AUTO_BUNDLE = 8
# Largest windows and batches that "auto" bundles: the maps of eight runs leave the processor's
# caches beyond, and a bundle is slower than its runs alone (benchmarks/bundles.py).
AUTO_SAMPLES = 256
AUTO_BATCH_SAMPLES = 2**15  # of all windows of a batch, in one channel
HALF_PRECISIONS = ("bfloat16", "float16")


def plans_bundles(
    study: Study, entry: BackboneEntry, source: "WindowSource | ExpectedWindows", device: str
) -> bool:
    """Tell whether the runs of a network on these windows are bundled in a study."""
    if study.bundle == 1 or study.trainer != DEFAULT_TRAINER:
        return False
    if study.training.precision in HALF_PRECISIONS:
        return False
    if study.bundle == "auto" and not _is_faster(input_shape(source), study, device):
        return False
    import torch

    from afor.bench.models.registry import BACKBONES, build_backbone
    from afor.bench.models.stacked_eegnet import can_stack

    if entry.use not in BACKBONES:
        return False
    with torch.device("meta"):
        return can_stack(build_backbone(entry.use, input_shape(source), **entry.settings))


def _is_faster(shape: InputShape, study: Study, device: str) -> bool:
    """Tell whether bundles were measured to be faster; on other devices nobody has measured."""
    batch_samples = study.training.batch_size * shape.samples
    return device == "cpu" and shape.samples <= AUTO_SAMPLES and batch_samples <= AUTO_BATCH_SAMPLES


def bundle_size(study: Study) -> int:
    """Return the maximum number of runs of a bundle of a study."""
    return AUTO_BUNDLE if study.bundle == "auto" else study.bundle


def is_bundled(spec: Mapping[str, Any]) -> bool:
    """Tell whether a run is trained in the arithmetic of bundles."""
    return bool(spec.get("training", {}).get("bundled", False))


def companion_key(spec: Mapping[str, Any]) -> str:
    """Return a text that is equal for bundled runs that can be one network."""
    training = {key: value for key, value in spec["training"].items() if key != "clip_norm"}
    if "adaptation" in training:
        training["adaptation"] = {**training["adaptation"], "state": ""}
    return json.dumps({**spec, "optimizer": "", "training": training}, sort_keys=True)
