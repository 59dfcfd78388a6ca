"""Decide which runs are trained in bundles, and which of them belong together.

Runs that share data, network, split and seeds start from the same weights and see the same
batches: several of them can be trained as one network. Where that gives the bits of a run by
itself, a bundle is a matter of execution alone. Elsewhere it is equal to rounding, and the spec of
a run says so.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from afor.bench.models.input_shape import InputShape
from afor.bench.study.schema import BackboneEntry, Study
from afor.bench.training.execute import input_shape
from afor.bench.training.run_spec import BY_TORCH_FUNC, DEFAULT_TRAINER, Arithmetic

if TYPE_CHECKING:
    from afor.bench.data.expected_windows import ExpectedWindows
    from afor.bench.data.window_source import WindowSource

# Runs of one bundle unless a study gives a number; more are hardly faster, see
# docs/explanation/speed.md.
AUTO_BUNDLE = 8
HALF_PRECISIONS = ("bfloat16", "float16")


@dataclass(frozen=True)
class Limits:
    """Largest windows and batches that were measured to be faster in a bundle, on the CPU."""

    samples: int  # of a window
    batch_samples: int  # of all windows of a batch, in one channel
    arithmetic: Arithmetic = True  # that was measured


# By benchmarks/bundles.py. Beyond the limits of EEGNet the maps of eight runs leave the
# processor's caches; those of NSAL-DGAT are the largest that were measured.
_EEGNET = Limits(256, 2**15)
FASTER = {
    "eegnet": _EEGNET,
    "eegnet_authors": _EEGNET,
    "nsal_dgat": Limits(600, 256 * 600, BY_TORCH_FUNC),
}
NOT_FASTER = "bundles were not measured to be faster here"


@dataclass(frozen=True)
class Bundling:
    """How the runs of a network on a data set are trained."""

    together: bool  # as one network; otherwise one by one
    arithmetic: Arithmetic = False  # what the spec of a run says about it
    reason: str = ""  # why one by one

    def describe(self, size: int) -> str:
        """Return the decision in words; `size` is the maximum number of runs of a bundle."""
        if not self.together:
            return f"one by one: {self.reason}"
        equal = "equal to rounding to" if self.arithmetic else "with the bits of"
        return f"up to {size} runs as one network, {equal} runs by themselves"


def plan_bundling(
    study: Study,
    entry: BackboneEntry,
    source: "WindowSource | ExpectedWindows",
    batch_size: int,
    device: str,
) -> Bundling:
    """Decide how the runs of a network are trained in a study.

    Args:
        study: The study.
        entry: The network.
        source: The windows.
        batch_size: Number of windows of a batch.
        device: The kind of device.

    Returns:
        The decision. It does not depend on whether this machine has the compiled EEGNet: a worker
        without it trains one by one what would not have the same bits.
    """
    shape = input_shape(source)
    if study.bundle == 1:
        return _one_by_one("bundle = 1")
    if study.trainer != DEFAULT_TRAINER:
        return _one_by_one("the study has a trainer of its own")
    if study.training.precision in HALF_PRECISIONS:
        return _one_by_one(f"precision = {study.training.precision} is not bundled")
    if isinstance(study.bundle, str) and not _is_faster(entry, shape, batch_size, device):
        return _one_by_one(NOT_FASTER)
    import torch

    from afor.bench.models.functional_stack import refusal
    from afor.bench.models.registry import BACKBONES, build_backbone
    from afor.bench.models.stacked_eegnet import can_stack, has_compiled_form

    def build() -> torch.nn.Module:
        return build_backbone(entry.use, shape, **entry.settings)

    try:
        with torch.device("meta"):
            model = build()
    except (NotImplementedError, RuntimeError):  # a custom network without the meta device
        model = build()
    if study.bundle == "exact":
        if device == "cpu" and can_stack(model) and has_compiled_form(model):
            return Bundling(together=True)
        return _one_by_one('a bundle would be equal to rounding only; bundle = "auto" accepts that')
    arithmetic: Arithmetic = BY_TORCH_FUNC
    if entry.use in BACKBONES and can_stack(model):  # not a subclass with a forward of its own
        arithmetic = True
    if study.bundle == "auto" and arithmetic != FASTER[entry.use].arithmetic:
        return _one_by_one(NOT_FASTER)
    reason = refusal(build, shape) if arithmetic == BY_TORCH_FUNC else ""
    return _one_by_one(reason) if reason else Bundling(together=True, arithmetic=arithmetic)


def _one_by_one(reason: str) -> Bundling:
    return Bundling(together=False, reason=reason)


def _is_faster(entry: BackboneEntry, shape: InputShape, batch_size: int, device: str) -> bool:
    """Tell whether bundles were measured to be faster; on other devices nobody has measured."""
    limits = FASTER.get(entry.use)
    if limits is None or device != "cpu" or entry.settings.get("node_features") == "raw":
        return False
    return shape.samples <= limits.samples and batch_size * shape.samples <= limits.batch_samples


def bundle_size(study: Study) -> int:
    """Return the maximum number of runs of a bundle of a study."""
    return AUTO_BUNDLE if isinstance(study.bundle, str) else study.bundle


def companion_key(spec: Mapping[str, Any]) -> str:
    """Return a text that is equal for the runs that can be one network."""
    training = {key: value for key, value in spec["training"].items() if key != "clip_norm"}
    if "adaptation" in training:
        training["adaptation"] = {**training["adaptation"], "state": ""}
    shared = {**spec, "optimizer": "", "training": training}
    return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()
