"""Write the tables, figures and files of the page on PhysioNet from its finished store.

    python studies/physionet/results.py results docs/results/physionet
    python studies/physionet/results.py docs/results/physionet docs/results/physionet

Everything is made by commands of `afor`; this file only lists them. The first folder holds the
stores, or the runs that were exported from them.
"""

import csv
import subprocess
import sys
from pathlib import Path
from statistics import fmean, median, stdev

STUDY, MATCHED = "physionet", "physionet-matched-physionet_mi-eegnet"
HELD = "physionet-held"  # the study again; tensors without a function are not trained


def commands(source: Path, folder: Path) -> list[list[str]]:
    """Return the commands, one per file."""
    stores = {"runs": source / f"{STUDY}.db", "held": source / f"{HELD}.db"}
    files = {name: str(folder / f"{name}.csv") for name in stores}
    exports = [
        ["export", str(store), "--output", files[name]]
        for name, store in stores.items()
        if store.is_file()
    ]
    of_study = [files["runs"], "--study", STUDY]
    of_both = [*of_study, "--study", MATCHED]
    of_held = [files["held"], "--study", HELD]
    accuracy = ["--metric", "accuracy"]
    names = ("adamw", "adamw_09945", "adamw_mean", "adamw_mean_per_tensor", "afor_calibrated")
    controls = [word for name in names for word in ("--method", name)]
    against_afor = ["--baseline", "afor", *accuracy, *controls]
    return [
        *exports,
        ["table", "main", *of_study, "--output", str(folder / "main.md")],
        ["table", "main", *of_study, "--output", str(folder / "main.tex")],
        ["table", "comparisons", *of_study, *accuracy, "--output", str(folder / "gains.md")],
        ["table", "comparisons", *of_study, "--output", str(folder / "gains.json")],
        ["table", "comparisons", *of_both, *against_afor, "--output", str(folder / "controls.md")],
        ["table", "comparisons", *of_held, *accuracy, "--output", str(folder / "held.md")],
        ["table", "comparisons", *of_held, "--output", str(folder / "held.json")],
        ["table", "noise", *of_study, "--output", str(folder / "noise.md")],
        ["figure", "gain", *of_study, "--output", str(folder / "gain.png")],
        ["figure", "folds", *of_study, "--output", str(folder / "folds.png")],
    ]


PAIRS = (("adamw", "adam"), ("afor", "adam"), ("afor_seed_1", "adam_seed_1"))
ROWS = (("all tensors trained", "runs", STUDY), ("two tensors held", "held", HELD))


def agreement(folder: Path) -> str:
    """Return how far two methods agree run by run, in both studies, as Markdown."""
    lines = [
        "| study | comparison | runs of equal accuracy | median difference of a run | "
        "SD over subjects | largest differences of a subject |",
        "|---|---|---:|---:|---:|---|",
    ]
    for label, name, study in ROWS:
        accuracies: dict[str, dict[str, list[float]]] = {}
        with (folder / f"{name}.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["study"] == study:
                    subjects = accuracies.setdefault(row["method"], {})
                    subjects.setdefault(row["test_subjects"], []).append(float(row["accuracy"]))
        for method, base in PAIRS:
            runs = {
                subject: [100 * (a - b) for a, b in zip(ours, theirs, strict=True)]
                for (subject, ours), theirs in zip(
                    accuracies[method].items(), accuracies[base].values(), strict=True
                )
            }
            single = [difference for pair in runs.values() for difference in pair]
            means = {subject: fmean(pair) for subject, pair in runs.items()}
            largest = sorted(means, key=lambda subject: -abs(means[subject]))[:4]
            cells = [
                label,
                f"{method} − {base}",
                f"{sum(abs(difference) < 1e-9 for difference in single)} of {len(single)}",
                f"{median(map(abs, single)):.2f}",
                f"{stdev(means.values()):.2f}",
                ", ".join(f"{subject} {means[subject]:+.1f}" for subject in largest),
            ]
            lines.append(f"| {' | '.join(cells)} |".replace("-", "−"))
    return "\n".join(lines) + "\n"


def main(source: Path, folder: Path) -> None:
    """Run them all; stop at the first that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    afor = Path(sys.executable).with_name("afor")
    for command in commands(source, folder):
        sys.stderr.write(f"afor {' '.join(command)}\n")
        subprocess.run([str(afor), *command], check=True)
    (folder / "agreement.md").write_text(agreement(folder), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
