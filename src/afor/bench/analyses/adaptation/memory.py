"""Find when AFOR's controller becomes active and when AFOR departs from AdamW at a constant beta2.

    memory = watch_memory(find_run(load_study("demo")), steps=6000)
    memory.printed["beta2"]       # (steps, tensors)
    memory.distances["printed"]   # from AdamW at the middle of the range, at `memory.marks`

The same run is trained with AFOR as printed, with calibrated statistics, with its controller held
still, and with three AdamWs; all start from the same weights and see the same batches.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.analyses.replay import ChosenRun, replay
from afor.bench.analyses.step_log import FloatArray, StepLog, Steps
from afor.bench.common.devices import pick_device
from afor.bench.common.errors import ConfigError, TrainingError
from afor.bench.common.seeding import isolated
from afor.bench.training.controller_trace import AWAKE

if TYPE_CHECKING:
    import torch

    from afor.bench.training.batches import Batch
    from afor.bench.training.loop import Fit
    from afor.bench.training.record import RunRecord

MARKS = 24  # steps per factor of ten at which parameters are compared
HALF = 0.5  # the share of tensors that must be awake
SMOOTH_STEPS = 100  # T_w: a share is read over as many steps as the warm-up has
PARTED = 0.1  # of the way travelled: from here on two trainings count as parted
NUDGE = 1e-6  # of the learning rate: how far training itself carries a difference of no meaning
# Any score is then 0 standard deviations off its mean: what is left of AFOR is the warm-up.
ASLEEP = {"normalization": "fixed", "fixed_scale": 1e30}

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Memory:
    """One run watched step by step, beside AdamW at constant beta2."""

    place: str
    printed: Steps
    calibrated: Steps
    marks: NDArray[np.int64]  # steps at which parameters were compared
    distances: Mapping[str, FloatArray]  # see `COMPARED`; relative to the way travelled
    middle: float  # the beta2 of the AdamW compared with
    # AFOR from AFOR held at z-score 0, relative to the way of the latter: the adaptation alone.
    adaptation: FloatArray


# What is compared with AdamW at the middle of AFOR's range.
COMPARED = {
    "printed": "AFOR",
    "calibrated": "AFOR calibrated",
    "asleep": "AFOR held at ζ = 0",
    "longest": "AdamW at the longest memory",
    "nudged": "the same AdamW, lr × (1 + 10⁻⁶)",
}


def watch_memory(chosen: ChosenRun, steps: int = 0, progress: Progress | None = None) -> Memory:
    """Train the run and its companions; `steps` sets their length and disables early stopping.

    Raises ConfigError when the run is not AFOR's, TrainingError when a training diverges.
    """
    say = progress or (lambda _: None)
    if steps < 0:
        raise ConfigError(f"--steps {steps}: expected 1 or more, or 0 for the run as it was.")
    say(COMPARED["printed"])
    printed, there = _watch(extend(chosen, steps) if steps else chosen)
    length = min(steps or len(printed), len(printed))
    printed, run = printed.first(length), extend(chosen, length)

    own = run.planned.spec["optimizer"]
    low, high = printed.beta2_range
    middle = round((low + high) / 2, 12)  # 0.9945 itself, not its neighbour
    beta1 = own["settings"].get("betas", (0.9, 0.999))[0]
    constant = {"betas": (beta1, middle), "eps": own["settings"].get("eps", 1e-8)}
    say(COMPARED["calibrated"])
    awake = {**own["settings"], "statistics": "calibrated"}
    calibrated, elsewhere = _watch(with_optimizer(run, own["name"], awake))
    kept = {"printed": there, "calibrated": elsewhere}
    others = {
        f"AdamW at {middle:g}": with_optimizer(run, "adamw", constant),
        "asleep": with_optimizer(run, own["name"], {**own["settings"], **ASLEEP}),
        "longest": with_optimizer(run, "adamw", {**constant, "betas": (beta1, high)}),
        "nudged": with_optimizer(run, "adamw", constant, lr_factor=1 + NUDGE),
    }
    for name, other in others.items():
        say(COMPARED.get(name, name))
        kept[name] = Snapshots()
        finish(other, kept[name].watch)
    reference = kept.pop(f"AdamW at {middle:g}").kept
    start = start_of(run)
    marks = np.array([step for step in reference if step <= length])
    distances = {
        name: np.array([_apart(other.kept[step], reference[step], start) for step in marks])
        for name, other in kept.items()
    }
    held = kept["asleep"].kept
    adaptation = np.array([_apart(there.kept[step], held[step], start) for step in marks])
    steps_seen = (printed, calibrated.first(length))
    return Memory(chosen.place, *steps_seen, marks, distances, middle, adaptation)


def _watch(run: ChosenRun) -> "tuple[Steps, Snapshots]":
    log, kept = StepLog(), Snapshots()

    def watch(fit: "Fit", batch: "Batch", loss: "torch.Tensor") -> None:
        log.watch(fit, batch, loss)
        kept.watch(fit, batch, loss)

    finish(run, watch)
    return log.result(), kept


def _apart(one: "torch.Tensor", other: "torch.Tensor", start: "torch.Tensor") -> float:
    """Return the distance of two trainings relative to the distance the second has travelled."""
    return float((one - other).norm() / (other - start).norm())


def finish(run: ChosenRun, watch: "Callable[[Fit, Batch, torch.Tensor], None]") -> "RunRecord":
    """Train a run to its end; raise TrainingError if it diverges, since its trace is incomplete."""
    record = replay(run, watch_step=watch)
    if record.status != "done":
        raise TrainingError(f"{run.place}: {record.reason}. Choose a smaller learning rate.")
    return record


def extend(chosen: ChosenRun, steps: int) -> ChosenRun:
    """Return the run with at least `steps` steps and no early stopping; its start is the same."""
    training = chosen.planned.spec["training"]
    windows = len(chosen.source.indices_of(chosen.planned.spec["split"]["train"]))
    per_epoch = max(1, windows // training["batch_size"])
    epochs = -(-steps // per_epoch)
    changed = {**training, "max_epochs": epochs, "patience": epochs}
    return _changed(chosen, {"training": changed})


def with_optimizer(
    chosen: ChosenRun, name: str, settings: Mapping[str, Any], lr_factor: float = 1.0
) -> ChosenRun:
    """Return the run with another optimizer of the same learning rate and weight decay."""
    own = chosen.planned.spec["optimizer"]
    changed = {**own, "name": name, "settings": dict(settings), "lr": own["lr"] * lr_factor}
    return _changed(chosen, {"optimizer": changed})


def _changed(chosen: ChosenRun, changes: Mapping[str, Any]) -> ChosenRun:
    return ChosenRun(
        replace(chosen.planned, spec={**chosen.planned.spec, **changes}), chosen.source
    )


def start_of(chosen: ChosenRun) -> "torch.Tensor":
    """Return the parameters before the first step, as one vector."""
    settings = chosen.settings
    device = pick_device(settings.device)
    with isolated(settings.seed("weights"), device):
        return _flat(chosen.make_model())


def is_mark(step: int) -> bool:
    """Tell whether parameters are compared at this step: about 24 times per factor of ten.

    >>> [step for step in range(1, 30) if is_mark(step)]
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 17, 18, 20, 22, 24, 27, 29]
    """
    return step == 1 or int(np.log10(step) * MARKS) > int(np.log10(step - 1) * MARKS)


class Snapshots:
    """The parameters of a training at some steps, evenly on a logarithmic scale."""

    def __init__(self) -> None:
        self.kept: dict[int, torch.Tensor] = {}

    def watch(self, fit: "Fit", _batch: "Batch", _loss: "torch.Tensor") -> None:
        """Record a step."""
        if is_mark(fit.steps + 1):
            self.kept[fit.steps + 1] = _flat(fit.model)


def _flat(model: "torch.nn.Module") -> "torch.Tensor":
    import torch

    flat = [p.detach().reshape(-1).float().cpu() for p in model.parameters()]
    return torch.cat(flat).clone()


def awake_share(steps: Steps) -> FloatArray:
    """Return, per step, the share of tensors whose absolute z-score is beyond 0.5."""
    share: FloatArray = (np.abs(steps["zscore"]) > AWAKE).mean(axis=1)
    return share


def wake_step(steps: Steps) -> int | None:
    """Return the step at which half of the tensors are awake, averaged over the last 100 steps.

    The warm-up does not count: there the score statistics hold their initial values. None when
    the controller sleeps to the end.
    """
    share = awake_share(steps)[steps.warmup_steps :]
    if len(share) < SMOOTH_STEPS:
        return None
    sums = np.cumsum(np.concatenate([[0.0], share]))
    running = (sums[SMOOTH_STEPS:] - sums[:-SMOOTH_STEPS]) / SMOOTH_STEPS
    awake = np.flatnonzero(running >= HALF)
    return int(awake[0]) + SMOOTH_STEPS + steps.warmup_steps if len(awake) else None


def part_step(memory: Memory, distances: FloatArray) -> int | None:
    """Return from which compared step on two trainings stay a tenth of the way apart."""
    near = np.flatnonzero(distances <= PARTED)
    after = int(near[-1]) + 1 if len(near) else 0
    return int(memory.marks[after]) if after < len(memory.marks) else None


def describe(memory: Memory) -> dict[str, Any]:
    """Return the numbers behind the figure, ready for JSON."""
    numbers: dict[str, Any] = {"run": memory.place, "steps": len(memory.printed)}
    low, high = memory.printed.beta2_range
    for form, steps in (("printed", memory.printed), ("calibrated", memory.calibrated)):
        after = slice(min(steps.warmup_steps, len(steps) - 1), None)
        beta2 = steps["beta2"][after]
        numbers[form] = {
            "wake_step": wake_step(steps),
            "awake_share": float(awake_share(steps)[after].mean()),
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
