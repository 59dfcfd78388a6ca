"""What is left when a comparison is killed half-way: `python benchmarks/lost_runs.py`.

Eight subjects, one left out at a time, a classifier of the same cost. The process is killed
(SIGKILL) once six folds are finished; then a fresh process looks at what was kept, goes on to the
end, and counts how many folds it had to fit again. MOABB (the extra `moabb`) and `afor run` get
the same treatment.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SUBJECTS, KILLED_AFTER = 8, 6
FIT_S = 0.5  # of each fold: long enough to be killed inside one

STUDY = f"""
name = "lost"
trainer = "lost_runs:fit_fold"
backbones = ["eegnet"]
optimizers = ["adam"]
protocol = {{ repetitions = 1 }}
datasets = [{{ name = "synthetic", options = {{ n_subjects = {SUBJECTS}, trials = 4 }} }}]
"""


def note_fit() -> None:
    """Write a line once a fold is fitted; `AFOR_LOST_RUNS` says where."""
    time.sleep(FIT_S)
    with Path(os.environ["AFOR_LOST_RUNS"]).open("a") as file:
        file.write("fitted\n")


def fit_fold(spec: Mapping[str, Any], source: Any) -> Any:  # noqa: ARG001  called by afor
    """Stand in for a training: the same cost as MOABB's pipeline here."""
    from afor.bench.training.metrics import measure
    from afor.bench.training.record import RunRecord

    note_fit()
    test = measure([0, 1], [0, 1], 2)
    return RunRecord("done", "", (), None, test, test, (1, 1), 0, 0, {}, "cpu", FIT_S)


def run_afor(folder: Path) -> int:
    """Run or resume the study; return how many folds the store held before."""
    from afor.bench.execution.engines.local import LocalEngine
    from afor.bench.execution.runner import run_study
    from afor.bench.store.database import open_store
    from afor.bench.study.schema import parse_study

    path = folder / "lost.db"
    kept = 0
    if path.exists():
        with open_store(path) as store:
            kept = len(store.results())
    run_study(parse_study(STUDY), STUDY, path, LocalEngine(1), cache_dir=folder)
    return kept


def run_moabb(folder: Path) -> int:
    """Run or resume the evaluation; return how many folds its file held before."""
    import numpy as np
    from moabb.datasets.fake import FakeDataset
    from moabb.evaluations import CrossSubjectEvaluation
    from moabb.paradigms import LeftRightImagery
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.pipeline import make_pipeline

    class Slow(ClassifierMixin, BaseEstimator):
        def fit(self, x: Any, y: Any) -> "Slow":  # noqa: ARG002
            note_fit()
            self.classes_ = np.unique(y)
            return self

        def predict(self, x: Any) -> Any:
            return np.repeat(self.classes_[:1], len(x))

        def predict_proba(self, x: Any) -> Any:
            return np.full((len(x), 2), 0.5)

    dataset = FakeDataset(["left_hand", "right_hand"], n_subjects=SUBJECTS, n_sessions=1)
    pipelines = {"slow": make_pipeline(Slow())}
    evaluation = CrossSubjectEvaluation(
        paradigm=LeftRightImagery(), datasets=[dataset], hdf5_path=str(folder)
    )
    kept = len(evaluation.results.to_dataframe())
    evaluation.process(pipelines)
    return kept


CONTENDERS = {"afor": run_afor, "moabb": run_moabb}


def fitted(log: Path) -> int:
    """Count the folds that were fitted."""
    return len(log.read_text().splitlines()) if log.exists() else 0


def start(name: str, folder: Path, log: Path) -> "subprocess.Popen[str]":
    """Start a contender in a process group of its own."""
    here = Path(__file__).resolve().parent
    paths = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    variables = {"AFOR_LOST_RUNS": str(log), "PYTHONPATH": paths, "MNE_DATA": str(folder)}
    return subprocess.Popen(
        [sys.executable, __file__, "--only", name, "--folder", str(folder)],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def measure_loss(name: str, patience_s: float = 600.0) -> dict[str, object]:
    """Kill a contender after six folds, resume it, and count."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, log = Path(temporary), Path(temporary) / "fits.txt"
        first = start(name, folder, log)
        deadline = time.monotonic() + patience_s
        while fitted(log) < KILLED_AFTER and first.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(FIT_S / 2)  # inside the seventh fold
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        time.sleep(1.0)  # workers end with their driver
        finished = fitted(log)
        second = start(name, folder, log)
        output, _ = second.communicate(timeout=patience_s)
        answer = json.loads(output.splitlines()[-1])
        return {
            "name": name,
            "finished": finished,
            "kept": answer["kept"],
            "fitted_again": fitted(log) - SUBJECTS,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=CONTENDERS, help="run one contender here and now")
    parser.add_argument("--folder", type=Path, help="where it keeps its results")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps({"kept": CONTENDERS[arguments.only](arguments.folder)}))
        return
    rows = [measure_loss(name) for name in CONTENDERS]
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{SUBJECTS} folds, killed in fold {KILLED_AFTER + 1}:")
    for row in rows:
        print(
            f"{row['name']:<6} {row['finished']} folds were finished, {row['kept']} were kept, "
            f"{row['fitted_again']} had to be fitted again"
        )


if __name__ == "__main__":
    main()
