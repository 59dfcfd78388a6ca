"""Show a landscape: figure, Table V of the paper with ours, and section of the report."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.analyses.landscape.plane import PLANES
from afor.bench.analyses.landscape.record import Landscape, PathInPlane
from afor.bench.report.figures import style
from afor.bench.report.page import Section
from afor.bench.report.tables.formats import Table
from afor.bench.report.tables.paper import measured_table
from afor.bench.stats.labels import method_label, share_text, task_label
from afor.bench.stats.paper_numbers import published

CONTOURS = 14
SKEWED = 0.3  # if the median loss lies lower in the range, bands cover equal shares of the plane
TICKS = 5  # along each direction
SHOWN_MARKERS = 12  # per path; a marker for each of 200 epochs would hide the line
HALO = 1.2  # width of the white outline of a path, in points
AXIS_NAMES = {
    "random": "random direction {}",
    "filter": "random direction {}, filter-normalised",
    "pca": "principal direction {} of the paths",
}


@style.house_style()
def landscape_figure(result: Landscape) -> Any:
    """Draw the loss around a solution and all paths; the legend says how much of them it shows."""
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import MaxNLocator

    figure, axes = style.new_figure(90)
    axis = axes[0, 0]
    bar = _contours(figure, axis, result)
    for number, (name, path) in enumerate(_center_last(result)):
        color, marker = style.color_of(name, number), style.marker_of(name, number)
        share = share_text(path.explained_share)
        x, y = np.array(path.x), np.array(path.y)
        halo = [withStroke(linewidth=1.3 + 2 * HALO, foreground="white")]
        axis.plot(x, y, color=color, linewidth=1.3, zorder=3, path_effects=halo)
        axis.plot(
            x, y, color=color, linewidth=1.3, zorder=4, marker=marker, markersize=3,
            markeredgecolor="white", markeredgewidth=0.4,
            markevery=max(1, round(len(x) / SHOWN_MARKERS)),
            label=style.plain(f"{method_label(name)}: {share} of its path lies in the plane"),
        )  # fmt: skip
        axis.plot(
            x[path.solution], y[path.solution], marker="*", markersize=9, color=color,
            markeredgecolor="white", markeredgewidth=0.7, zorder=6, linestyle="",
        )  # fmt: skip
    start = next(iter(result.paths.values()))
    axis.plot(
        start.x[0], start.y[0], marker="o", markersize=5.5, color="white", zorder=5,
        markeredgecolor="black", markeredgewidth=0.9, linestyle="", label="start of all paths",
    )  # fmt: skip
    star_label = f"weights that a run keeps; (0, 0): {method_label(result.center)}'s"
    axis.plot([], [], marker="*", markersize=7, color="#555555", linestyle="",
              label=style.plain(star_label))  # fmt: skip
    span = result.span
    axis.set(xlim=(-span, span), ylim=(-span, span), aspect="equal")
    for number, side in enumerate((axis.xaxis, axis.yaxis), start=1):
        side.set_label_text(AXIS_NAMES[result.directions].format(number))
        side.set_major_locator(MaxNLocator(TICKS))
    axis.set_title(style.plain(task_label(result.dataset, result.backbone)))
    bar.set_label(f"training loss, {result.windows:,} windows")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower left", ncols=1)
    return figure


def _center_last(result: Landscape) -> list[tuple[str, PathInPlane]]:
    """Return the paths so that the one whose solution is the center is drawn on top."""
    return sorted(result.paths.items(), key=lambda item: item[0] == result.center)


def _contours(figure: Any, axis: Any, result: Landscape) -> Any:
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.ticker import FuncFormatter

    loss = np.ma.masked_invalid(np.array(result.loss, dtype=np.float64))
    levels = contour_levels(loss.compressed())
    # Low loss is dark; the darkest and the lightest end are left to the paths and their halo.
    shades = colormaps["GnBu_r"](np.linspace(0.25, 0.95, len(levels) - 1))
    colors = ListedColormap(shades)
    x = np.array(result.axis)
    filled = axis.contourf(x, x, loss, levels, cmap=colors, norm=BoundaryNorm(levels, colors.N))
    axis.contour(x, x, loss, levels, colors="white", linewidths=0.35)
    axis.set_facecolor("#F2F2F2")  # where the loss is not finite
    ticks = levels[::2]
    bar = figure.colorbar(filled, cax=axis.inset_axes([1.03, 0, 0.05, 1]), ticks=ticks)
    bar.outline.set_linewidth(0.5)
    digits = tick_digits(ticks)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.{digits}f}"))
    bar.ax.minorticks_off()
    return bar


def contour_levels(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return increasing levels from the lowest to the highest loss, also when all are equal."""
    if losses.size == 0:
        return np.array([0.0, 1.0])
    low, high = float(losses.min()), float(losses.max())
    if high - low <= 1e-9 * max(abs(high), 1.0):
        return np.array([low - 0.5e-6, low + 0.5e-6])
    if np.median(losses) - low < SKEWED * (high - low):
        return np.unique(np.quantile(losses, np.linspace(0, 1, CONTOURS)))
    levels = np.linspace(low, high, CONTOURS)
    levels[0], levels[-1] = low, high  # rounding must not leave a hole at either end
    return levels


def tick_digits(ticks: NDArray[np.float64]) -> int:
    """Return how many decimals tell all ticks apart, at least two.

    >>> tick_digits(np.array([1.2314, 1.2316, 1.2319]))
    4
    """
    for digits in range(2, 12):
        if len({f"{tick:.{digits}f}" for tick in ticks}) == len(ticks):
            return digits
    return 12


PRINTED = ("minimum_loss", "path_length")  # by the paper
LANDSCAPE_LABELS = {
    "minimum_loss": "minimum projected loss",
    "path_length": "path length",
    "minimum_true_loss": "minimum true loss",
    "path_length_full": "path length, all dimensions",
    "explained_percent": "path in the plane (%)",
    "step_percent": "steps in the plane (%)",
}


def landscape_table(ours: Landscape) -> Table:
    """Return Table V, with our values below the paper's."""
    section = published()["landscape"]
    paper = {key: {name: row[key] for name, row in section["cells"].items()} for key in PRINTED}
    measures = {
        key: {name: getattr(path, key) for name, path in ours.paths.items()}
        for key in ("minimum_loss", "path_length", "minimum_true_loss", "path_length_full")
    }
    for key in ("explained", "step"):
        shares = {name: getattr(path, f"{key}_share") for name, path in ours.paths.items()}
        measures[f"{key}_percent"] = {name: 100 * share for name, share in shares.items()}
    names = list(dict.fromkeys([*section["cells"], *ours.paths]))
    title = f"Loss landscape, {section['place']}"
    table = measured_table("landscape", title, names, LANDSCAPE_LABELS, paper, measures)
    return replace(table, notes=(_note(ours),))


def _note(result: Landscape) -> str:
    points = len(result.axis)
    return (
        f"ours: {result.study}: {result.label}; {result.directions} directions of "
        f"{result.weights:,} weights, seed {result.seed}, around "
        f"{method_label(result.center)}'s solution; {points} x {points} points from "
        f"{-result.span:.4g} to {result.span:.4g}; {result.windows:,} of "
        f"{result.training_windows:,} training windows in evaluation mode; batch norm "
        f"{result.batch_norm}. In the plane: share of the squared displacement."
    )


def landscape_section(measured: Landscape) -> Section:
    """Return the figure, the findings and the table of a landscape as a section of a report."""
    return Section(
        name="landscape",
        title="Loss landscape",
        figure=landscape_figure(measured),
        caption=f"{measured.label}; {measured.directions} directions. One run, not a mean.",
        findings=findings(measured),
        table=landscape_table(measured),
    )


def findings(result: Landscape) -> list[str]:
    """Return sentences on what the numbers show and their limits."""
    shares = [path.explained_share for path in result.paths.values()]
    texts = [
        f"The plane keeps {share_text(min(shares))} to {share_text(max(shares))} of the squared "
        "displacement of the paths."
    ]
    if result.directions != "pca":
        texts[0] += (
            f" Two random directions of {result.weights:,} keep {share_text(2 / result.weights)} "
            "of any path on average: such a picture shows the shadows of the paths, not the paths."
        )
    losses = np.array(result.loss)
    losses = losses[np.isfinite(losses)]
    true = np.concatenate([path.true_loss for path in result.paths.values()])
    if losses.size:
        texts.append(
            f"Over the whole grid the loss varies by {np.ptp(losses):.2g}; along the true paths it "
            f"varies by {np.ptp(true):.2g}."
        )
    label = method_label(result.center)
    texts.append(
        f"{label}'s solution lies in the middle, where its projected loss is its true one; every "
        f"other projected loss is that of {label}'s weights, moved by what the plane keeps of a "
        "path. Compare optimizers by the true loss."
    )
    spread = [
        f"{path.random_length_mean:.3g} ± {path.random_length_sd:.2g} ({method_label(name)})"
        for name, path in result.paths.items()
        if not math.isnan(path.random_length_mean)
    ]
    if spread:
        texts.append(
            f"Length in the plane depends on the plane: mean ± SD over {PLANES} random ones "
            f"{', '.join(spread)}."
        )
    epochs = {path.epochs for path in result.paths.values()}
    if len(epochs) > 1:
        texts.append(
            "The runs ended after different numbers of epochs (early stopping), so their lengths "
            "do not compare."
        )
    if any(max(map(abs, (*p.x, *p.y))) > result.span for p in result.paths.values()):
        texts.append("A path leaves the grid; without --span the grid holds all of them.")
    return texts
