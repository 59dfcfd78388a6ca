"""Measure what a change of subject does to AFOR in all folds of the study `awake`; write a table.

    python studies/beta2/changes.py FOLDER docs/results/when-beta2-matters

FOLDER holds the recordings. Each fold is one call of `afor analyse shift`, whose numbers are added
to `changes.json` in the second folder; a fold that is there already is not measured again.
"""

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from afor.bench.common.files import write_output
from afor.bench.stats.inference.paired_tests import exact_interval
from afor.bench.stats.labels import signed

STUDY = Path(__file__).with_name("awake.toml")
FOLDS = 10
BLOCKS = {"paper": 20, "calibrated": 5}  # as printed, AFOR is active after about 4 000 steps
COLUMNS = {"paper": "AFOR as printed", "calibrated": "AFOR calibrated"}
ROWS = {  # quantity: what the paper expects, what is printed
    "residual": ("rises", "%"),
    "agreement": ("falls", "10⁻³"),
    "score": ("falls", "%"),
    "beta2": ("falls", "10⁻⁵"),
    "beta2_share": ("falls", "% of its range"),
}
LOGARITHMIC = ("residual", "score")
SCALES = {"agreement": 1e3, "beta2": 1e5, "beta2_share": 1e2}

Measurement = dict[str, Any]  # statistics, fold, steps, events, and a difference per quantity


def measure(recordings: Path, statistics: str, fold: int, figure: Path) -> Measurement:
    """Run `afor analyse shift` on one fold; return the differences of blocks and control."""
    words = [str(Path(sys.executable).with_name("afor")), "analyse", "shift", str(STUDY)]
    words += ["--root", f"eyes={recordings}", "--fold", str(fold), "--statistics", statistics]
    words += ["--blocks", str(BLOCKS[statistics]), "--json", "--output", str(figure)]
    printed = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    report = json.loads(printed.stdout)
    links = {link["quantity"]: link for link in report["links"]}
    return {
        "statistics": statistics,
        "fold": fold,
        "steps": report["steps"],
        "events": report["events"],
        **{quantity: link["difference"] for quantity, link in links.items()},
        "beta2_share": links["beta2"]["share_of_beta2_range"],
    }


def cell(differences: Sequence[float], quantity: str) -> str:
    """Return the mean over folds with its exact 95 % interval, in the unit of the row."""
    mean = sum(differences) / len(differences)
    values = (mean, *exact_interval(differences))
    if quantity in LOGARITHMIC:
        mean, low, high = (100 * math.expm1(value) for value in values)
    else:
        mean, low, high = (SCALES[quantity] * value for value in values)
    return f"{signed(mean)} [{signed(low)}, {signed(high)}]"


def table(measurements: Sequence[Measurement]) -> str:
    """Return blocks minus control by quantity and statistics as Markdown."""
    columns = {
        name: [m for m in measurements if m["statistics"] == name]
        for name in COLUMNS
        if any(m["statistics"] == name for m in measurements)
    }
    heads = [
        f"{COLUMNS[name]}: {len(group)} folds, {group[0]['steps']} steps and "
        f"{group[0]['events']} changes each"
        for name, group in columns.items()
    ]
    lines = [f"| blocks minus control | the paper | {' | '.join(heads)} |"]
    lines.append("|---|---|" + "---:|" * len(heads))
    for quantity, (claim, unit) in ROWS.items():
        name = {"beta2": "β₂", "beta2_share": "β₂"}.get(quantity, quantity)
        cells = [cell([m[quantity] for m in group], quantity) for group in columns.values()]
        lines.append(f"| {name} ({unit}) | {claim} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(recordings: Path, folder: Path) -> None:
    """Measure the folds that are missing and write the table."""
    kept = folder / "changes.json"
    measurements = json.loads(kept.read_text("utf-8")) if kept.is_file() else []
    done = {(m["statistics"], m["fold"]) for m in measurements}
    missing = [(s, f) for s in BLOCKS for f in range(FOLDS) if (s, f) not in done]
    with tempfile.TemporaryDirectory() as unkept:
        for statistics, fold in missing:
            is_shown = (statistics, fold) == ("paper", 0)
            figure = (folder if is_shown else Path(unkept)) / "changes.png"
            measurements.append(measure(recordings, statistics, fold, figure))
            write_output(kept, json.dumps(measurements, indent=1) + "\n")
    write_output(folder / "changes.md", table(measurements))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
