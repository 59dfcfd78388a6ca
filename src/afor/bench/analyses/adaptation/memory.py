"""Find when AFOR's controller becomes active and when AFOR departs from AdamW at a constant beta2.

    memory = watch_memory(find_run(load_study("demo")), steps=6000)
    memory.printed["beta2"]       # (steps, tensors)
    memory.distances["printed"]   # from AdamW at the middle of the range, at `memory.marks`

The same run is trained with AFOR as printed, with calibrated statistics, with its controller held
still, and with three AdamWs; all start from the same weights and see the same batches.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils import parameters_to_vector

from afor.bench.analyses.replay import ChosenRun, replay
from afor.bench.analyses.step_log import FloatArray, StepLog, Steps
from afor.bench.common.devices import pick_device
from afor.bench.common.errors import ConfigError, TrainingError
from afor.bench.common.seeding import isolated
from afor.bench.training.batches import Batch
from afor.bench.training.execute import run_settings
from afor.bench.training.fit import Fit, WatchStep
from afor.bench.training.record import RunRecord
from afor.monitor import AWAKE

MARKS_PER_DECADE = 24  # steps per factor of ten at which parameters are compared
HALF = 0.5  # share of active tensors from which on the controller counts as active
SMOOTH_STEPS = 100  # the share of active tensors is averaged over this many steps
PARTED = 0.1  # relative distance from which on two trainings count as parted
NUDGE = 1e-6  # relative change of the learning rate; shows how far training amplifies a tiny change
# With so large a scale every z-score is 0: beta2 stays in the middle after the warm-up.
INACTIVE = {"normalization": "fixed", "fixed_scale": 1e30}

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Memory:
    """One run watched step by step, beside AdamW at constant beta2."""

    label: str  # of the run
    printed: Steps
    calibrated: Steps
    marks: NDArray[np.int64]  # steps at which parameters were compared
    distances: Mapping[str, FloatArray]  # by key of `COMPARED`; relative to the distance travelled
    middle: float  # the beta2 of the AdamW compared with
    # AFOR from AFOR held at z-score 0, relative to the way of the latter: the adaptation alone.
    adaptation: FloatArray


# What is compared with AdamW at the middle of AFOR's range.
COMPARED = {
    "printed": "AFOR",
    "calibrated": "AFOR calibrated",
    "inactive": "AFOR held at ζ = 0",
    "longest": "AdamW at the longest memory",
    "nudged": "the same AdamW, lr × (1 + 10⁻⁶)",
}


def watch_memory(run: ChosenRun, steps: int = 0, progress: Progress | None = None) -> Memory:
    """Train a run with AFOR and with the optimizers it is compared with.

    Args:
        run: A run of AFOR.
        steps: Number of steps, without early stopping; 0 trains as long as the run itself.
        progress: Called with the name of each training before it starts.
    """
    notify = progress or (lambda _: None)
    if steps < 0:
        raise ConfigError(f"--steps {steps}: expected 1 or more, or 0 for the run as it was.")
    notify(COMPARED["printed"])
    printed, printed_snapshots = _train_watched(extend(run, steps) if steps else run)
    length = min(steps or len(printed), len(printed))
    printed, run = printed.first(length), extend(run, length)

    spec = run.planned.spec["optimizer"]
    settings = spec["settings"]
    low, high = printed.beta2_range
    middle = round((low + high) / 2, 12)  # 0.9945 itself, not its neighbour
    beta1 = settings.get("betas", (0.9, 0.999))[0]
    constant = {"betas": (beta1, middle), "eps": settings.get("eps", 1e-8)}
    notify(COMPARED["calibrated"])
    calibrated, calibrated_snapshots = _train_watched(
        with_optimizer(run, spec["name"], {**settings, "statistics": "calibrated"})
    )
    snapshots = {"printed": printed_snapshots, "calibrated": calibrated_snapshots}
    other_runs = {
        f"AdamW at {middle:g}": with_optimizer(run, "adamw", constant),
        "inactive": with_optimizer(run, spec["name"], {**settings, **INACTIVE}),
        "longest": with_optimizer(run, "adamw", {**constant, "betas": (beta1, high)}),
        "nudged": with_optimizer(run, "adamw", constant, lr_factor=1 + NUDGE),
    }
    for name, other_run in other_runs.items():
        notify(COMPARED.get(name, name))
        snapshots[name] = Snapshots()
        train_to_end(other_run, snapshots[name].watch)
    reference = snapshots.pop(f"AdamW at {middle:g}").parameters
    start = initial_parameters(run)
    marks = np.array([step for step in reference if step <= length])
    distances = {
        name: np.array(
            [_relative_distance(taken.parameters[step], reference[step], start) for step in marks]
        )
        for name, taken in snapshots.items()
    }
    ours, held = snapshots["printed"].parameters, snapshots["inactive"].parameters
    adaptation = np.array([_relative_distance(ours[step], held[step], start) for step in marks])
    steps_seen = (printed, calibrated.first(length))
    return Memory(run.label, *steps_seen, marks, distances, middle, adaptation)


def _train_watched(run: ChosenRun) -> "tuple[Steps, Snapshots]":
    log, snapshots = StepLog(), Snapshots()

    def watch(fit: Fit, batch: Batch, loss: torch.Tensor) -> None:
        log.watch(fit, batch, loss)
        snapshots.watch(fit, batch, loss)

    train_to_end(run, watch)
    return log.result(), snapshots


def _relative_distance(
    parameters: torch.Tensor, reference: torch.Tensor, start: torch.Tensor
) -> float:
    """Return the distance from the reference, relative to how far that is from its start."""
    return float((parameters - reference).norm() / (reference - start).norm())


def train_to_end(run: ChosenRun, watch: WatchStep) -> RunRecord:
    """Train a run to its end; raise TrainingError if it diverges, since its trace is incomplete."""
    record = replay(run, watch_step=watch)
    if record.status != "done":
        raise TrainingError(f"{run.label}: {record.reason}. Choose a smaller learning rate.")
    return record


def extend(run: ChosenRun, steps: int) -> ChosenRun:
    """Return the run with at least `steps` steps and no early stopping, from the same start."""
    spec = run.planned.spec
    windows = len(run.source.indices_of(spec["split"]["train"]))
    per_epoch = max(1, windows // run_settings(spec).batch_size)
    epochs = -(-steps // per_epoch)
    changed = {**spec["training"], "max_epochs": epochs, "patience": epochs}
    return _changed(run, {"training": changed})


def with_optimizer(
    run: ChosenRun, name: str, settings: Mapping[str, Any], lr_factor: float = 1.0
) -> ChosenRun:
    """Return the run with another optimizer of the same learning rate and weight decay."""
    spec = run.planned.spec["optimizer"]
    changed = {**spec, "name": name, "settings": dict(settings), "lr": spec["lr"] * lr_factor}
    return _changed(run, {"optimizer": changed})


def _changed(run: ChosenRun, changes: Mapping[str, Any]) -> ChosenRun:
    return ChosenRun(replace(run.planned, spec={**run.planned.spec, **changes}), run.source)


def initial_parameters(run: ChosenRun) -> torch.Tensor:
    """Return the parameters before the first step, as one vector."""
    with isolated(run.settings.seed("weights"), pick_device(run.settings.device)):
        return _flat(run.make_model())


def is_mark(step: int) -> bool:
    """Tell whether parameters are compared at this step: about 24 times per factor of ten.

    >>> [step for step in range(1, 30) if is_mark(step)]
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 17, 18, 20, 22, 24, 27, 29]
    """
    return step == 1 or int(np.log10(step) * MARKS_PER_DECADE) > int(
        np.log10(step - 1) * MARKS_PER_DECADE
    )


class Snapshots:
    """The parameters of a training at some steps, evenly on a logarithmic scale."""

    def __init__(self) -> None:
        self.parameters: dict[int, torch.Tensor] = {}  # by step, as one vector

    def watch(self, fit: Fit, _batch: Batch, _loss: torch.Tensor) -> None:
        """Keep the parameters if this step is one to compare at."""
        if is_mark(fit.steps + 1):
            self.parameters[fit.steps + 1] = _flat(fit.model)


def _flat(model: torch.nn.Module) -> torch.Tensor:
    return parameters_to_vector(model.parameters()).detach().float().cpu()


def active_share(steps: Steps) -> FloatArray:
    """Return, per step, the share of tensors whose absolute z-score is beyond 0.5."""
    share: FloatArray = (np.abs(steps["zscore"]) > AWAKE).mean(axis=1)
    return share


def active_step(steps: Steps) -> int | None:
    """Return the step at which half of the tensors are active, averaged over the last 100 steps.

    The warm-up does not count: there the score statistics hold their initial values. None when
    the controller stays inactive.
    """
    share = active_share(steps)[steps.warmup_steps :]
    if len(share) < SMOOTH_STEPS:
        return None
    sums = np.cumsum(np.concatenate([[0.0], share]))
    running = (sums[SMOOTH_STEPS:] - sums[:-SMOOTH_STEPS]) / SMOOTH_STEPS
    active = np.flatnonzero(running >= HALF)
    return int(active[0]) + SMOOTH_STEPS + steps.warmup_steps if len(active) else None


def part_step(memory: Memory, distances: FloatArray) -> int | None:
    """Return the compared step from which on two trainings stay parted, or None."""
    near = np.flatnonzero(distances <= PARTED)
    after = int(near[-1]) + 1 if len(near) else 0
    return int(memory.marks[after]) if after < len(memory.marks) else None


def describe(memory: Memory) -> dict[str, Any]:
    """Return the numbers behind the figure, ready for JSON."""
    numbers: dict[str, Any] = {"run": memory.label, "steps": len(memory.printed)}
    low, high = memory.printed.beta2_range
    for form, steps in (("printed", memory.printed), ("calibrated", memory.calibrated)):
        after = slice(min(steps.warmup_steps, len(steps) - 1), None)
        beta2 = steps["beta2"][after]
        numbers[form] = {
            "active_step": active_step(steps),
            "active_share": float(active_share(steps)[after].mean()),
            "mean_abs_zscore": float(np.abs(steps["zscore"][after]).mean()),
            "score_std_last": float(np.median(steps["score_std"][-1])),
            "beta2_mean": float(beta2.mean()),
            "beta2_sd_of_range": float(beta2.std() / (high - low)),
            "beta2_by_tensor": dict(
                zip(steps.names, map(float, steps["beta2"].mean(axis=0)), strict=True)
            ),
        }
    numbers["apart_from"] = f"AdamW at {memory.middle:g}"
    numbers["apart"] = {
        name: _describe_distance(memory, values) for name, values in memory.distances.items()
    }
    numbers["adaptation"] = _describe_distance(memory, memory.adaptation)
    return numbers


def _describe_distance(memory: Memory, values: FloatArray) -> dict[str, Any]:
    return {
        "part_step": part_step(memory, values),
        "last": float(values[-1]),
        "by_step": dict(zip(map(int, memory.marks), map(float, values), strict=True)),
    }
