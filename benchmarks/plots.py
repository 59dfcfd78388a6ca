"""Two pictures, each legible at the width of one column: ratios per workload, and scaling."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from contenders import CONTENDERS, YARDSTICK
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator
from results import Record, Results, ratio

COLUMN_INCHES = 4.2
# Okabe and Ito's colours, told apart by all common forms of colour vision; shapes say it again.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v")
INK, FAINT = "#222222", "#d0d0d0"
SHORT = {
    "eegnet": "EEGNet",
    "hslt": "HSLT",
    "resnet50": "ResNet-50",
    "gpt2": "GPT-2",
    "single": "100 M tensor",
}
STYLE = {
    "font.size": 8.5,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.7,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "savefig.dpi": 200,
}


def draw(results: Results, folder: Path) -> list[Path]:
    """Write the pictures that the results allow and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(STYLE):
        for name, make in (("speed-ratios", _ratios), ("speed-scaling", _scaling)):
            figure = make(results)
            if figure is not None:
                path = folder / f"{name}.png"
                figure.savefig(path, bbox_inches="tight", pad_inches=0.06)
                plt.close(figure)
                written.append(path)
    return written


def _ratios(results: Results) -> plt.Figure | None:
    """Draw each contender's time over that of torch AdamW fused, one mark a workload."""
    threads = min((r.threads for r in results.records), default=1)
    by_workload = {
        name: rows for name in SHORT if (rows := _rows(results, name, threads)) and len(rows) > 1
    }
    if not by_workload:
        return None
    reference = {
        n: next(r for r in rows if r.contender == YARDSTICK) for n, rows in by_workload.items()
    }
    present = {r.contender for rows in by_workload.values() for r in rows}
    order = sorted(present, key=list(CONTENDERS).index)  # from below; AFOR comes last
    figure, axes = plt.subplots(figsize=(COLUMN_INCHES, 0.9 + 0.27 * len(order)))
    for y, name in enumerate(order):
        axes.axhline(y, color=FAINT, linewidth=0.6, zorder=0)
        if name.startswith("afor-"):
            axes.axhspan(y - 0.5, y + 0.5, color="#eef4fa", zorder=-1, linewidth=0)
    axes.axvline(1.0, color=INK, linewidth=0.9, zorder=1)
    step = 0.12
    for i, (workload, rows) in enumerate(by_workload.items()):
        shift = (i - (len(by_workload) - 1) / 2) * -step
        heights, spreads = [], []
        for row in rows:
            heights.append(order.index(row.contender) + shift)
            spreads.append(ratio(row, reference[workload]))
        centres = [s.median for s in spreads]
        below = [s.median - s.low for s in spreads]
        above = [s.high - s.median for s in spreads]
        axes.errorbar(
            centres, heights, xerr=[below, above], fmt=MARKERS[i], color=COLOURS[i],
            markersize=4.2, markeredgecolor="white", markeredgewidth=0.4, elinewidth=0.9,
            label=SHORT[workload], zorder=3,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yticks(range(len(order)), [CONTENDERS[name].label for name in order])
    for tick, name in zip(axes.get_yticklabels(), order, strict=True):
        tick.set_fontweight("bold" if name == "afor-fused" else "normal")
    axes.set_ylim(-0.6, len(order) - 0.4)
    axes.tick_params(axis="y", length=0)
    _multiples(axes)
    plural = "s" if threads > 1 else ""
    axes.set_xlabel(
        f"←  faster     time of a step, torch AdamW fused = 1     slower  →\n"
        f"({threads} thread{plural}; bars: quartiles)"
    )
    _frame(axes)
    columns = min(len(by_workload), 3)
    axes.legend(
        loc="lower center", bbox_to_anchor=(0.35, 1.0), ncols=columns, frameon=False,
        handletextpad=0.1, columnspacing=1.0, borderaxespad=0.2,
    )  # fmt: skip
    return figure


def _scaling(results: Results) -> plt.Figure | None:
    """Draw the time of a step against the number of parameters."""
    rows = [r for r in results.records if r.workload.startswith("scaling-") and r.samples_us]
    names = [name for name in CONTENDERS if any(r.contender == name for r in rows)]
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(COLUMN_INCHES, 3.4))
    ends = []
    for i, name in enumerate(names):
        mine = sorted((r for r in rows if r.contender == name), key=lambda r: r.parameters)
        x = [r.parameters for r in mine]
        spreads = [r.time_us for r in mine]
        colour = COLOURS[len(names) - 1 - i]  # the last one, AFOR fused, is blue
        axes.plot(
            x, [s.median for s in spreads], marker=MARKERS[len(names) - 1 - i], color=colour,
            markersize=4.2, linewidth=2.0 if name == "afor-fused" else 1.2,
            markeredgecolor="white", markeredgewidth=0.4, zorder=3,
            label=CONTENDERS[name].label,
        )  # fmt: skip
        axes.fill_between(
            x, [s.low for s in spreads], [s.high for s in spreads], color=colour, alpha=0.15,
            linewidth=0,
        )  # fmt: skip
        ends.append(spreads[0].median)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(_duration))
    axes.grid(visible=True, color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"parameters in one tensor ({rows[0].threads} thread)")
    axes.set_ylabel("time of a step")
    _frame(axes)
    handles, labels = axes.get_legend_handles_labels()
    by_height = sorted(range(len(names)), key=lambda i: -ends[i])  # as the lines begin
    axes.legend(
        [handles[i] for i in by_height], [labels[i] for i in by_height],
        loc="lower center", bbox_to_anchor=(0.42, 1.0), ncols=2, frameon=False,
        columnspacing=1.2, borderaxespad=0.2,
    )  # fmt: skip
    return figure


def _rows(results: Results, workload: str, threads: int) -> list[Record]:
    return [r for r in results.records if r.group == (workload, threads, "kept") and r.samples_us]


def _multiples(axes: Axes) -> None:
    """Label a logarithmic axis with plain multiples."""
    marks: Sequence[float] = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
    axes.xaxis.set_major_locator(FixedLocator(marks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _duration(us: float, _: object) -> str:
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if us >= scale:
            return f"{us / scale:g} {unit}"
    return f"{us:g} µs"


def _frame(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
