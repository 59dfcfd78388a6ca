"""One run on a worker: a spec and windows in, the bytes of a finished run out.

What goes wrong inside a run becomes a record of that run; it never stops the worker.
"""

import json
import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from afor.bench.config import DEFAULT_TRAINER
from afor.bench.errors import ConfigError, TrainingError
from afor.bench.module_search import import_named, is_trainer
from afor.bench.runs import RunRecord, RunSettings
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
    """Read what `encode` wrote; ValueError when it is something else.

    Types are checked, and that the parts fit each other, so that tables and exports may rely on it.
    """
    try:
        stored = _STORED_RUN.validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        reason = f"{place}: {first['msg']}" if place else first["msg"]
        raise ValueError(f"not a finished run ({reason})") from None
    if stored.format != FORMAT:
        raise ValueError("a run of another format")
    run = FinishedRun(**{field.name: getattr(stored, field.name) for field in fields(FinishedRun)})
    if fault := _fault(run):
        raise ValueError(f"not a finished run ({fault})")
    return run


@dataclass(frozen=True)
class _StoredRun(FinishedRun):
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    format: int


_STORED_RUN = TypeAdapter(_StoredRun)


def _fault(run: FinishedRun) -> str:
    """Say which part of a run does not fit the others; nothing when all fit."""
    split, data = run.spec.get("split"), run.spec.get("data")
    tested = split.get("test") if isinstance(split, dict) else None
    if not (isinstance(tested, list) and tested and all(isinstance(name, str) for name in tested)):
        return "spec.split.test is no list of subjects"
    if not (isinstance(data, dict) and isinstance(data.get("fingerprint"), str)):
        return "spec.data.fingerprint is missing"
    record = run.record
    if (record is None) != (run.status == "failed"):
        return f"a {run.status} run {'without' if record is None else 'with'} a record"
    if record is None:
        return ""
    if record.status != run.status:
        return f"a {run.status} run whose record is {record.status}"
    if record.best_epoch is not None and not 0 <= record.best_epoch < len(record.history):
        return f"best_epoch {record.best_epoch} of {len(record.history)} epochs"
    if (record.test is None) != (run.status != "done"):
        return f"a {run.status} run {'without' if record.test is None else 'with'} a test result"
    for test in (record.test, record.test_trials):
        if test is None:
            continue
        counts = [count for row in test.confusion for count in row]
        if (
            any(len(row) != len(test.confusion) for row in test.confusion)
            or min(counts, default=-1) < 0
        ):
            return "confusion is no square table of counts"
        if sum(counts) != test.n or test.n < 1:
            return f"confusion counts {sum(counts)} windows or trials, n is {test.n}"
        if len(record.train_class_counts) != len(test.confusion):
            return (
                f"{len(record.train_class_counts)} classes to train, {len(test.confusion)} to test"
            )
    return ""
