"""Find when AFOR's controller becomes active and when AFOR departs from AdamW; draw it.

    memory = watch_memory(find_run(load_study("demo")), steps=6000)
    memory.printed["beta2"]       # (steps, tensors)
    memory.distances["printed"]   # from AdamW at the middle of the range, at `memory.marks`

The same run is trained with AFOR as printed, with calibrated statistics, with its controller held
still, and with three AdamWs; all start from the same weights and see the same batches. Distances
are between logits of the validation subjects: some tensors move without changing these.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from matplotlib.ticker import FuncFormatter, LogLocator
from numpy.typing import NDArray
from torch import nn

from afor.bench.analyses.replay import ChosenRun, replay
from afor.bench.analyses.step_log import FloatArray, StepLog, Steps
from afor.bench.common.devices import pick_device
from afor.bench.common.errors import ConfigError
from afor.bench.report.figures import style
from afor.bench.report.figures.curves import DASHES
from afor.bench.training.batches import Batch
from afor.bench.training.execute import run_settings
from afor.bench.training.fit import Fit
from afor.monitor import ACTIVE

MARKS_PER_DECADE = 24  # steps per factor of ten at which logits are compared
WINDOWS = 256  # of the validation subjects, whose logits are compared
HALF = 0.5  # share of active tensors from which on the controller counts as active
SMOOTH_STEPS = 100  # the share of active tensors is averaged over this many steps
PARTED = 0.1  # relative distance from which on two trainings count as parted
NUDGE = 1e-6  # relative change of the learning rate; shows how far training amplifies a tiny change
# With so large a scale every z-score is 0: beta2 stays in the middle after the warm-up.
INACTIVE = {"normalization": "fixed", "fixed_scale": 1e30}

BINS = 48  # bins of steps to average in, evenly on a logarithmic scale
LEAST_SHOWN = 1e-3  # percent: smaller distances are rounding errors
LEAST_SIGMA = 1e-3
STYLES = {
    "printed": {"color": style.VERMILION, "linewidth": 1.5},
    "calibrated": {"color": style.COLOR_CYCLE[0], "linewidth": 1.2, "linestyle": DASHES[1]},
    "inactive": {"color": style.COLOR_CYCLE[2], "linewidth": 1.2, "linestyle": DASHES[4]},
    "longest": {"color": "#444444", "linewidth": 1.0, "linestyle": DASHES[2]},
    "nudged": {"color": style.GREY, "linewidth": 0.9, "linestyle": DASHES[3]},
}


@dataclass(frozen=True)
class Memory:
    """One run watched step by step, beside AdamW at constant beta2."""

    label: str  # of the run
    printed: Steps
    calibrated: Steps
    marks: NDArray[np.int64]  # steps at which logits were compared
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


def watch_memory(
    run: ChosenRun, steps: int = 0, progress: Callable[[str], None] | None = None
) -> Memory:
    """Train a run with AFOR and with the optimizers it is compared with.

    Args:
        run: A run of AFOR.
        steps: Number of steps, without early stopping; 0 trains as long as the run itself.
        progress: Called with the name of each training before it starts.
    """
    if steps < 0:
        raise ConfigError(f"--steps {steps}: expected 1 or more, or 0 for the run as it was.")
    logs = {"printed": StepLog(), "calibrated": StepLog()}
    snapshots: dict[str, dict[int, torch.Tensor]] = {}

    def train(name: str, run: ChosenRun) -> None:
        if progress is not None:
            progress(COMPARED.get(name, name))
        snapshots[name] = _train(run, logs.get(name))

    train("printed", extend(run, steps) if steps else run)
    printed = logs["printed"].result()
    length = min(steps or len(printed), len(printed))
    run = extend(run, length)
    spec = run.planned.spec["optimizer"]
    settings = spec["settings"]
    low, high = printed.beta2_range
    middle = round((low + high) / 2, 12)  # 0.9945 itself, not its neighbour
    reference_name = f"AdamW at {middle:g}"
    beta1 = settings.get("betas", (0.9, 0.999))[0]
    constant = {"betas": (beta1, middle), "eps": settings.get("eps", 1e-8)}
    others = {
        "calibrated": (spec["name"], {**settings, "statistics": "calibrated"}),
        reference_name: ("adamw", constant),
        "inactive": (spec["name"], {**settings, **INACTIVE}),
        "longest": ("adamw", {**constant, "betas": (beta1, high)}),
    }
    for name, (optimizer, changed) in others.items():
        train(name, with_optimizer(run, optimizer, changed))
    train("nudged", with_optimizer(run, "adamw", constant, lr_factor=1 + NUDGE))
    reference = snapshots.pop(reference_name)
    start = reference[0]
    marks = np.array([step for step in reference if 0 < step <= length])

    def distances(of: Mapping[int, torch.Tensor], origin: Mapping[int, torch.Tensor]) -> FloatArray:
        """Return the distances from the origin, relative to how far that is from the start."""
        return np.array(
            [float((of[t] - origin[t]).norm() / (origin[t] - start).norm()) for t in marks]
        )

    return Memory(
        run.label,
        printed.first(length),
        logs["calibrated"].result().first(length),
        marks,
        {name: distances(taken, reference) for name, taken in snapshots.items()},
        middle,
        distances(snapshots["printed"], snapshots["inactive"]),
    )


def _train(run: ChosenRun, log: StepLog | None) -> dict[int, torch.Tensor]:
    """Train a run; return its logits at the compared steps, by step, and at step 0."""
    predict = validation_logits(run)
    taken = {0: predict(run.initial_model())}

    def watch(fit: Fit, batch: Batch, loss: torch.Tensor) -> None:
        if log is not None:
            log.watch(fit, batch, loss)
        if is_mark(fit.steps + 1):
            taken[fit.steps + 1] = predict(fit.model)

    replay(run, watch_step=watch)
    return taken


def validation_logits(run: ChosenRun) -> Callable[[nn.Module], torch.Tensor]:
    """Return a function that gives a network's logits of some windows of validation subjects."""
    device = pick_device(run.settings.device)
    side = run.side("validation", device)
    spread = np.linspace(0, len(side.indices) - 1, min(WINDOWS, len(side.indices))).astype(int)
    inputs = side.load(side.indices[spread]).inputs

    def predict(model: nn.Module) -> torch.Tensor:
        was_training = model.training
        with torch.inference_mode():
            logits: torch.Tensor = model.to(device).eval()(inputs).float().cpu()
        model.train(was_training)
        return logits

    return predict


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


def is_mark(step: int) -> bool:
    """Tell whether logits are compared at this step: about 24 times per factor of ten.

    >>> [step for step in range(1, 30) if is_mark(step)]
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 17, 18, 20, 22, 24, 27, 29]
    """
    return step == 1 or int(np.log10(step) * MARKS_PER_DECADE) > int(
        np.log10(step - 1) * MARKS_PER_DECADE
    )


def active_share(steps: Steps) -> FloatArray:
    """Return, per step, the share of tensors whose absolute z-score is beyond 0.5."""
    share: FloatArray = (np.abs(steps["zscore"]) > ACTIVE).mean(axis=1)
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


def memory_content(memory: Memory) -> dict[str, Any]:
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
        name: _distance_content(memory, values) for name, values in memory.distances.items()
    }
    numbers["adaptation"] = _distance_content(memory, memory.adaptation)
    return numbers


def _distance_content(memory: Memory, values: FloatArray) -> dict[str, Any]:
    return {
        "part_step": part_step(memory, values),
        "last": float(values[-1]),
        "by_step": dict(zip(map(int, memory.marks), map(float, values), strict=True)),
    }


@style.house_style()
def memory_figure(memory: Memory) -> Any:
    """Draw |z|, beta2, sigma and the active share over steps, and the distance from AdamW."""
    figure = style.empty_figure(172)
    grid = figure.add_gridspec(5, 2, height_ratios=[1, 1, 0.8, 0.8, 1.15])
    last = max(len(memory.printed), 2)
    rows: list[list[Any]] = []
    for number in range(4):
        left = figure.add_subplot(grid[number, 0])
        rows.append([left, figure.add_subplot(grid[number, 1], sharey=left)])
    forms = ((memory.printed, "AFOR as printed"), (memory.calibrated, "calibrated statistics"))
    for column, (steps, title) in enumerate(forms):
        rows[0][column].set_title(title)
        _column([row[column] for row in rows], steps)
        for row in rows:
            row[column].set(xscale="log", xlim=(1, last))
            row[column].grid(axis="y")
            row[column].tick_params(labelleft=column == 0, labelbottom=row is rows[-1])
            row[column].xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        rows[-1][column].set_xlabel("step")
    rows[0][0].set(ylabel="|ζ|, mean of steps")
    rows[1][0].set(ylabel="β₂", ylim=memory.printed.beta2_range)
    rows[2][0].set(ylabel="σ of the score", yscale="log", ylim=(LEAST_SIGMA, 1.5))
    rows[3][0].set(ylabel="active (%)", ylim=(0, 100))
    _distances(figure.add_subplot(grid[4, :]), memory, last)
    title = "layer groups; band: range over their tensors"
    style.legend_below(figure, rows[0][0], 4, handlelength=2.6, title=title, title_fontsize=6.5)
    figure.align_ylabels()
    figure.suptitle(style.plain(memory.label), fontsize=7, x=0.01, ha="left")
    return figure


def _column(axes: Sequence[Any], steps: Steps) -> None:
    zscore, beta2, spread, active = axes
    for number, (group, members) in enumerate(steps.groups.items()):
        color, dash = style.color_at(number), DASHES[number % len(DASHES)]
        for axis, values in (
            (zscore, np.abs(steps["zscore"])),
            (beta2, steps["beta2"]),
            (spread, steps["score_std"]),
        ):
            at, means = log_means(values[:, members])
            axis.plot(at, means.mean(axis=1), color=color, linestyle=dash, label=style.plain(group))
            if len(members) > 1:  # the range over the tensors of the group
                axis.fill_between(
                    at, means.min(axis=1), means.max(axis=1), color=color, alpha=0.12, linewidth=0
                )
    at, share = log_means(100 * active_share(steps)[:, None])
    active.plot(at, share[:, 0], color="black")
    low, high = steps.beta2_range
    zscore.axhline(ACTIVE, color=style.GREY, linestyle=":", zorder=0)
    beta2.axhline((low + high) / 2, color=style.GREY, linestyle=":", zorder=0)
    for axis in axes:
        axis.axvspan(1, max(steps.warmup_steps, 1), color="#F2F2F2", zorder=-1, linewidth=0)
    for axis, level in ((zscore, ACTIVE), (beta2, (low + high) / 2)):
        axis.annotate(
            f"{level:g}", (1.01, level), xycoords=("axes fraction", "data"), ha="left",
            va="center", fontsize=5.5, color="#555555", annotation_clip=False,
        )  # fmt: skip
    if steps.warmup_steps > 1:
        zscore.text(1.15, 0.97, "warm-up", transform=zscore.get_xaxis_transform(), va="top",
                    fontsize=6, color="#555555")  # fmt: skip
    since = active_step(steps)
    words = f"half active from step {since}" if since else "never half active"
    active.text(
        0.98, 0.92, words, transform=active.transAxes, ha="right", va="top", fontsize=6,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8},
    )  # fmt: skip


def _distances(axis: Any, memory: Memory, last: int) -> None:
    labels = {**COMPARED, "longest": f"AdamW {memory.printed.beta2_range[1]:g}"}
    for name, values in memory.distances.items():
        # The distance is 0 before the first difference, which a logarithmic scale cannot show.
        shown = np.where(values > 0, 100 * values, np.nan)
        axis.plot(memory.marks, shown, label=labels[name], **STYLES[name])
    axis.axhline(100 * PARTED, color=style.GREY, linestyle=":", zorder=0)
    axis.set(xscale="log", yscale="log", xlabel="step", ylabel="distance (%)")
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_major_locator(LogLocator(numticks=9))
    axis.set_title(f"logits: distance from AdamW {memory.middle:g}, of the way it travelled")
    axis.set(xlim=(1, last), ylim=(LEAST_SHOWN, None))
    axis.legend(loc="lower right", ncols=2, handlelength=2.6)
    axis.grid(axis="y")


def log_means(values: FloatArray, bins: int = BINS) -> tuple[NDArray[np.float64], FloatArray]:
    """Average (steps, tensors) over bins that are even on a logarithmic scale of steps.

    Returns the middle step of each bin and the means, (bins, tensors).

    >>> log_means(np.array([[1.0], [2.0], [4.0], [6.0]]), bins=2)[1].ravel().tolist()
    [1.5, 5.0]
    """
    edges = np.unique(np.geomspace(1, len(values) + 1, bins + 1).round().astype(np.int64))
    means = np.stack([values[a - 1 : b - 1].mean(axis=0) for a, b in pairwise(edges)])
    return np.sqrt(edges[:-1] * (edges[1:] - 1.0)), means
