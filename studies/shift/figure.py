"""Draw and tabulate the gain over AdamW against the shift between subjects.

    python studies/shift/figure.py results/shift.db docs/results/shift

The question has one number per subject: the slope of the gain over the five shifts. Whether the
slopes are above zero is judged by the exact sign-flip test.
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from afor.bench.report.figures.style import save_figure
from afor.bench.stats.comparisons import compare_all
from afor.bench.stats.groups import Conditions, collect_conditions
from afor.bench.stats.labels import optimizer_label
from afor.bench.stats.paired_tests import sign_flip_p
from afor.bench.store.files import load_results

BASELINE, COPY = "adamw", "adamw_seed_1"
SHOWN = {
    "afor": ("#D55E00", "o"),
    "adamw_09945": ("#0072B2", "s"),
    "afor_calibrated": ("#009E73", "^"),
}


def shift_of(dataset: str) -> float:
    """Return the shift that the name of a data set of the study carries."""
    return float(dataset.removeprefix("shift_"))


def gains(conditions: Conditions) -> dict[str, list[dict[str, Any]]]:
    """Return, per optimizer and shift, the gain in points with its interval and the noise."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in SHOWN}
    for c in compare_all(conditions, ["accuracy"], optimizers=list(SHOWN), baseline=BASELINE):
        found[c.optimizer].append(
            {
                "shift": shift_of(c.dataset),
                "gain": 100 * c.gain,
                "low": 100 * c.interval[0],
                "high": 100 * c.interval[1],
                "noise": None if c.floor is None else 100 * c.floor,
                "p": c.p,
            }
        )
    return {name: sorted(rows, key=lambda row: row["shift"]) for name, rows in found.items()}


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


def draw(found: dict[str, list[dict[str, Any]]], accuracy: list[tuple[float, float]]) -> Any:
    """Return the figure: the gains above, the accuracy they stand on below."""
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(3.46, 3.5), sharex=True, height_ratios=[2.2, 1], layout="constrained"
    )
    rows = found["afor"]
    x = [row["shift"] for row in rows]
    noise = [row["noise"] for row in rows]
    top.fill_between(x, [-n for n in noise], noise, color="0.88", lw=0, label="noise floor (A/A)")
    top.axhline(0, color="0.3", lw=0.8)
    for offset, (name, (colour, marker)) in zip((-0.03, 0, 0.03), SHOWN.items(), strict=True):
        rows = found[name]
        gain = np.array([row["gain"] for row in rows])
        low, high = (np.array([row[key] for row in rows]) for key in ("low", "high"))
        top.errorbar(
            np.array(x) + offset, gain, yerr=[gain - low, high - gain], color=colour,
            marker=marker, ms=3.5, lw=1, capsize=1.5, label=optimizer_label(name),
        )  # fmt: skip
    top.set_ylabel("accuracy gain over AdamW\n(points, 95 % interval)", fontsize=7)
    top.legend(fontsize=6, frameon=False, ncols=2)
    bottom.plot(*zip(*accuracy, strict=True), color="0.2", marker="o", ms=3, lw=1)
    bottom.axhline(25, color="0.6", lw=0.8, ls="--")
    bottom.annotate("chance", (x[0], 25), fontsize=6, color="0.45", va="bottom", ha="left")
    bottom.set_ylabel("AdamW (%)", fontsize=7)
    bottom.set_xlabel("shift between subjects", fontsize=7)
    for axes in (top, bottom):
        axes.tick_params(labelsize=6.5)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def mean_accuracy(conditions: Conditions, dataset: str) -> float:
    """Return AdamW's mean over folds in percent."""
    values = conditions[dataset, "eegnet", BASELINE].fold_values("accuracy").values()
    return 100 * float(np.mean(list(values)))


def as_markdown(
    found: dict[str, list[dict[str, Any]]],
    accuracy: list[tuple[float, float]],
    trend: dict[str, dict[str, Any]],
) -> str:
    """Return the two tables of the page."""
    labels = " | ".join(optimizer_label(name) for name in SHOWN)
    lines = [
        f"| shift | AdamW (%) | {labels} | noise |",
        "|---:|---:|" + "---:|" * (len(SHOWN) + 1),
    ]
    for i, (shift, mean) in enumerate(accuracy):
        row = [f"{found[name][i]['gain']:+.2f} (p {found[name][i]['p']:.2f})" for name in SHOWN]
        noise = found["afor"][i]["noise"]
        lines.append(f"| {shift:g} | {mean:.2f} | {' | '.join(row)} | ±{noise:.2f} |")
    lines += ["", "| | points per unit of shift | one-sided p |", "|---|---:|---:|"]
    for name, found_trend in trend.items():
        slope, p = found_trend["slope"], found_trend["p"]
        lines.append(f"| {optimizer_label(name)} | {slope:+.2f} | {p:.3f} |")
    return "\n".join(lines) + "\n"


def main(store: Path, folder: Path) -> None:
    """Write gains.md, gains.json and the figure into the folder."""
    conditions = collect_conditions(*load_results([store]))
    found = gains(conditions)
    names = sorted({dataset for dataset, _, _ in conditions}, key=shift_of)
    accuracy = [(shift_of(name), mean_accuracy(conditions, name)) for name in names]
    trend = {}
    for name in (*SHOWN, COPY):  # the copy shows what slope identical methods have
        each = slopes(conditions, name)
        trend[name] = {"slope": float(np.mean(each)), "p": sign_flip_p(each), "folds": each}
    folder.mkdir(parents=True, exist_ok=True)
    text = as_markdown(found, accuracy, trend)
    (folder / "gains.md").write_text(text, "utf-8")
    numbers = json.dumps({"gains": found, "trend": trend}, indent=1)
    (folder / "gains.json").write_text(f"{numbers}\n", "utf-8")
    save_figure(draw(found, accuracy), folder / "gain_over_shift.png")
    sys.stdout.write(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
