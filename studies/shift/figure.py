"""Draw and tabulate gains in accuracy against the distance between subjects.

    python studies/shift/figure.py results/shift-matched.db docs/results/shift/matched
    python studies/shift/figure.py docs/results/shift/matched.csv docs/results/shift/matched

Writes NAME.md and NAME.png, and from a store also its runs, NAME.csv. The question has one number
per subject: the slope of a gain over the distances. Whether the slopes differ from zero is judged
by the exact sign-flip test.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from afor.bench.report.figures.style import save_figure
from afor.bench.stats.comparisons import Comparison, compare
from afor.bench.stats.design.power import smallest_effect
from afor.bench.stats.groups import Conditions, collect_conditions
from afor.bench.stats.inference.paired_tests import exact_interval, holm, two_sided_p
from afor.bench.stats.labels import method_label
from afor.bench.stats.results import incomplete_notes
from afor.bench.store.database import open_store
from afor.bench.store.files import export_rows, load_results, to_csv

BASELINE, CONSTANT = "adamw", "adamw_09945"
SHOWN = {
    "afor": ("#D55E00", "o"),
    "adamw_09945": ("#0072B2", "s"),
    "afor_calibrated": ("#009E73", "^"),
}
# The slopes that are tested: does it gain over AdamW, and over a constant memory as short?
PAIRS = (
    *((name, BASELINE) for name in SHOWN),
    ("afor", CONSTANT),
    ("afor_calibrated", CONSTANT),
)


@dataclass(frozen=True)
class Slope:
    """The slopes of one paired difference over the distances, one per fold."""

    label: str
    folds: list[float]  # in points per unit of shift


def shift_of(dataset: str) -> float:
    """Return the shift that the name of a data set of the study carries."""
    return float(dataset.removeprefix("shift_"))


def distances(conditions: Conditions) -> list[str]:
    """Return the data sets in the order of their shift."""
    return sorted({dataset for dataset, _, _ in conditions}, key=shift_of)


def trained(conditions: Conditions) -> set[str]:
    """Return the optimizers of the study."""
    return {optimizer for _, _, optimizer in conditions}


def fold_slopes(conditions: Conditions, optimizer: str, other: str) -> list[float]:
    """Return each fold's slope of the difference in accuracy, in points per unit of shift."""
    names = distances(conditions)
    differences = []
    for name in names:
        ours = conditions[name, "eegnet", optimizer].fold_values("accuracy")
        theirs = conditions[name, "eegnet", other].fold_values("accuracy")
        differences.append([100 * (ours[fold] - theirs[fold]) for fold in sorted(theirs)])
    lines = np.polyfit([shift_of(name) for name in names], np.array(differences), 1)
    return [float(slope) for slope in lines[0]]


def all_slopes(conditions: Conditions) -> list[Slope]:
    """Return the slopes of all pairs that the study trained."""
    names = trained(conditions)
    return [
        Slope(
            f"{method_label(one)} − {method_label(other)}",
            fold_slopes(conditions, one, other),
        )
        for one, other in PAIRS
        if {one, other} <= names
    ]


def gains(conditions: Conditions, methods: list[str]) -> dict[tuple[str, str], Comparison]:
    """Return the comparisons in accuracy with AdamW by data set and method."""
    return {
        (c.dataset, c.method): c
        for dataset in distances(conditions)
        for c in compare(
            conditions, dataset, "eegnet", "accuracy", methods=methods, baseline=BASELINE
        )
    }


def draw(conditions: Conditions) -> Any:
    """Return the figure: the gains above, the accuracy they stand on below."""
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(3.46, 3.5), sharex=True, height_ratios=[2.2, 1], layout="constrained"
    )
    names = distances(conditions)
    shifts = np.array([shift_of(name) for name in names])
    top.axhline(0, color="0.3", lw=0.8)
    shown = [name for name in SHOWN if name in trained(conditions)]
    compared = gains(conditions, shown)
    for offset, method in zip((0, 0.03, -0.03), shown, strict=False):
        gain = np.array([100 * compared[name, method].gain for name in names])
        low, high = 100 * np.array([compared[name, method].interval for name in names]).T
        colour, marker = SHOWN[method]
        top.errorbar(
            shifts + offset, gain, yerr=[gain - low, high - gain], color=colour,
            marker=marker, ms=3.5, lw=1, capsize=1.5, label=method_label(method),
        )  # fmt: skip
    top.set_ylabel("accuracy gain over AdamW\n(points, exact 95 % interval)", fontsize=7)
    top.legend(fontsize=6, frameon=False, ncols=2)
    bottom.plot(
        shifts, [mean_accuracy(conditions, name) for name in names],
        color="0.2", marker="o", ms=3, lw=1,
    )  # fmt: skip
    bottom.axhline(25, color="0.6", lw=0.8, ls="--")
    bottom.annotate("guessing", (shifts[0], 25), fontsize=6, color="0.45", va="bottom", ha="left")
    bottom.set_ylim(15, 100)
    bottom.set_ylabel("AdamW (%)", fontsize=7)
    bottom.set_xlabel("distance between subjects (shift)", fontsize=7)
    for axes in (top, bottom):
        axes.tick_params(labelsize=6.5)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def mean_accuracy(conditions: Conditions, dataset: str) -> float:
    """Return AdamW's mean over folds in percent."""
    return 100 * conditions[dataset, "eegnet", BASELINE].summary("accuracy")[0]


def points(value: float) -> str:
    """Return a number with its sign as it is printed; zero has none."""
    text = f"{value:+.2f}".replace("-", "−")
    return "0.00" if text.endswith("0.00") and len(text) == 5 else text


def gain_table(conditions: Conditions) -> list[str]:
    """Return the lines of the table of gains by distance."""
    names = [name for name in SHOWN if name in trained(conditions)]
    labels = " | ".join(method_label(name) for name in names)
    lines = [f"| shift | AdamW (%) | {labels} |", "|---:|---:|" + "---:|" * len(names)]
    compared = gains(conditions, names)
    for dataset in distances(conditions):
        cells = []
        for name in names:
            comparison = compared[dataset, name]
            gain, low, high = (
                points(100 * value) for value in (comparison.gain, *comparison.interval)
            )
            cells.append(f"{gain} ({low} to {high})")
        mean = mean_accuracy(conditions, dataset)
        lines.append(f"| {shift_of(dataset):g} | {mean:.2f} | {' | '.join(cells)} |")
    return lines


def slope_table(slopes: list[Slope]) -> list[str]:
    """Return the lines of the table of slopes."""
    lines = [
        "| slope, points per unit of shift | mean | 95 % interval | p | Holm | 80 % power for |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    p_values = [two_sided_p(slope.folds) for slope in slopes]
    for slope, p, p_holm in zip(slopes, p_values, holm(p_values), strict=True):
        low, high = exact_interval(slope.folds)
        needed = smallest_effect(float(np.std(slope.folds, ddof=1)), len(slope.folds))
        lines.append(
            f"| {slope.label} | {points(float(np.mean(slope.folds)))} | "
            f"{points(low)} to {points(high)} | {p:.3f} | {p_holm:.3f} | {needed:.2f} |"
        )
    return lines


def main(source: Path, target: Path) -> None:
    """Write the tables, the figure and the runs."""
    conditions = collect_conditions(*load_results([source]))
    for sentence in incomplete_notes(conditions):
        sys.exit(f"{source}: {sentence} `afor run` continues.")
    target.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join([*gain_table(conditions), "", *slope_table(all_slopes(conditions))]) + "\n"
    target.with_suffix(".md").write_text(text, "utf-8")
    if source.suffix == ".db":
        with open_store(source) as store:
            target.with_suffix(".csv").write_text(to_csv(export_rows(store)), "utf-8")
    save_figure(draw(conditions), target.with_suffix(".png"))
    sys.stdout.write(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
