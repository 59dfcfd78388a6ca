"""Write the tables, figures and files of the page on PhysioNet from its finished store.

    python studies/physionet/results.py results/physionet.db docs/results/physionet
    python studies/physionet/results.py docs/results/physionet/runs.csv docs/results/physionet

Everything is made by commands of `afor`; this file only lists them. From the exported runs it makes
all but the export.
"""

import subprocess
import sys
from pathlib import Path

STUDY, MATCHED = "physionet", "physionet-matched-physionet_mi-eegnet"


def commands(store: Path, folder: Path) -> list[list[str]]:
    """Return the commands, one per file."""
    of_study = [str(store), "--study", STUDY]
    of_both = [str(store), "--study", STUDY, "--study", MATCHED]
    accuracy = ["--metric", "accuracy"]
    names = ("adamw", "adamw_09945", "adamw_mean", "adamw_mean_per_tensor", "afor_calibrated")
    controls = [word for name in names for word in ("--method", name)]
    against_afor = ["--baseline", "afor", *accuracy, *controls]
    export = ["export", str(store), "--output", str(folder / "runs.csv")]
    return [
        *([export] if store.suffix != ".csv" else []),
        ["table", "main", *of_study, "--output", str(folder / "main.md")],
        ["table", "main", *of_study, "--output", str(folder / "main.tex")],
        ["table", "comparisons", *of_study, *accuracy, "--output", str(folder / "gains.md")],
        ["table", "comparisons", *of_study, "--output", str(folder / "gains.json")],
        ["table", "comparisons", *of_both, *against_afor, "--output", str(folder / "controls.md")],
        ["table", "noise", *of_study, "--output", str(folder / "noise.md")],
        ["figure", "gain", *of_study, "--output", str(folder / "gain.png")],
        ["figure", "folds", *of_study, "--output", str(folder / "folds.png")],
    ]


def main(store: Path, folder: Path) -> None:
    """Run them all; stop at the first that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    afor = Path(sys.executable).with_name("afor")
    for command in commands(store, folder):
        sys.stderr.write(f"afor {' '.join(command)}\n")
        subprocess.run([str(afor), *command], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
