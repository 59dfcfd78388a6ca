"""Execute runs in a worker: from a spec and windows to the bytes of a finished run.

An error inside a run is recorded as the result of that run; it never stops the worker.
"""

import inspect
import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from afor import __version__
from afor.bench.common.devices import describe_device
from afor.bench.common.errors import CannotBundleError, ConfigError, TrainingError
from afor.bench.common.module_search import import_named
from afor.bench.data.splits import Split
from afor.bench.models.input_shape import InputShape
from afor.bench.training.record import FinishedRun, RunRecord, decode, encode
from afor.bench.training.run_spec import DEFAULT_TRAINER, RunSettings

if TYPE_CHECKING:
    from torch import nn

    from afor.bench.data.window_source import ExpectedWindows, WindowSource

    Source = TypeVar("Source", bound=WindowSource | ExpectedWindows)

Trainer = Callable[[Mapping[str, Any], "WindowSource"], RunRecord]

MAX_REASON_LENGTH = 500
MAX_TRACEBACK_LENGTH = 8000


def execute(key: str, spec: dict[str, Any], source: "WindowSource") -> bytes:
    """Train one run; return it as bytes for `record.decode`, as failed if it raises."""
    started = time.perf_counter()
    try:
        source = cut_for(spec, source)
        trainer = resolve_trainer(spec.get("trainer", {}).get("source", DEFAULT_TRAINER))
        returned: object = trainer(spec, source)
        if not isinstance(returned, RunRecord):
            raise TrainingError(
                f"the trainer returned a {type(returned).__name__}, expected a RunRecord"
            )
        return _content(key, spec, returned)
    except Exception as error:  # noqa: BLE001  any error fails this run only
        return _failure(key, spec, error, time.perf_counter() - started)


def execute_bundle(
    jobs: Sequence[tuple[str, dict[str, Any]]],
    source: "WindowSource",
    finished: Callable[[str, bytes], None],
) -> None:
    """Train the runs of a bundle as one network; one that raises is recorded as failed.

    Runs that cannot be trained together on this machine (CannotBundleError) are trained one by one.
    Any other error of the bundle is recorded as the failure of each run that it kept from ending.
    `finished` is called with the key and the bytes of each run as soon as it has ended.
    """
    if len(jobs) == 1 or any("trainer" in spec for _, spec in jobs):
        for key, spec in jobs:
            finished(key, execute(key, spec, source))
        return
    from afor.bench.training.loop import train_bundle

    missing = dict(jobs)
    started = time.perf_counter()

    def ended(number: int, outcome: RunRecord | Exception, elapsed_s: float) -> None:
        key, spec = jobs[number]
        if isinstance(outcome, CannotBundleError):
            return
        if isinstance(outcome, Exception):
            content = _failure(key, spec, outcome, elapsed_s)
        else:
            content = _content(key, spec, outcome)
        del missing[key]
        finished(key, content)

    specs = [spec for _, spec in jobs]
    try:
        source = cut_for(specs[0], source)
        train_bundle([run_settings(s) for s in specs], source, _maker(specs[0], source), ended)
    except Exception as error:  # noqa: BLE001  any error fails these runs only
        error.add_note(f"Raised while {len(jobs)} runs were trained as one network.")
        share_s = (time.perf_counter() - started) / len(jobs)
        for key, spec in missing.items():
            finished(key, _failure(key, spec, error, share_s))
        return
    for key, spec in missing.items():
        finished(key, execute(key, spec, source))


def _content(key: str, spec: dict[str, Any], record: RunRecord) -> bytes:
    """Return the bytes of a run that was trained; raise ValueError for a record that is invalid."""
    precision = spec.get("training", {}).get("precision", "float32")
    run = FinishedRun(
        key=key,
        status=record.status,
        reason=record.reason,
        spec=spec,
        record=record,
        traceback="",
        environment=environment(record.device, precision),
        finished_at=now(),
        elapsed_s=record.elapsed_s,  # excludes the time of importing torch
    )
    content = encode(run)
    decode(content)  # the record of a custom trainer must be valid, too
    return content


def _failure(key: str, spec: dict[str, Any], error: Exception, elapsed_s: float) -> bytes:
    """Return the bytes of a run that raised."""
    reason = f"{type(error).__name__}: {error}"[:MAX_REASON_LENGTH]
    trace = "".join(traceback.format_exception(error))[-MAX_TRACEBACK_LENGTH:]
    return failed_run(key, spec, reason, trace, elapsed_s)


def failed_run(
    key: str, spec: dict[str, Any], reason: str, trace: str = "", elapsed_s: float = 0.0
) -> bytes:
    """Return the bytes of a failed run; it has no trace if its workers died."""
    return encode(
        FinishedRun(key, "failed", reason, spec, None, trace, environment(), now(), elapsed_s)
    )


def train_run(spec: Mapping[str, Any], source: "WindowSource") -> RunRecord:
    """Train the network and the optimizer of a spec: the default trainer of a study."""
    from afor.bench.training.loop import train

    return train(run_settings(spec), source, _maker(spec, source))


def _maker(spec: Mapping[str, Any], source: "WindowSource") -> "Callable[[], nn.Module]":
    """Return a function that builds the network of a spec."""
    from afor.bench.models.registry import build_backbone

    backbone, shape = spec["backbone"], InputShape.of(source)
    return lambda: build_backbone(backbone["name"], shape, **backbone["settings"])


def run_settings(spec: Mapping[str, Any]) -> RunSettings:
    """Return the settings of `train` that a spec describes."""
    split, optimizer = spec["split"], spec["optimizer"]
    return RunSettings(
        dataset=spec["data"]["dataset"],
        split=Split(
            split["fold"],
            split["repetition"],
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


def cut_for(spec: Mapping[str, Any], source: "Source") -> "Source":
    """Return the windows that a spec names, from the trials of a source."""
    data = spec["data"]
    wanted = {name: data[name] for name in ("window_samples", "stride_samples") if name in data}
    is_cut = all(getattr(source, name) == value for name, value in wanted.items())
    return source if is_cut else cast("Source", source.recut(**wanted))


def resolve_trainer(target: str) -> Trainer:
    """Import a trainer by its name, without calling it; raise ConfigError if it is none."""
    if target == DEFAULT_TRAINER:
        return train_run
    module, _, name = target.partition(":")
    function = getattr(import_named(target, "trainer"), name, None)
    if not _is_trainer(function):
        raise ConfigError(
            f'trainer "{target}": "{module}" has no trainer "{name}". Accepted: module:function '
            f"with a Python function of two arguments, the spec and the window source, that "
            f"returns a RunRecord."
        )
    return cast("Trainer", function)


def _is_trainer(function: object) -> bool:
    """Return True for a Python function of two arguments, the spec and the windows."""
    if not isinstance(function, FunctionType):
        return False
    parameters = inspect.signature(function).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.default is p.empty]
    return len(required) == 2 and all(p.kind in positional for p in required)


def environment(device: str = "cpu", precision: str = "float32") -> dict[str, str]:
    """Return the versions and the machine, which may change the last bits of a result."""
    # What is not imported was not used; a trainer need not use torch.
    torch, kernel, eegnet = (
        sys.modules.get(name)
        for name in ("torch", "afor.native.binding", "afor.bench.models.native.binding")
    )
    on_gpu = torch is not None and device.startswith("cuda")
    is_native = kernel is not None and kernel.unavailable_reason() is None
    return {
        "afor": __version__,
        "torch": str(torch.__version__) if torch else "",
        # AFOR's native kernel adds in another order than torch; each instruction set of the native
        # EEGNet rounds in its own way.
        "kernel": "" if kernel is None else "native" if is_native else "none",
        "eegnet": "" if eegnet is None else eegnet.instruction_set() or "none",
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "host": platform.node(),
        **(describe_device(torch.device(device), precision) if torch and on_gpu else {}),
    }


def now() -> str:
    """Return the current time as text, in UTC and seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
