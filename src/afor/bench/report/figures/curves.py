"""Draw training: convergence, sensitivity to settings, forgetting coefficients."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError
from afor.bench.report.figures import style
from afor.bench.report.tables.formats import Table
from afor.bench.stats.groups import ConditionKey
from afor.bench.stats.guessing import guess_level
from afor.bench.stats.labels import (
    dataset_label,
    method_label,
    metric_style,
    order_methods,
    task_label,
)
from afor.bench.stats.results import Results
from afor.bench.stats.sensitivity import LABELS, default_of
from afor.bench.store.files import is_store

WARMUP_STEPS = 100  # Sec. IV-C
Floats = NDArray[np.float64]
Run = Sequence[float] | Floats
Curves = Mapping[tuple[str, str], Mapping[str, Sequence[Run]]]  # task: method: one per run
Trace = Mapping[str, Mapping[str, Sequence[float]]]  # layer group: quantity: one value per epoch
LOG_FROM = 4.0  # losses that span more than this factor stand on a logarithmic axis
LAST = 0.25  # share of the epochs that count as the end of a training
BETA2_RANGE = (0.99, 0.999)  # of AFOR; wider where a variant goes beyond it
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (6, 2)))


def loss_curves(results: Results, part: Literal["train", "validation"] = "train") -> Curves:
    """Return the loss per epoch of every run of the methods, by task and method.

    Raises:
        ConfigError: No store is named, or no run of these methods has a history.
    """
    _need_store(results)
    made = results.training.curves
    curves = {
        task: {
            name: [getattr(curve, part) for curve in made[*task, name]]
            for name in order_methods(results.methods)
            if (*task, name) in made
        }
        for task in results.tasks
    }
    curves = {task: runs for task, runs in curves.items() if runs}
    if not curves:
        raise ConfigError("There is no training loss here: no finished run of these methods.")
    return curves


def learning_figure(results: Results) -> Any:
    """Draw training and validation loss, and the loss of guessing."""
    curves = loss_curves(results)
    levels = {
        task: guessed_loss(results, (*task, next(iter(methods))))
        for task, methods in curves.items()
    }
    return convergence_figure(curves, loss_curves(results, "validation"), levels)


def guessed_loss(results: Results, key: ConditionKey) -> float:
    """Return the loss of answering with the class frequencies, mean over runs; NaN if not known."""
    condition = results.conditions.get(key)
    runs = condition.runs.values() if condition else ()
    levels = [guess_level("nll", run) for run in runs]
    return math.fsum(levels) / len(levels) if levels else math.nan


def run_traces(
    results: Results, method: str = "afor"
) -> tuple[list[Trace], list[float], str, float]:
    """Return traces of one method on one network; losses, title, warm-up of the first run.

    The warm-up is in epochs, of AFOR's default of 100 steps.
    """
    _need_store(results)
    traced = {
        key: runs for key, runs in results.training.traced.items() if key[:2] in results.tasks
    }
    networks = dict.fromkeys(key[:2] for key in traced)
    selected = [runs for key, runs in traced.items() if key[2] == method]
    if not selected:
        present = ", ".join(dict.fromkeys(name for _, _, name in traced)) or "none"
        raise ConfigError(
            f"No run of {method!r} here has traces of its beta2; only AFOR and its variants "
            f"have them. Methods with traces: {present}."
        )
    if len(networks) > 1:
        pairs = ", ".join(f"{dataset}/{backbone}" for dataset, backbone in networks)
        raise ConfigError(f"Choose one network with --dataset and --backbone. Here: {pairs}.")
    run, first = selected[0][0]
    title = f"{task_label(run.dataset, run.backbone)}, fold {run.fold}, repetition {run.repetition}"
    losses = [epoch.train_loss for epoch in first.history]
    warmup_epochs = WARMUP_STEPS * len(losses) / max(first.steps, 1)
    return [record.traces for _, record in selected[0]], losses, title, warmup_epochs


def _need_store(results: Results) -> None:
    for path in results.paths:
        if not is_store(path):
            raise ConfigError(
                f"{path} holds results only. Curves are in the store of a study; give that."
            )


@style.house_style()
def convergence_figure(
    curves: Curves,
    validation: Curves | None = None,
    levels: Mapping[tuple[str, str], float] | None = None,
) -> Any:
    """Draw the mean training loss over runs per method, the middle half of the runs as a band.

    Args:
        curves: The training losses of the runs by task and method.
        validation: Their validation losses, drawn as thin lines; None draws none.
        levels: The loss of guessing by task, drawn as a grey line; None draws none.
    """
    figure, axes = style.new_figure(14 + 36 * len(curves), rows=len(curves))
    for axis, (task, by_method) in zip(axes[:, 0], curves.items(), strict=True):
        for position, (name, runs) in enumerate(by_method.items()):
            mean, low, high = mean_and_band(runs)
            epochs = np.arange(1, len(mean) + 1)
            color = style.color_of(name, position)
            axis.plot(
                epochs, mean, color=color,
                # AFOR's broad line is below, so that coinciding curves are both visible.
                linestyle="-" if name == "afor" else DASHES[1 + position % (len(DASHES) - 1)],
                linewidth=2.0 if name == "afor" else 1.0,
                zorder=2 if name == "afor" else 3, label=style.plain(method_label(name)),
            )  # fmt: skip
            if len(runs) > 2:
                axis.fill_between(epochs, low, high, color=color, alpha=0.13, linewidth=0)
            if validation is not None:
                checked = mean_and_band(validation[task][name])[0]
                axis.plot(epochs, checked, color=color, linestyle=":", linewidth=0.9)
        means = [value for line in axis.lines for value in line.get_ydata()]
        if levels is not None and math.isfinite(levels[task]):
            axis.axhline(levels[task], color="0.6", linewidth=0.8)
        if min(means) > 0 and max(means) > LOG_FROM * min(means):
            axis.set_yscale("log")
            _plain_log_ticks(axis)
        axis.grid(axis="y", which="both")
        axis.set_ylabel("training loss" if validation is None else "loss")
        axis.set_title(style.plain(task_label(*task)))
    for axis in axes[:, 0]:
        _whole_epochs(axis)
    counts = sorted({len(runs) for panel in curves.values() for runs in panel.values()})
    number = "–".join(str(count) for count in dict.fromkeys([counts[0], counts[-1]]))
    note = f"line: mean of {number} run{'s' * (number != '1')}"
    note += "; band: the middle half of the runs" if counts[-1] > 2 else ""
    if validation is not None:
        note += "\ndotted: validation; grey: guessing by the class frequencies"
    if early := runs_ended_early(curves):
        note += f"\n{early} runs ended early and leave the mean where they end"
    _legend(figure, axes[0, 0], note)
    return figure


def mean_and_band(runs: Sequence[Run]) -> tuple[Floats, Floats, Floats]:
    """Return the mean per epoch and the quartiles; a run that ended early counts up to its end.

    >>> mean_and_band([[1.0, 3.0], [2.0]])[0].tolist()
    [1.5, 3.0]
    """
    whole = np.full((len(runs), max(len(run) for run in runs)), np.nan)
    for i, run in enumerate(runs):
        whole[i, : len(run)] = run
    low, high = np.nanquantile(whole, [0.25, 0.75], axis=0)
    return np.nanmean(whole, axis=0), low, high


def runs_ended_early(curves: Curves) -> int:
    """Count the runs with fewer epochs than the longest of their panel."""
    count = 0
    for by_method in curves.values():
        lengths = [len(run) for runs in by_method.values() for run in runs]
        count += sum(length < max(lengths) for length in lengths)
    return count


@style.house_style()
def sensitivity_figure(table: Table) -> Any:
    """Draw the mean over one setting at a time, the default dashed: a column per task.

    All panels span as many points, so that equal changes look equal in each.

    Args:
        table: The table of the sensitivity by one metric.
    """
    records: Sequence[Mapping[str, Any]] = table.records
    settings = dict.fromkeys(record["setting"] for record in records)
    tasks = dict.fromkeys((record["dataset"], record["backbone"]) for record in records)
    several = len({backbone for _, backbone in tasks}) > 1
    rows, columns = len(settings), len(tasks)
    figure, axes = style.new_figure(14 + 40 * rows, rows=rows, columns=columns)
    for row, setting in zip(axes, settings, strict=True):
        for column, task in enumerate(tasks):
            points = [
                r
                for r in records
                if (r["setting"], r["dataset"], r["backbone"]) == (setting, *task)
            ]
            label = task_label(*task) if several else dataset_label(task[0])
            _sensitivity_panel(row[column], points, label, column)
            if columns > 1:
                row[column].tick_params(axis="x", labelsize=5)
    limits = [axis.get_ylim() for axis in axes.flat]
    half = max(high - low for low, high in limits) / 2
    for axis, (low, high) in zip(axes.flat, limits, strict=True):
        axis.set_ylim((low + high) / 2 - half, (low + high) / 2 + half)
    note = "dashed: default"
    if any(record.get("margin") for record in records):
        note += "; bands: margin of equivalence around the default"
    if axes.size > 1:
        note += "\nall axes span as many points"
    figure.supxlabel(note, **style.NOTE)
    return figure


def _sensitivity_panel(
    axis: Any, records: Sequence[Mapping[str, Any]], task: str, number: int
) -> None:
    """Draw the means of one setting on one task."""
    look, setting = metric_style(records[0]["metric"]), records[0]["setting"]
    color, marker, default = style.color_at(number), style.marker_at(number), default_of(setting)
    values = [record["value"] for record in records]
    means = [look.scale * record["mean"] for record in records]
    # The values are not evenly spaced: they are drawn at equal distances, by rank.
    axis.plot(
        range(len(values)), means, color=color, marker=marker, markersize=3.6,
        linestyle=DASHES[number % len(DASHES)],
    )  # fmt: skip
    if default in values:
        position = values.index(default)
        axis.plot(
            position, means[position], marker=marker, markersize=6,
            markerfacecolor="white", markeredgecolor=color, markeredgewidth=1.3, zorder=4,
        )  # fmt: skip
        margin = next((r["margin"] for r in records if r.get("margin")), None)
        if margin:
            low, high = (means[position] + look.scale * side for side in (-margin, margin))
            axis.axhspan(low, high, color=color, alpha=0.1, linewidth=0, zorder=0)
        axis.axvline(position, color=style.GREY, linestyle=(0, (4, 2)), linewidth=0.9, zorder=0)
    axis.set_ylabel(f"{style.plain(task)}\n{style.plain(look.with_unit)}", color=color)
    axis.tick_params(axis="y", colors=color)
    axis.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axis.set_xlabel(LABELS[setting])
    axis.grid(axis="y")


@style.house_style()
def forgetting_figure(
    runs: Sequence[Trace],
    train_loss: Sequence[float] | None = None,
    title: str = "",
    warmup_epochs: float = 0.0,
) -> Any:
    """Draw beta2 per layer group over epochs, score against beta2, and beta2 at the end.

    All axes of beta2 span its whole range, so that a small movement looks small.

    Args:
        runs: Traces of runs of one backbone; the first panel shows the first of them.
        train_loss: Training loss of the first run, by epoch.
        title: Name of the first run.
        warmup_epochs: Length of the warm-up, shown in grey; epochs within it are not in the boxes.
    """
    groups = list(runs[0])
    shade = min(0.15, 0.5 / len(groups))  # many overlapping bands stay readable
    figure, axes = style.new_figure(150, rows=3)
    over, against, end = axes[:, 0]
    for i, group in enumerate(groups):
        trace = runs[0][group]
        beta2, sd = np.array(trace["beta2"]), np.array(trace["beta2_sd"])
        epochs = np.arange(1, len(beta2) + 1)
        color = style.color_at(i)
        over.plot(
            epochs, beta2, color=color, label=style.plain(group), linestyle=DASHES[i % len(DASHES)]
        )
        over.fill_between(epochs, beta2 - sd, beta2 + sd, color=color, alpha=shade, linewidth=0)
        scores = np.concatenate([np.array(run[group]["score"]) for run in runs if group in run])
        values = np.concatenate([np.array(run[group]["beta2"]) for run in runs if group in run])
        marker = style.marker_at(i)
        against.scatter(scores, values, s=5, color=color, marker=marker, linewidth=0, alpha=0.6)
    if train_loss is not None:
        side = over.twinx()
        side.plot(np.arange(1, len(train_loss) + 1), train_loss, color=style.GREY, linewidth=0.9)
        side.set_ylabel("training loss (grey)", color="#555555")
        side.spines["right"].set_visible(True)
    if warmup_epochs:
        over.axvspan(0.5, 0.5 + warmup_epochs, color="#F2F2F2", linewidth=0, zorder=-1)
    _whole_epochs(over)
    over.set(title=style.plain(f"a  {title}".rstrip()), ylabel="β₂ ± SD within the epoch")
    against.set(title="b  score against β₂, one point per epoch", xlabel="score", ylabel="β₂")
    last = [_last_values(runs, group, warmup_epochs) for group in groups]
    name = "c  the last quarter of the epochs"
    end.set(title=name if any(last) else f"{name} lies within the warm-up", ylabel="β₂")
    _draw_boxes(end, last)
    end.set_xticks(
        range(1, len(groups) + 1), [style.plain(group) for group in groups],
        rotation=25 if len(groups) > 4 else 0, ha="right" if len(groups) > 4 else "center",
    )  # fmt: skip
    seen = [value for run in runs for trace in run.values() for value in trace["beta2"]]
    low, high = min(BETA2_RANGE[0], *seen), max(BETA2_RANGE[1], *seen)
    gap = 0.02 * (high - low)  # a value at a bound is not drawn on the frame
    for axis in axes[:, 0]:
        axis.grid(axis="y")
        axis.ticklabel_format(axis="y", useOffset=False)
        axis.set_ylim(low - gap, high + gap)
    _legend(figure, over)
    return figure


def _draw_boxes(axis: Any, values: Sequence[Any]) -> None:
    """Draw a box for the values of each layer group, in the colour of the group."""
    thin = {"linewidth": 0.6}
    boxes = axis.boxplot(
        values, widths=0.55, patch_artist=True, medianprops={"color": "black"}, boxprops=thin,
        whiskerprops=thin, capprops=thin, flierprops={"marker": ".", "markersize": 2},
    )  # fmt: skip
    for number, box in enumerate(boxes["boxes"]):
        box.set_facecolor(style.color_at(number))
        box.set_alpha(0.6)


def _last_values(runs: Sequence[Trace], group: str, warmup_epochs: float) -> list[float]:
    """Return beta2 in the last quarter of the epochs, without epochs of the warm-up."""
    values: list[float] = []
    for run in runs:
        if group in run:
            beta2 = list(run[group]["beta2"])
            first = len(beta2) - max(1, round(LAST * len(beta2)))
            values += beta2[max(first, math.ceil(warmup_epochs)) :]
    return values


def _plain_log_ticks(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))


def _legend(figure: Any, axis: Any, note: str = "") -> None:
    _, labels = axis.get_legend_handles_labels()
    # About 60 characters fit across a column; each entry also takes a line and gaps.
    columns = max(1, min(4, len(labels), 60 // (max(len(label) for label in labels) + 7)))
    options = {"handlelength": 2.6, "title": note or None, "title_fontsize": style.NOTE["fontsize"]}
    style.legend_below(figure, axis, columns, **options).get_title().set_color(style.NOTE["color"])


def _whole_epochs(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10], integer=True))
    axis.set_xlabel("epoch")
