"""One run on a worker: a spec and windows in, the bytes of a finished run out.

What goes wrong inside a run becomes a record of that run; it never stops the worker.
"""

import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from afor.bench.common.errors import ConfigError, TrainingError
from afor.bench.common.module_search import import_named, is_trainer
from afor.bench.data.splits import Split
from afor.bench.training.record import FinishedRun, RunRecord, decode, encode
from afor.bench.training.run_spec import RunSettings

if TYPE_CHECKING:
    from afor.bench.data.window_source import WindowSource
    from afor.bench.models.input_shape import InputShape

# Stands in stored studies: the name stays although the module has moved.
DEFAULT_TRAINER = "afor.bench.execute:train_run"

Trainer = Callable[[Mapping[str, Any], "WindowSource"], RunRecord]

LONGEST_REASON = 500
LONGEST_TRACEBACK = 8000


def execute(key: str, spec: dict[str, Any], source: "WindowSource") -> bytes:
    """Train one run and return it as bytes, as `decode` reads them."""
    started = time.perf_counter()
    try:
        trainer = resolve_trainer(spec.get("trainer", {}).get("source", DEFAULT_TRAINER))
        returned: object = trainer(spec, source)
        if not isinstance(returned, RunRecord):
            raise TrainingError(
                f"the trainer returned a {type(returned).__name__}, expected a RunRecord"
            )
        record = returned
        # Without the seconds a worker takes once, to import torch.
        elapsed_s = record.elapsed_s
        content = encode(
            FinishedRun(
                key, record.status, record.reason, spec, record, "", environment(), now(), elapsed_s
            )
        )
        decode(content)  # what another trainer returned must be readable too
        return content
    except Exception as error:  # noqa: BLE001  a run may fail in any way, and only that run
        reason = f"{type(error).__name__}: {error}"[:LONGEST_REASON]
        trace = traceback.format_exc()[-LONGEST_TRACEBACK:]
        elapsed_s = time.perf_counter() - started
    return encode(
        FinishedRun(key, "failed", reason, spec, None, trace, environment(), now(), elapsed_s)
    )


def failed_run(key: str, spec: dict[str, Any], reason: str) -> bytes:
    """Return the bytes of a run that took its workers down."""
    return encode(
        FinishedRun(key, "failed", reason, spec, None, "", environment(), now(), elapsed_s=0.0)
    )


def train_run(spec: Mapping[str, Any], source: "WindowSource") -> RunRecord:
    """Train the network and the optimizer a spec names: the trainer of every real study."""
    from afor.bench.models.registry import build_backbone
    from afor.bench.training.loop import train

    backbone, shape = spec["backbone"], input_shape(source)
    return train(
        run_settings(spec),
        source,
        lambda: build_backbone(backbone["name"], shape, **backbone["settings"]),
    )


def run_settings(spec: Mapping[str, Any]) -> RunSettings:
    """Return the settings of `train` that a spec describes."""
    split, optimizer = spec["split"], spec["optimizer"]
    return RunSettings(
        dataset=spec["data"]["dataset"],
        split=Split(
            split["fold"],
            split["draw"],
            train=tuple(split["train"]),
            validation=tuple(split["validation"]),
            test=tuple(split["test"]),
        ),
        optimizer=optimizer["name"],
        lr=optimizer["lr"],
        optimizer_settings=optimizer["settings"],
        weight_decay=optimizer["weight_decay"],
        study_seed=spec["seed"],
        device=spec["device"],
        threads=spec["threads"],
        **spec["training"],
    )


def input_shape(source: "WindowSource") -> "InputShape":
    """Describe the windows to a backbone."""
    from afor.bench.models.input_shape import InputShape

    return InputShape(
        source.channel_names,
        samples=source.window_samples,
        rate_hz=source.rate_hz,
        classes=source.n_classes,
    )


def resolve_trainer(target: str) -> Trainer:
    """Import the function that trains; raise ConfigError when it is none, and call nothing."""
    if target == DEFAULT_TRAINER:
        return train_run
    module, _, name = target.partition(":")
    function = getattr(import_named(target, "trainer"), name, None)
    if not is_trainer(function):
        raise ConfigError(
            f'trainer "{target}": "{module}" has no trainer "{name}". Accepted: module:function '
            f"with a Python function of two arguments, the spec and the window source, that "
            f"returns a RunRecord."
        )
    return cast("Trainer", function)


def environment() -> dict[str, str]:
    """Return what may change the last bits of a result from one machine to another."""
    import numpy as np

    from afor import __version__

    torch = sys.modules.get("torch")  # a trainer that needs no torch must not wait for it
    return {
        "afor": __version__,
        "torch": str(torch.__version__) if torch else "",
        "kernel": _kernel(),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "host": platform.node(),
    }


def _kernel() -> str:
    """Say whether AFOR's native kernel was used: it adds in another order than torch does."""
    fused = sys.modules.get("afor.native.binding")
    if fused is None:
        return ""
    return "native" if fused.unavailable_reason() is None else "none"


def now() -> str:
    """Return the time as text, UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
