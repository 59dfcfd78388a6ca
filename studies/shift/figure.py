"""Draw and tabulate the gain over AdamW against the distance between subjects.

    python studies/shift/figure.py results/shift.db docs/results/shift/gains
    python studies/shift/figure.py results/shift-matched.db docs/results/shift/matched

Writes NAME.md, NAME.json and NAME.png; given NAME.json instead of a store, it writes the table and
the figure again. The question has one number per subject: the slope of its gain over the distances.
Whether the slopes differ from zero is judged by the exact sign-flip test.
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from afor.bench.report.figures.style import save_figure
from afor.bench.stats.comparisons import compare_all
from afor.bench.stats.design.power import smallest_effect
from afor.bench.stats.groups import Conditions, collect_conditions
from afor.bench.stats.inference.paired_tests import exact_interval, two_sided_p
from afor.bench.stats.labels import optimizer_label
from afor.bench.store.files import load_results
from afor.bench.store.results import RunResult

BASELINE, COPY = "adamw", "adamw_seed_1"
SHOWN = {
    "afor": ("#D55E00", "o"),
    "adamw_09945": ("#0072B2", "s"),
    "afor_calibrated": ("#009E73", "^"),
}
Results = dict[str, Any]  # what NAME.json holds


def shift_of(dataset: str) -> float:
    """Return the shift that the name of a data set of the study carries."""
    return float(dataset.removeprefix("shift_"))


def gains(conditions: Conditions, names: list[str]) -> dict[str, list[dict[str, float]]]:
    """Return, per optimizer and shift, the gain in points with its exact interval."""
    by_optimizer: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for c in compare_all(conditions, ["accuracy"], optimizers=names, baseline=BASELINE):
        low, high = c.interval
        row = {"gain": 100 * c.gain, "low": 100 * low, "high": 100 * high, "p": c.p_two_sided}
        by_optimizer[c.optimizer].append({"shift": shift_of(c.dataset), **row})
    return {name: sorted(rows, key=lambda row: row["shift"]) for name, rows in by_optimizer.items()}


def slopes(conditions: Conditions, optimizer: str) -> list[float]:
    """Return each fold's slope of the gain over shift, in points per unit of shift."""
    names = sorted({d for d, _, _ in conditions}, key=shift_of)
    x = np.array([shift_of(name) for name in names])
    by_fold = []
    for name in names:
        ours = conditions[name, "eegnet", optimizer].fold_values("accuracy")
        base = conditions[name, "eegnet", BASELINE].fold_values("accuracy")
        by_fold.append([100 * (ours[fold] - base[fold]) for fold in sorted(base)])
    return [float(s) for s in np.polyfit(x, np.array(by_fold), 1)[0]]


def mean_accuracy(conditions: Conditions, dataset: str) -> float:
    """Return AdamW's mean over folds in percent."""
    values = conditions[dataset, "eegnet", BASELINE].fold_values("accuracy").values()
    return 100 * float(np.mean(list(values)))


def runs_of_all(runs: list[RunResult]) -> list[RunResult]:
    """Leave out folds and draws that a distance or an optimizer does not have yet."""
    places: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for run in runs:
        places.setdefault((run.dataset, run.optimizer), set()).add((run.fold, run.draw))
    common = set.intersection(*places.values())
    return [run for run in runs if (run.fold, run.draw) in common]


def read_store(store: Path) -> Results:
    """Return the gains, slopes and accuracies of a finished study."""
    runs, _ = load_results([store])
    trained = {run.optimizer for run in runs}
    gain_rows, trend = {}, {}
    for name in (name for name in (*SHOWN, COPY) if name in trained):
        pair = [run for run in runs if run.optimizer in (name, BASELINE)]
        both = collect_conditions(runs_of_all(pair))
        folds = slopes(both, name)
        pairs = sum(c.done for (_, _, o), c in both.items() if o == name)
        trend[name] = {"slope": float(np.mean(folds)), "pairs": pairs, "folds": folds}
        if name in SHOWN:
            gain_rows |= gains(both, [name])
    conditions = collect_conditions([run for run in runs if run.optimizer == BASELINE])
    datasets = sorted({dataset for dataset, _, _ in conditions}, key=shift_of)
    return {
        "gains": gain_rows,
        "trend": trend,
        "accuracy": [[shift_of(d), mean_accuracy(conditions, d)] for d in datasets],
    }


def draw(results: Results) -> Any:
    """Return the figure: the gains above, the accuracy they stand on below."""
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(3.46, 3.5), sharex=True, height_ratios=[2.2, 1], layout="constrained"
    )
    top.axhline(0, color="0.3", lw=0.8)
    for offset, (name, rows) in zip((-0.03, 0, 0.03), results["gains"].items(), strict=False):
        colour, marker = SHOWN[name]
        x, gain, low, high = (
            np.array([row[key] for row in rows]) for key in ("shift", "gain", "low", "high")
        )
        top.errorbar(
            x + offset, gain, yerr=[gain - low, high - gain], color=colour,
            marker=marker, ms=3.5, lw=1, capsize=1.5, label=optimizer_label(name),
        )  # fmt: skip
    top.set_ylabel("accuracy gain over AdamW\n(points, 95 % interval)", fontsize=7)
    top.legend(fontsize=6, frameon=False, ncols=2)
    shifts, accuracies = zip(*results["accuracy"], strict=True)
    bottom.plot(shifts, accuracies, color="0.2", marker="o", ms=3, lw=1)
    bottom.axhline(25, color="0.6", lw=0.8, ls="--")
    bottom.annotate("chance", (shifts[0], 25), fontsize=6, color="0.45", va="bottom", ha="left")
    bottom.set_ylim(15, 100)
    bottom.set_ylabel("AdamW (%)", fontsize=7)
    bottom.set_xlabel("distance between subjects (shift)", fontsize=7)
    for axes in (top, bottom):
        axes.tick_params(labelsize=6.5)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def as_markdown(results: Results) -> str:
    """Return the two tables of the page: gains by distance, and slopes."""
    names = list(results["gains"])
    labels = " | ".join(optimizer_label(name) for name in names)
    lines = [f"| shift | AdamW (%) | {labels} |", "|---:|---:|" + "---:|" * len(names)]
    for i, (shift, mean) in enumerate(results["accuracy"]):
        cells = []
        for name in names:
            row = results["gains"][name][i]
            cells.append(f"{row['gain']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})")
        lines.append(f"| {shift:g} | {mean:.2f} | {' | '.join(cells)} |")
    lines += [
        "",
        "| slope, points per unit of shift | mean | 95 % interval | p | found with 80 % power |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, trend in results["trend"].items():
        folds = trend["folds"]
        low, high = exact_interval(folds)
        needed = smallest_effect(float(np.std(folds, ddof=1)), len(folds))
        lines.append(
            f"| {optimizer_label(name)} | {trend['slope']:+.2f} | {low:+.2f} to {high:+.2f} | "
            f"{two_sided_p(folds):.3f} | {needed:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main(source: Path, target: Path) -> None:
    """Write the table, the numbers and the figure."""
    is_numbers = source.suffix == ".json"
    results = json.loads(source.read_text("utf-8")) if is_numbers else read_store(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = as_markdown(results)
    target.with_suffix(".md").write_text(text, "utf-8")
    target.with_suffix(".json").write_text(f"{json.dumps(results, indent=1)}\n", "utf-8")
    save_figure(draw(results), target.with_suffix(".png"))
    sys.stdout.write(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
