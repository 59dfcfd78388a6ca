"""Write the tables, figures and files of the page on PhysioNet from its finished store.

    python studies/physionet/results.py results docs/results/physionet
    python studies/physionet/results.py docs/results/physionet docs/results/physionet

Everything is made by commands of `afor`; this file only lists them. The first folder holds the
stores, or the runs that were exported from them.
"""

import subprocess
import sys
from pathlib import Path

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


def main(source: Path, folder: Path) -> None:
    """Run them all; stop at the first that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    afor = Path(sys.executable).with_name("afor")
    for command in commands(source, folder):
        sys.stderr.write(f"afor {' '.join(command)}\n")
        subprocess.run([str(afor), *command], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
