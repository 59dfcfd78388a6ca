"""Runs per hour of a fixed small study with `afor run`, and with MOABB, skorch and torch.

    python benchmarks/study.py                   twenty synthetic people
    python benchmarks/study.py --root FOLDER     twenty people of PhysioNet, eyes open or closed
    python benchmarks/study.py --optimizer adam  one of the four optimizers, which takes less time

EEGNet, 19 channels x 160 samples, batches of 64, each person left out in turn, four optimizers.
Both train on the same windows of 15 people for the same number of epochs, validate on four, keep
the best epoch and test on one; MOABB's pipeline has EEGNet layer by layer. One process and one
thread each. Either trains few folds and then more of them, in turn; start-up is told from folds by
the difference, and all 20 folds are extrapolated. Times are processor times, which other programs
change little. Needs the extras `moabb` and `partners`.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDS = 20
EPOCHS, BATCH = 3, 64
LR, WEIGHT_DECAY = 1e-3, 1e-4
VALIDATION_SUBJECTS = 4
OPTIMIZERS = ("adam", "adamw", "radam", "afor")
RATE_HZ, SAMPLES = 160, 160
CHANNELS = (
    "Fp1", "Fp2", "F7", "F3", "Fz", "F4", "F8", "T7", "C3", "Cz",
    "C4", "T8", "P7", "P3", "Pz", "P4", "P8", "O1", "O2",
)  # fmt: skip
WINDOWS = "windows.npz"


# ------------------------------------------------------------------------------------- afor run


def dataset_text(root: str) -> str:
    """Return the data set of the study: recordings in a folder, or synthetic ones."""
    channels = json.dumps(list(CHANNELS))
    if root:
        people = json.dumps([f"S{number:03d}" for number in range(1, FOLDS + 1)])
        return f"""
[[datasets]]
name = "people"
use = "physionet_mi"
subjects = {people}
[datasets.options]
task = "eyes"
channels = {channels}
band_hz = [0.3, 50.0]
window_samples = {SAMPLES}
stride_samples = {SAMPLES}
"""
    return f"""
[[datasets]]
name = "people"
use = "synthetic"
[datasets.options]
n_subjects = {FOLDS}
n_classes = 2
trials = 120
trial_s = {SAMPLES / RATE_HZ}
rate_hz = {RATE_HZ}.0
channels = {channels}
window_samples = {SAMPLES}
stride_samples = {SAMPLES}
"""


def study_text(root: str, folds: int) -> str:
    """Return the study, restricted to its first folds."""
    return f"""
name = "study"
threads = 1
device = "cpu"
backbones = ["eegnet"]
optimizers = {json.dumps(list(OPTIMIZERS))}
[training]
lr = {LR}
weight_decay = {WEIGHT_DECAY}
batch_size = {BATCH}
max_epochs = {EPOCHS}
patience = {EPOCHS}
[protocol]
repetitions = 1
validation_share = {VALIDATION_SUBJECTS / FOLDS}
only_folds = {list(range(folds))}
{dataset_text(root)}"""


def prepare(folder: Path, root: str) -> None:
    """Write the prepared trials of the study, and its windows for MOABB."""
    import numpy as np

    from afor.bench.execution.sources import open_sources
    from afor.bench.study.schema import parse_study

    study = parse_study(study_text(root, 1))
    if root:
        entries = [entry.model_copy(update={"root": root}) for entry in study.datasets]
        study = study.model_copy(update={"datasets": entries})
    source = open_sources(study, folder / "cache")["people"]
    data = source.gather(np.arange(len(source)))
    codes = np.asarray(source.subject_codes)
    np.savez(folder / WINDOWS, data=data, labels=source.labels, subjects=codes)


def run_afor(folder: Path, folds: int, root: str) -> list[str]:
    """Return the command that trains the first folds with `afor run`."""
    file = folder / f"study-{folds}.toml"
    file.write_text(study_text(root, folds))
    store = folder / f"afor-{folds}.db"
    start = [sys.executable, "-c", "from afor.bench.cli.entry import main; main()"]
    words = ["run", str(file), "--jobs", "1", "--store", str(store), "--no-report"]
    return [*start, *words, *(["--root", f"people={root}"] if root else [])]


# ---------------------------------------------------------------------- MOABB, skorch and torch


def run_moabb(folder: Path, folds: int, root: str) -> list[str]:  # noqa: ARG001
    """Return the command that trains the first folds with MOABB."""
    named = [word for name in OPTIMIZERS for word in ("--optimizer", name)]
    return [sys.executable, __file__, "--moabb", str(folds), "--folder", str(folder), *named]


def train_with_moabb(folder: Path, folds: int) -> None:
    """Evaluate the pipelines on the first people with MOABB's cross-subject evaluation."""
    import mne
    import numpy as np
    import torch
    from moabb.datasets.base import BaseDataset
    from moabb.evaluations import CrossSubjectEvaluation
    from moabb.paradigms import MotorImagery
    from sklearn.model_selection import LeaveOneGroupOut
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer
    from skorch import NeuralNetClassifier
    from skorch.callbacks import EarlyStopping
    from torch.utils.data import Subset

    from afor import AFOR
    from afor.bench.models.input_shape import InputShape
    from afor.bench.models.registry import build_backbone

    torch.set_num_threads(1)
    mne.set_log_level("error")
    stored = np.load(folder / WINDOWS)
    data, labels, subjects = stored["data"], stored["labels"], stored["subjects"]
    names = {0: "left_hand", 1: "right_hand"}  # MOABB knows its own classes only

    class People(BaseDataset):  # type: ignore[misc]
        """The windows of each person, one after another, as a recording with events."""

        def __init__(self) -> None:
            super().__init__(
                subjects=list(range(1, FOLDS + 1)),
                sessions_per_subject=1,
                events={name: code + 1 for code, name in names.items()},
                code="People",
                interval=[0, SAMPLES / RATE_HZ],
                paradigm="imagery",
            )

        def _get_single_subject_data(self, subject: int) -> Any:
            mine = np.flatnonzero(subjects == subject - 1)
            info = mne.create_info(list(CHANNELS), RATE_HZ, "eeg")
            signal = data[mine].transpose(1, 0, 2).reshape(len(CHANNELS), -1)
            padded = np.pad(signal, ((0, 0), (0, SAMPLES)))
            raw = mne.io.RawArray(padded.astype(np.float64) * 1e-6, info)
            onsets = np.arange(len(mine)) * SAMPLES / RATE_HZ
            described = [names[label] for label in labels[mine]]
            raw.set_annotations(mne.Annotations(onsets, SAMPLES / RATE_HZ, described))
            return {"0": {"0": raw}}

        def data_path(self, *_: Any, **__: Any) -> list[str]:
            return []

    class Windows(MotorImagery):  # type: ignore[misc]
        scoring = "accuracy"

    class FirstFolds(LeaveOneGroupOut):  # type: ignore[misc]
        def split(self, X: Any, y: Any = None, groups: Any = None) -> Any:  # noqa: N803
            for fold, split in enumerate(super().split(X, y, groups)):
                if fold < folds:
                    yield split

    def last_subjects(dataset: Any, y: Any = None, **_: Any) -> Any:  # noqa: ARG001
        """Validate on the windows of the last people."""
        whole = len(dataset)
        cut = whole - whole * VALIDATION_SUBJECTS // (FOLDS - 1)
        return Subset(dataset, range(cut)), Subset(dataset, range(cut, whole))

    shape = InputShape.unnamed(len(CHANNELS), samples=SAMPLES, rate_hz=RATE_HZ, classes=2)
    optimizers = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "radam": torch.optim.RAdam,
        "afor": AFOR,
    }

    def pipeline(optimizer: type[torch.optim.Optimizer]) -> Any:
        network = NeuralNetClassifier(
            build_backbone("eegnet", shape, form="plain"),
            criterion=torch.nn.CrossEntropyLoss,
            optimizer=optimizer,
            optimizer__weight_decay=WEIGHT_DECAY,
            lr=LR,
            batch_size=BATCH,
            iterator_train__shuffle=True,
            train_split=last_subjects,
            max_epochs=EPOCHS,
            callbacks=[EarlyStopping(patience=EPOCHS, load_best=True)],
            verbose=0,
        )
        return make_pipeline(FunctionTransformer(_scaled), network)

    evaluation = CrossSubjectEvaluation(
        paradigm=Windows(n_classes=2, fmin=0.3, fmax=50.0, tmin=0.0, tmax=(SAMPLES - 1) / RATE_HZ),
        datasets=[People()],
        hdf5_path=str(folder / f"moabb-{folds}"),
        cv_class=FirstFolds,
        overwrite=True,
        n_jobs=1,
    )
    results = evaluation.process({name: pipeline(optimizers[name]) for name in OPTIMIZERS})
    if len(results) != folds * len(OPTIMIZERS):
        raise RuntimeError(f"MOABB made {len(results)} runs of {folds * len(OPTIMIZERS)}")
    print(f"mean accuracy {100 * results['score'].mean():.1f}")


def _scaled(data: Any) -> Any:
    """Return microvolts of unit variance in single precision."""
    import numpy as np

    return (data / np.std(data)).astype(np.float32)


# ---------------------------------------------------------------------------------- the contest

# Name: the command that trains folds, and how many it trains in its two turns.
CONTENDERS: dict[str, tuple[Callable[[Path, int, str], list[str]], tuple[int, int]]] = {
    "afor run": (run_afor, (1, 5)),
    "MOABB + skorch + torch": (run_moabb, (1, 2)),
}


def measure(command: list[str], folder: Path) -> tuple[float, float]:
    """Return the processor time of a command and its children, and the time on the clock."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MNE_DATA": str(folder)}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return processor_s, time.perf_counter() - started


def contest(folder: Path, root: str) -> dict[str, dict[str, float]]:
    """Train few and more folds with each contender in turn; extrapolate to all folds."""
    times: dict[tuple[str, int], float] = {}
    for turn in range(2):
        for name, (make, turns) in CONTENDERS.items():
            folds = turns[turn]
            processor_s, clock_s = measure(make(folder, folds, root), folder)
            times[name, turn] = processor_s
            print(
                f"{name}, folds x optimizers {folds} x {len(OPTIMIZERS)}: {processor_s:.1f} s of "
                f"processor time, {clock_s:.1f} s on the clock",
                flush=True,
            )
    rows = {}
    for name, (_, (few, more)) in CONTENDERS.items():
        fold_s = (times[name, 1] - times[name, 0]) / (more - few)
        start_s = max(times[name, 0] - few * fold_s, 0.0)
        whole_s = start_s + FOLDS * fold_s
        runs = FOLDS * len(OPTIMIZERS)
        rows[name] = {
            "start_s": start_s,
            "run_s": fold_s / len(OPTIMIZERS),
            "study_s": whole_s,
            "runs_per_hour": 3600 * runs / whole_s,
        }
    return rows


def main() -> None:
    global OPTIMIZERS  # the ones that were asked for
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default="", help="folder with PhysioNet's S001 to S020")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, action="append", default=[])
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    parser.add_argument("--moabb", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    OPTIMIZERS = tuple(arguments.optimizer) or OPTIMIZERS
    if arguments.moabb:
        train_with_moabb(arguments.folder, arguments.moabb)
        return
    from results import describe_machine

    machine = describe_machine()
    print(f"{machine['cpu']}, one thread")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prepare(folder, arguments.root)
        rows = contest(folder, arguments.root)
    print(f"\n{FOLDS * len(OPTIMIZERS)} runs, extrapolated to {FOLDS} folds:\n")
    print("| | start-up | a run | the study | runs per hour |\n|---|---|---|---|---|")
    for name, row in rows.items():
        print(
            f"| {name} | {row['start_s']:.1f} s | {row['run_s']:.2f} s | {row['study_s']:.0f} s "
            f"| {row['runs_per_hour']:.0f} |"
        )
    ours, theirs = (rows[name] for name in CONTENDERS)
    print(f"\nratio of runs per hour: {ours['runs_per_hour'] / theirs['runs_per_hour']:.1f}")
    print(f"ratio of the time of a run: {theirs['run_s'] / ours['run_s']:.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
