"""One run on a worker: a spec and windows in, the bytes of a finished run out.

What goes wrong inside a run becomes a record of that run; it never stops the worker.
"""

import json
import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from afor.bench.config import DEFAULT_TRAINER
from afor.bench.errors import ConfigError, TrainingError
from afor.bench.metrics import Metrics
from afor.bench.module_search import import_named, is_trainer
from afor.bench.runs import Epoch, RunRecord, RunSettings
from afor.bench.splits import Split

if TYPE_CHECKING:
    from afor.bench.backbones.shape import InputShape
    from afor.bench.window_source import WindowSource

Status = Literal["done", "diverged", "failed"]
Trainer = Callable[[Mapping[str, Any], "WindowSource"], RunRecord]

FORMAT = 1
LONGEST_REASON = 500
LONGEST_TRACEBACK = 8000


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended, well or not."""

    key: str
    status: Status
    reason: str  # empty when done
    spec: dict[str, Any]
    record: RunRecord | None  # None when failed
    traceback: str
    environment: dict[str, str]
    finished_at: str  # UTC
    elapsed_s: float


def execute(key: str, spec: dict[str, Any], source: "WindowSource") -> bytes:
    """Train one run and return it as bytes, as `decode` reads them."""
    started = time.perf_counter()
    record, reason, trace = None, "", ""
    status: Status = "failed"
    try:
        trainer = resolve_trainer(spec.get("trainer", {}).get("source", DEFAULT_TRAINER))
        returned: object = trainer(spec, source)
        if not isinstance(returned, RunRecord):
            raise TrainingError(
                f"the trainer returned a {type(returned).__name__}, expected a RunRecord"
            )
        record = returned
        status, reason = record.status, record.reason
    except Exception as error:  # noqa: BLE001  a run may fail in any way, and only that run
        reason = f"{type(error).__name__}: {error}"[:LONGEST_REASON]
        trace = traceback.format_exc()[-LONGEST_TRACEBACK:]
    run = FinishedRun(
        key=key,
        status=status,
        reason=reason,
        spec=spec,
        record=record,
        traceback=trace,
        environment=environment(),
        finished_at=now(),
        # Without the seconds a worker takes once, to import torch.
        elapsed_s=record.elapsed_s if record else time.perf_counter() - started,
    )
    return encode(run)


def failed_run(key: str, spec: dict[str, Any], reason: str) -> bytes:
    """Return the bytes of a run that took its workers down."""
    return encode(
        FinishedRun(key, "failed", reason, spec, None, "", environment(), now(), elapsed_s=0.0)
    )


def train_run(spec: Mapping[str, Any], source: "WindowSource") -> RunRecord:
    """Train the network and the optimizer a spec names: the trainer of every real study."""
    from afor.bench.backbones import build_backbone
    from afor.bench.train import train

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
    from afor.bench.backbones.shape import InputShape

    return InputShape(
        source.channel_names,
        samples=source.window_samples,
        rate_hz=source.rate_hz,
        classes=source.n_classes,
    )


def resolve_trainer(target: str) -> Trainer:
    """Import the function that trains; raise ConfigError when it is none, and call nothing."""
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
    fused = sys.modules.get("afor.fused")
    if fused is None:
        return ""
    return "native" if fused.unavailable_reason() is None else "none"


def now() -> str:
    """Return the time as text, UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def encode(run: FinishedRun) -> bytes:
    """Return a run as JSON. Numbers come back bit by bit; NaN of a trace stays NaN."""
    return json.dumps({"format": FORMAT, **asdict(run)}, separators=(",", ":")).encode()


def decode(content: bytes | str) -> FinishedRun:
    """Read what `encode` wrote; ValueError when it is something else."""
    try:
        fields = json.loads(content)
        if fields.pop("format") != FORMAT:
            raise ValueError("a run of another format")
        if fields["record"] is not None:
            fields["record"] = _record(fields["record"])
        return FinishedRun(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a finished run ({error})") from error


def _record(fields: dict[str, Any]) -> RunRecord:
    return RunRecord(
        **{
            **fields,
            "history": tuple(Epoch(**epoch) for epoch in fields["history"]),
            "test": _metrics(fields["test"]),
            "test_trials": _metrics(fields["test_trials"]),
            "train_class_counts": tuple(fields["train_class_counts"]),
        }
    )


def _metrics(fields: dict[str, Any] | None) -> Metrics | None:
    if fields is None:
        return None
    return Metrics(**{**fields, "confusion": tuple(tuple(row) for row in fields["confusion"])})
