"""Describe a landscape: its computation, its numbers and their limits, and its report section."""

import math

import numpy as np

from afor.bench.analyses.landscape.figure import landscape_figure
from afor.bench.analyses.landscape.plane import PLANES
from afor.bench.analyses.landscape.record import Landscape, content_of
from afor.bench.analyses.landscape.table import landscape_table
from afor.bench.report.page import Section
from afor.bench.stats.labels import optimizer_label, share_text


def describe(result: Landscape) -> str:
    """Return how the landscape was computed and its numbers, as text with a small table."""
    points = len(result.axis)
    directions = {
        "random": "two random directions, made orthonormal",
        "filter": "two random directions, filter-normalised; biases and batch norm do not move",
        "pca": "the two principal directions of all paths",
    }
    norm = (
        "statistics of the center" if result.batch_norm == "fixed" else "recomputed at each point"
    )
    lines = [
        f"{result.study}: {result.label}; center: {optimizer_label(result.center)}'s solution",
        f"plane: {directions[result.directions]}, seed {result.seed}; {result.weights:,} weights",
        f"loss: {result.windows:,} of {result.training_windows:,} training windows, evaluation "
        f"mode, batch norm ({result.norm_layers} layers): {norm}",
        f"grid: {points} x {points} from {-result.span:.4g} to {result.span:.4g}; all losses in "
        f"{result.grid_s:.0f} s on {result.workers} core{'s' if result.workers > 1 else ''}",
        "",
        f"{'':12s}{'min. loss':>12s}{'min. loss':>12s}{'length':>10s}{'length':>10s}"
        f"{'path in':>12s}{'steps in':>12s}{'epochs':>8s}",
        f"{'':12s}{'projected':>12s}{'true':>12s}{'in plane':>10s}{'all dim.':>10s}"
        f"{'the plane':>12s}{'the plane':>12s}{'':>8s}",
    ]
    lines += [
        f"{optimizer_label(name):12s}{path.minimum_loss:12.4f}{path.minimum_true_loss:12.4f}"
        f"{path.path_length:10.3f}{path.path_length_full:10.3f}"
        f"{share_text(path.explained_share):>12s}{share_text(path.step_share):>12s}{path.epochs:8d}"
        for name, path in result.paths.items()
    ]
    return "\n".join([*lines, "", *findings(result)])


def landscape_section(measured: Landscape) -> Section:
    """Return the figure, the findings and the table of a landscape as a section of a report."""
    return Section(
        name="landscape",
        title="Loss landscape",
        figure=landscape_figure(measured),
        caption=f"{measured.label}; {measured.directions} directions. One run, not a mean.",
        findings=findings(measured),
        table=landscape_table(content_of(measured)),
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
    label = optimizer_label(result.center)
    texts.append(
        f"{label}'s solution lies in the middle, where its projected loss is its true one; every "
        f"other projected loss is that of {label}'s weights, moved by what the plane keeps of a "
        "path. Compare optimizers by the true loss."
    )
    spread = [
        f"{path.random_length_mean:.3g} ± {path.random_length_sd:.2g} ({optimizer_label(name)})"
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
