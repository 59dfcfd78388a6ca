"""The figure of `afor analyse shift`: what follows a change of subject, beside shuffled batches."""

from functools import partial
from typing import Any

import numpy as np

from afor.bench.analyses.adaptation.shift import ALL, Link, Quantity, Shift
from afor.bench.report.figures import style

ROW_MM = 38
ANSWERS = {"as claimed": "so it does", "the opposite": "the opposite", "not seen": "not seen"}


@style.house_style()
def shift_figure(shift: Shift) -> Any:
    """Draw one row per link of the claimed chain: over steps, and by layer group."""
    figure = style.empty_figure(16 + ROW_MM * len(shift.links))
    axes = figure.subplots(
        len(shift.links), 2, squeeze=False, gridspec_kw={"width_ratios": [1.25, 1]}
    )
    for (curves, groups), link in zip(axes, shift.links, strict=True):
        _curves(curves, link)
        _groups(groups, shift, link)
    axes[-1, 0].set_xlabel("batches since the change of subject")
    axes[-1, 1].set_xlabel("mean over the first 10 batches, 95 % interval")
    axes[0, 1].set_title("by layer group")
    style.legend_below(figure, axes[0, 0], 3)
    figure.align_ylabels(axes[:, 0])
    words = (
        f"{shift.label}; {shift.events} changes, {shift.subjects_per_block} at a time for "
        f"{shift.batches_per_block} batches; score statistics: {shift.statistics}"
    )
    figure.suptitle(style.plain(words), fontsize=7, x=0.01, ha="left")
    return figure


def _curves(axis: Any, link: Link) -> None:
    show = partial(_shown, link.quantity, link.beta2_range)
    claim = "rises" if link.quantity.direction > 0 else "falls"
    for response, color, dash, label in (
        (link.shuffled, style.GREY, "--", "shuffled batches, pseudo-events"),
        (link.blocked, style.VERMILION, "-", "blocks of subjects"),
    ):
        axis.plot(response.offsets, show(response.mean), color=color, linestyle=dash, label=label)
        axis.fill_between(
            response.offsets, show(response.low), show(response.high), color=color,
            alpha=0.18, linewidth=0,
        )  # fmt: skip
    axis.axhline(0, color="black", linewidth=0.5)
    axis.axvline(-0.5, color=style.BLUE, linewidth=0.8, linestyle=":")
    axis.set_ylabel(_unit(link.quantity))
    axis.set_title(f"{link.quantity.label}: the paper says it {claim}; {ANSWERS[link.answer]}")
    axis.margins(x=0.01)
    axis.grid(axis="y")


def _groups(axis: Any, shift: Shift, link: Link) -> None:
    show = partial(_shown, link.quantity, link.beta2_range)
    names = list(shift.blocked[link.quantity.name])
    for number, name in enumerate(names):
        for responses, color, marker, offset in (
            (shift.shuffled, style.GREY, "s", 0.16),
            (shift.blocked, style.VERMILION, "o", -0.16),
        ):
            response = responses[link.quantity.name][name]
            low, high = show(response.interval)
            axis.plot([low, high], [number + offset] * 2, color=color, linewidth=0.9)
            axis.plot(
                show(response.size), number + offset, color=color, marker=marker, markersize=3,
                markeredgewidth=0,
            )  # fmt: skip
    axis.axvline(0, color="black", linewidth=0.5)
    axis.set_yticks(np.arange(len(names)), [style.plain(name) for name in names])
    axis.get_yticklabels()[names.index(ALL)].set_fontweight("bold")
    axis.tick_params(axis="y", labelsize=5.5, length=0)
    axis.invert_yaxis()
    axis.grid(axis="x")
    axis.text(
        1.0, 1.02, _unit(link.quantity), transform=axis.transAxes, ha="right", va="bottom",
        fontsize=5.5, color="#444444",
    )  # fmt: skip


def _shown(quantity: Quantity, beta2_range: tuple[float, float], values: Any) -> Any:
    if quantity.name == "beta2":
        return 100 / (beta2_range[1] - beta2_range[0]) * np.asarray(values)
    return 100 * np.expm1(values) if quantity.relative else np.asarray(values)


def _unit(quantity: Quantity) -> str:
    if quantity.name == "beta2":
        return "% of its range"
    return "change (%)" if quantity.relative else "change"
