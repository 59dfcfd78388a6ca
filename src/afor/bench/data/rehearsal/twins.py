"""Write stand-ins for data sets: files in the real formats, filled with synthetic subjects.

They allow rehearsing a study on DEAP, BCI IV 2a or ISRUC before access is granted. Each folder has
a file ``SYNTHETIC.txt`` that marks it as synthetic.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError
from afor.bench.data.dataset import STAND_IN_MARK
from afor.bench.data.datasets import bci2a, deap, isruc
from afor.bench.data.datasets.synthetic import SyntheticSettings, load_subject, subject_names
from afor.bench.data.recording import Recording
from afor.bench.data.rehearsal.writers import write_edf, write_gdf, write_python2_pickle

NOTICE = "These files are synthetic stand-ins written by `afor data twin`, not the data set.\n"
RUNS, GAP_SAMPLES = 6, 100  # of a session of BCI IV 2a
TRIAL_S, LEAD_IN_S = 7.0, 2
# ISRUC: subjects whose references are called A1 and A2 instead of M1 and M2.
A_SCHEME = frozenset(map(str, (*range(1, 8), 9, 10, 12, 15, 16, 18, 22, 24, 26)))
UNREFERENCED = "40"
EAR_CHANNELS = ("ROC", "A1", "LOC", "A2", "C4", "O2", "C3", "O1", "F4", "F3")


def write_twin(
    name: str, root: Path, subjects: Sequence[str] | None = None, *, trials: int = 0, seed: int = 0
) -> list[Path]:
    """Write a stand-in for ``deap``, ``bci2a`` or ``isruc`` into a folder; return its files.

    ``trials`` is per session of BCI IV 2a (0 for 288) or per night of ISRUC (0 for 880); None
    writes all subjects.
    """
    if name not in WRITERS:
        raise ConfigError(f"No stand-in for {name!r}; there is one for {', '.join(WRITERS)}.")
    all_subjects, write = WRITERS[name]
    if unknown := sorted(set(subjects or ()).difference(all_subjects)):
        raise ConfigError(f"{name} has no subject {', '.join(unknown)}.")
    root.mkdir(parents=True, exist_ok=True)
    (root / STAND_IN_MARK).write_text(NOTICE)
    files: list[Path] = []
    for subject in subjects or all_subjects:
        files += write(root, subject, all_subjects.index(subject), trials, seed)
    return files


def _synthesise(index: int, n_subjects: int, **options: object) -> Recording:
    settings = SyntheticSettings(n_subjects=n_subjects, **options)  # type: ignore[arg-type]
    return load_subject(settings, subject_names(settings)[index])


def _write_deap(root: Path, subject: str, index: int, _trials: int, seed: int) -> list[Path]:
    recording = _synthesise(
        index, 32, kind="emotion", channels=deap.CHANNELS, trials=40, trial_s=63, seed=seed
    )
    rng = np.random.default_rng([seed, index])
    data = np.empty(deap.DATA_SHAPE)
    data[:, :32] = recording.trials
    data[:, 32:] = rng.normal(0, 100, (40, 8, deap.DATA_SHAPE[2]))
    labels = rng.uniform(1, 9, deap.LABELS_SHAPE)
    labels[:, 0] = np.where(recording.labels == 1, rng.uniform(5.1, 9, 40), rng.uniform(1, 5, 40))
    path = root / f"{subject}.dat"
    write_python2_pickle(path, {"labels": labels, "data": data})
    return [path]


def bci2a_session(
    index: int, session: int, trials: int, seed: int
) -> tuple[NDArray[np.float64], list[tuple[int, int, int]], NDArray[np.int64]]:
    """Return one session's signal, events (sample, code, duration) and classes from 1 to 4."""
    recording = _synthesise(
        index, 9, kind="imagery", channels=bci2a.CHANNELS, rate_hz=bci2a.RATE_HZ,
        trial_s=TRIAL_S, trials=trials, seed=seed, session=session,
    )  # fmt: skip
    rng = np.random.default_rng([seed, index, session])
    lead_in, gap = LEAD_IN_S * bci2a.RATE_HZ, np.full((25, GAP_SAMPLES), np.nan)
    pieces: list[NDArray[np.float64]] = []
    events: list[tuple[int, int, int]] = []
    run_start = 0
    for run in np.array_split(np.arange(trials), min(RUNS, trials)):
        events.append((run_start, 32766, 0))
        body = np.concatenate(list(recording.trials[run]), axis=1)
        signal = np.empty((25, lead_in + body.shape[1]))
        signal[:22, :lead_in] = rng.normal(0, 10, (22, lead_in))
        signal[:22, lead_in:] = body
        signal[22:] = rng.normal(0, 40, (3, signal.shape[1]))
        for i, trial in enumerate(run):
            start = run_start + lead_in + i * recording.trials.shape[2]
            code = 783 if session else 769 + int(recording.labels[trial])
            events += [(start, bci2a.TRIAL_START, 1875)]
            if trial % 20 == 7:
                events.append((start, bci2a.REJECTED, 1875))
            events.append((start + bci2a.CUE_AFTER_START, code, 313))
        pieces += [signal, gap]
        run_start += signal.shape[1] + GAP_SAMPLES
    return np.concatenate(pieces[:-1], axis=1), events, recording.labels + 1


def _write_bci2a(root: Path, subject: str, index: int, trials: int, seed: int) -> list[Path]:
    from scipy.io import savemat

    named = {position: f"EEG-{name}" for position, name in bci2a.NAMED_AT.items()}
    labels = [named.get(i, "EEG") for i in range(22)] + ["EOG-left", "EOG-central", "EOG-right"]
    files = []
    for session, letter in enumerate("TE"):
        signal, events, classes = bci2a_session(index, session, trials or bci2a.TRIALS, seed)
        files.append(root / f"{subject}{letter}.gdf")
        write_gdf(files[-1], labels, signal, bci2a.RATE_HZ, events)
        if letter == "E":
            files.append(root / f"{subject}E.mat")
            savemat(files[-1], {"classlabel": classes[:, None].astype(np.float64)})
    return files


def _write_isruc(root: Path, subject: str, index: int, trials: int, seed: int) -> list[Path]:
    recording = _synthesise(
        index, 100, kind="sleep", rate_hz=isruc.RATE_HZ, trial_s=isruc.EPOCH_S,
        trials=trials or 880, seed=seed,
    )  # fmt: skip
    night = np.concatenate(list(recording.trials), axis=1).astype(np.float64)
    by_name = dict(zip(isruc.CHANNELS, night, strict=True))
    rng = np.random.default_rng([seed, index])
    noise = {name: rng.normal(0, 20, night.shape[1]) for name in ("LOC", "ROC", "A1", "A2")}
    if subject == UNREFERENCED:
        recorded = {name: by_name[name] + noise[isruc.REFERENCES[name][0]] for name in by_name}
        stored = {name: (noise | recorded)[name] for name in EAR_CHANNELS}
    else:
        is_a = subject in A_SCHEME
        left, right = ("LOC-A2", "ROC-A1") if is_a else ("E1-M2", "E2-M1")
        stored = {left: noise["LOC"], right: noise["ROC"]}
        for name in isruc.CHANNELS:
            if subject != isruc.NO_FRONTAL or name not in isruc.SUBSTITUTES:
                stored[f"{name}-{isruc.REFERENCES[name][0 if is_a else 1]}"] = by_name[name]
    folder = root / subject
    files = [folder / f"{subject}.rec", folder / f"{subject}_1.txt", folder / f"{subject}_2.txt"]
    write_edf(files[0], list(stored), np.stack(list(stored.values())), isruc.RATE_HZ)
    codes = {label: code for code, label in isruc.STAGES.items()}
    text = "".join(f"{codes[label]}\n" for label in recording.labels.tolist())
    for path in files[1:]:
        path.write_text(text + "\n")
    return files


WRITERS = {
    "deap": (deap.SUBJECTS, _write_deap),
    "bci2a": (bci2a.SUBJECTS, _write_bci2a),
    "isruc": (isruc.SUBJECTS, _write_isruc),
}
