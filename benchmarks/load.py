"""Measure how the commands that read results grow with the number of runs in one store.

    python benchmarks/load.py                 # 200, 2 000 and 20 000 runs
    python benchmarks/load.py 500             # other numbers

Makes stores of made-up runs (seven optimizers, four networks, two repetitions and as many folds as
it takes; AFOR's runs have traces) and prints the processor seconds and the peak memory of each
command, measured in a process of its own, and the size of the report's page.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from afor.bench.store.database import open_or_create
from afor.bench.store.tables import PlanRow
from afor.bench.training.record import Epoch, FinishedRun, Metrics, RunRecord, encode

OPTIMIZERS = ("adam", "adamw", "radam", "adamp", "sophia", "mars", "afor")
BACKBONES = ("eegnet", "acrnn", "nsal_dgat", "hslt")
REPETITIONS, EPOCHS, GROUPS = 2, 30, ("temporal", "spatial", "classifier")
TOML = """
name = "load"
datasets = ["synthetic"]
backbones = ["eegnet", "acrnn", "nsal_dgat", "hslt"]
optimizers = ["adam", "adamw", "radam", "adamp", "sophia", "mars", "afor"]
"""
COMMANDS = (["judge"], ["table", "main"], ["report"])


def made_up_run(key, optimizer, fold, rng):
    """Return a finished run of about the size of a real one."""
    right = int(rng.integers(60, 110))
    losses = 0.7 * np.exp(-np.arange(EPOCHS) / 9) + rng.normal(0, 0.01, EPOCHS) ** 2
    history = tuple(Epoch(float(loss), 0.7, 0.6, 1.0, 0.1) for loss in losses)
    share = right / 120
    test = Metrics(
        *(120, share, share, share, share, 2 * share - 1),
        confusion=((right // 2, 60 - right // 2), (60 - (right - right // 2), right - right // 2)),
        nll=1.2 - share, brier=0.4, calibration_error=0.1,
    )  # fmt: skip
    trace = {"beta2": [0.9945] * EPOCHS, "beta2_sd": [0.0] * EPOCHS, "score": [1.0] * EPOCHS}
    traces = dict.fromkeys(GROUPS, trace) if optimizer == "afor" else {}
    record = RunRecord(
        "done", "", history, 20, test, None, (600, 600), 1698, 870, traces, "cpu", 10.0
    )
    split = {"train": ["a"], "validation": ["b"], "test": [f"S{fold:04d}"]}
    spec = {"split": split, "data": {"fingerprint": "0" * 16}, "training": {}}
    return FinishedRun(key, "done", "", spec, record, "", {}, "2026-01-01T00:00:00Z", 10.0)


def make_store(path, runs):
    """Write a store of about so many runs."""
    rng = np.random.default_rng(0)
    folds = max(2, runs // (len(OPTIMIZERS) * len(BACKBONES) * REPETITIONS))
    rows = []
    with open_or_create(path) as store:
        for backbone in BACKBONES:
            for optimizer in OPTIMIZERS:
                for fold in range(folds):
                    for repetition in range(REPETITIONS):
                        key = f"{len(rows):064x}"
                        where = ("load", len(rows), "synthetic", backbone, optimizer)
                        rows.append(PlanRow(*where, fold, repetition, key, optimizer, 1e-3, 0, ""))
                        store.add(encode(made_up_run(key, optimizer, fold, rng)))
        store.replace_study("load", TOML, rows)
    return len(rows)


def measure(command, store, folder):
    """Return processor seconds and peak megabytes of one command."""
    page = ["--output", str(folder / "report.html")] if command == ["report"] else []
    afor = Path(sys.executable).with_name("afor")
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL,"
        " stderr=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)"
    )
    words = [str(afor), *command, str(store), *page]
    shown = subprocess.run(
        [sys.executable, "-c", code, *words], check=True, capture_output=True, text=True
    )
    seconds, megabytes = map(float, shown.stdout.split())
    return seconds, megabytes


def measure_store(folder, size):
    """Return the figures of one store, by name."""
    made = {"runs": make_store(folder / "load.db", size)}
    for command in COMMANDS:
        name = " ".join(command)
        made[f"{name}, s"], made[f"{name}, MB"] = measure(command, folder / "load.db", folder)
    made["page, MB"] = (folder / "report.html").stat().st_size / 1e6
    return made


def main(sizes):
    for number, size in enumerate(sizes):
        with tempfile.TemporaryDirectory() as name:
            figures = measure_store(Path(name), size)
        if number == 0:
            print(f"| {' | '.join(figures)} |", "|---:" * len(figures) + "|", sep="\n")
        runs, *rest = figures.values()
        print(f"| {runs} | {' | '.join(f'{figure:.1f}' for figure in rest)} |", flush=True)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [200, 2000, 20_000])
