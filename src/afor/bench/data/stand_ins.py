"""Write stand-ins for data sets: files in the real formats, filled with synthetic subjects.

They allow rehearsing a study on DEAP, BCI IV 2a or ISRUC before access is granted. Each folder has
a file ``STAND-IN.txt`` that marks it as a stand-in. Of BCI IV 2a it writes the release of BNCI
Horizon 2020.
"""

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError
from afor.bench.data.dataset import STAND_IN_MARK
from afor.bench.data.datasets import bci2a, deap, isruc
from afor.bench.data.datasets.synthetic import SyntheticSettings, load_subject, subject_names
from afor.bench.data.recording import Recording

NOTICE = "These files are synthetic stand-ins written by `afor data stand-in`, not the data set.\n"
RUNS = 6  # of a session of BCI IV 2a
TRIAL_S, LEAD_IN_S = 7.0, 2
# ISRUC: subjects whose references are called A1 and A2 instead of M1 and M2.
A_SCHEME = frozenset(map(str, (*range(1, 8), 9, 10, 12, 15, 16, 18, 22, 24, 26)))
UNREFERENCED = "40"
EAR_CHANNELS = ("ROC", "A1", "LOC", "A2", "C4", "O2", "C3", "O1", "F4", "F3")
Array = NDArray[np.floating]
DIGITAL_MIN, DIGITAL_MAX = -32768, 32767
SYNTHETIC = "SYNTHETIC"  # stands in the headers of the files


def write_stand_in(
    name: str, root: Path, subjects: Sequence[str] | None = None, *, trials: int = 0, seed: int = 0
) -> list[Path]:
    """Write a stand-in for ``deap``, ``bci2a`` or ``isruc`` into a folder; return its files.

    Args:
        name: The data set.
        root: The folder to write.
        subjects: Names of the subjects; None writes all.
        trials: Number of trials of a subject of DEAP (at most 40), of a session of BCI IV 2a or of
            a night of ISRUC; 0 writes as many as the data set has: 40, 288 and 880.
        seed: Seed of the synthetic signals.

    Raises:
        ConfigError: There is no stand-in for the data set, or no such subject.
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


def _write_deap(root: Path, subject: str, index: int, trials: int, seed: int) -> list[Path]:
    n_trials, n_channels, samples = deap.DATA_SHAPE
    n = min(trials or n_trials, n_trials)
    recording = _synthesise(
        index, 32, kind="emotion", channels=deap.CHANNELS, trials=n, trial_s=63, seed=seed
    )
    rng = np.random.default_rng([seed, index])
    data = np.empty((n, n_channels, samples))
    data[:, :32] = recording.trials
    data[:, 32:] = rng.normal(0, 100, (n, n_channels - 32, samples))
    labels = rng.uniform(1, 9, (n, len(deap.RATINGS)))
    labels[:, 0] = np.where(recording.labels == 1, rng.uniform(5.1, 9, n), rng.uniform(1, 5, n))
    path = root / f"{subject}.dat"
    path.write_bytes(pickle.dumps({"labels": labels, "data": data}, protocol=4))
    return [path]


def _write_bci2a(root: Path, subject: str, index: int, trials: int, seed: int) -> list[Path]:
    from scipy.io import savemat

    files = []
    n, lead_in = trials or bci2a.TRIALS, LEAD_IN_S * bci2a.RATE_HZ
    for session, letter in enumerate("TE"):
        recording = _synthesise(
            index, 9, kind="imagery", channels=bci2a.CHANNELS, rate_hz=bci2a.RATE_HZ,
            trial_s=TRIAL_S, trials=n, seed=seed, session=session,
        )  # fmt: skip
        rng = np.random.default_rng([seed, index, session])
        runs = np.empty((1, min(RUNS, n)), dtype=object)
        for number, chosen in enumerate(np.array_split(np.arange(n), runs.size)):
            body = np.concatenate(list(recording.trials[chosen]), axis=1)
            signal = rng.normal(0, 40, (bci2a.N_STORED, lead_in + body.shape[1]))
            signal[: len(body), :lead_in] /= 4
            signal[: len(body), lead_in:] = body
            starts = 1 + lead_in + np.arange(len(chosen)) * recording.trials.shape[2]
            runs[0, number] = {
                "X": signal.T.astype(np.float32),
                "trial": starts[:, None].astype(np.float64),
                "y": recording.labels[chosen, None] + 1.0,
                "fs": float(bci2a.RATE_HZ),
                "artifacts": (chosen[:, None] % 20 == 7).astype(np.float64),
            }
        files.append(root / f"{subject}{letter}.mat")
        savemat(files[-1], {"data": runs})
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


def write_edf(path: Path, labels: Sequence[str], signal_uv: Array, rate_hz: int) -> None:
    """Write a signal in microvolts, (channels, samples) and whole seconds long, as EDF."""
    n, n_records = len(labels), signal_uv.shape[1] // rate_hz
    if n_records * rate_hz != signal_uv.shape[1]:
        raise ValueError(f"{signal_uv.shape[1]} samples are no whole seconds at {rate_hz} Hz")
    limit = float(np.ceil(np.abs(signal_uv).max() + 1))
    steps = (DIGITAL_MAX - DIGITAL_MIN) / (2 * limit)
    digital = np.round((signal_uv + limit) * steps + DIGITAL_MIN).astype("<i2")
    head = [
        _text("0", 8),
        _text(SYNTHETIC, 80) * 2,
        b"01.01.0000.00.00",
        _text(str(256 * (n + 1)), 8),
        _text("", 44),
        _text(str(n_records), 8),
        _text("1", 8),
        _text(str(n), 4),
        *(_text(label, 16) for label in labels),
        _text("", 80) * n,
        _text("uV", 8) * n,
        _text(f"{-limit:.7g}", 8) * n,
        _text(f"{limit:.7g}", 8) * n,
        _text(str(DIGITAL_MIN), 8) * n,
        _text(str(DIGITAL_MAX), 8) * n,
        _text("", 80) * n,
        _text(str(rate_hz), 8) * n,
        _text("", 32) * n,
    ]
    records = digital.reshape(n, n_records, rate_hz).transpose(1, 0, 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(head) + records.tobytes())


def _text(content: str, width: int) -> bytes:
    return content.encode("ascii")[:width].ljust(width)
