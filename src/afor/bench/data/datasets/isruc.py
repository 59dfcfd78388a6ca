"""ISRUC-Sleep subgroup I: a hundred nights, five sleep stages, six EEG channels.

It reads the recordings (``N/N.rec``, plain EDF) or the release of extracted channels
(``subjectN.mat``), both with the scoring of expert 1 (``N/N_1.txt``). Channels are selected by
name: there are two naming schemes, subject 8 has no frontal electrodes, subject 40 is unreferenced.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from afor.bench.common.errors import DataError
from afor.bench.data.dataset import PARTIAL_NOTE, Dataset, DatasetInfo, TrialShape
from afor.bench.data.formats.edf import EdfFile, read_edf
from afor.bench.data.formats.mat import read_mat
from afor.bench.data.recording import Recording, require_finite
from afor.bench.data.settings import DataSettings, Samples
from afor.bench.data.signal import resample

RATE_HZ = 200
EPOCH_S = 30
EPOCH_SAMPLES = RATE_HZ * EPOCH_S  # Sec. IV-A: "30 s epochs of 6000 time points"
SUBJECTS = tuple(str(i) for i in range(1, 101))
CHANNELS = ("F3", "C3", "O1", "F4", "C4", "O2")
# Left electrodes are referenced to the right ear and vice versa; A and M are the same position.
REFERENCES = {
    name: ("A2", "M2") if name in ("F3", "C3", "O1") else ("A1", "M1") for name in CHANNELS
}
SUBSTITUTES = {"F3": "C3", "F4": "C4"}
NO_FRONTAL = "8"
CLASS_NAMES = ("W", "N1", "N2", "N3", "REM")
STAGES = {0: 0, 1: 1, 2: 2, 3: 3, 5: 4}
EXTRACTED_LACKS = 30  # epochs that the .mat release has fewer than the scoring
MAX_SCORING_BYTES = 1 << 20
PUBLISHED_COUNTS = {"W": 20_979, "N1": 11_513, "N2": 28_287, "N3": 17_480, "REM": 11_928}


class IsrucSettings(DataSettings):
    """Options of ISRUC; the defaults are those of the paper's Sec. IV-A and of the protocol."""

    scorer: Literal[1, 2] = 1
    subject_8: Literal["substitute", "exclude"] = "substitute"
    max_epoch_difference: Annotated[int, Field(ge=0, le=30)] = 5
    allow_truncated: bool = False
    window_samples: Samples = 600  # Sec. IV-A: "overlapping 600-point windows"
    stride_samples: Samples = 300  # "with a 300-point stride"


def find_subjects(root: Path, _settings: IsrucSettings) -> tuple[str, ...]:
    """Return the subjects whose signals exist."""
    return tuple(subject for subject in SUBJECTS if _signal_path(root, subject) is not None)


def source_files(root: Path, subject: str, settings: IsrucSettings) -> tuple[Path, ...]:
    """Return the signal file and the scoring file; raise DataError if one is missing."""
    signals = _signal_path(root, subject)
    if signals is None:
        raise DataError(
            f"ISRUC subject {subject}: neither {subject}/{subject}.rec nor subject{subject}.mat in "
            f"{root}. Get it from {INFO.where}."
        )
    name = f"{subject}_{settings.scorer}.txt"
    scoring = _find_file(root, subject, name)
    if scoring is None:
        raise DataError(
            f"ISRUC subject {subject}: the scoring {name} is missing in {root}. Get it from "
            f"{INFO.where}."
        )
    return signals, scoring


def load_subject(root: Path, subject: str, settings: IsrucSettings) -> Recording:
    """Read one night as epochs of 30 s, without a filter, as in the paper."""
    path, scoring = source_files(root, subject, settings)
    labels = read_scoring(scoring, subject)
    is_extracted = path.suffix == ".mat"
    if is_extracted:
        epochs, notes = _read_extracted(path, subject)
    else:
        epochs, notes = _read_recording(path, subject, settings)
    missing, n = len(labels) - len(epochs), min(len(epochs), len(labels))
    counts = (
        f"ISRUC subject {subject}: {len(epochs)} epochs in {path.name}, {len(labels)} scores in "
        f"{scoring.name}"
    )
    if is_extracted and missing != EXTRACTED_LACKS:
        raise DataError(f"{counts}; the extracted release has exactly {EXTRACTED_LACKS} fewer.")
    if not is_extracted and abs(missing) > settings.max_epoch_difference:
        raise DataError(
            f"{counts}. They may differ by {settings.max_epoch_difference} "
            "(max_epoch_difference); one of the two files is not whole."
        )
    if not is_extracted and missing:
        notes.append(f"{len(epochs)} epochs and {len(labels)} scores: cut to the shorter")
    return Recording.of_trials(
        subject=subject,
        trials=epochs[:n],
        labels=labels[:n],
        channel_names=CHANNELS,
        rate_hz=RATE_HZ,
        class_names=CLASS_NAMES,
        dataset="isruc",
        notes=notes,
    )


def read_scoring(path: Path, subject: str) -> NDArray[np.int64]:
    """Return the stages of a scoring file, which has one code per line; blank lines are allowed."""
    where = _where(path, subject)
    if path.stat().st_size > MAX_SCORING_BYTES:
        raise DataError(f"{where}: too large for a scoring.")
    labels = []
    lines = path.read_bytes().decode("utf-8-sig", "replace").splitlines()
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text:
            continue
        code = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else None
        if code not in STAGES:
            raise DataError(
                f"{where}, line {number}: {text[:20]!r} is no stage; accepted are 0 (W), 1, 2, 3 "
                "(N1 to N3) and 5 (REM)."
            )
        labels.append(STAGES[code])
    if not labels:
        raise DataError(f"{where}: no scores in it.")
    return np.array(labels, dtype=np.int64)


def _where(path: Path, subject: str) -> str:
    return f"ISRUC subject {subject} ({path.name})"


def _read_recording(
    path: Path, subject: str, settings: IsrucSettings
) -> tuple[NDArray[np.float32], list[str]]:
    where = _where(path, subject)
    edf = read_edf(path, allow_truncated=settings.allow_truncated)
    notes = list(edf.notes)
    by_name: dict[str, str] = {}
    for label in edf.labels():
        plain = label.upper().replace(" ", "").replace("_", "-")
        if plain in by_name and plain.split("-")[0] in CHANNELS:
            raise DataError(f"{where}: channel {label} is there twice.")
        by_name[plain] = label
    signals = []
    for name in CHANNELS:
        is_recorded = any(label in by_name for label in (name, *_labels(name, "-")))
        electrode = name if is_recorded else _substitute(name, subject, notes)
        signals.append(_electrode(edf, by_name, electrode, where, notes))
    length = min(len(signal) for signal in signals) // EPOCH_SAMPLES
    if length == 0:
        raise DataError(f"{where}: shorter than one epoch of 30 s.")
    epochs = np.empty((length, len(CHANNELS), EPOCH_SAMPLES), dtype=np.float32)
    for i, signal in enumerate(signals):
        epochs[:, i] = signal[: length * EPOCH_SAMPLES].reshape(length, EPOCH_SAMPLES)
    return epochs, list(dict.fromkeys(notes))


def _labels(name: str, separator: str) -> list[str]:
    """Return the names under which a referenced electrode may be stored, such as C3-A2."""
    return [f"{name}{separator}{ear}" for ear in REFERENCES[name]]


def _substitute(name: str, subject: str, notes: list[str]) -> str:
    """Return the electrode that replaces one that is not recorded; itself if there is none."""
    # Paper: does not mention subject 8, which has no F3 and F4. Here: C3 and C4 replace them, with
    # a note, because a channel of zeros occurs in no other subject.
    if subject != NO_FRONTAL or name not in SUBSTITUTES:
        return name
    notes.append(f"{name} is not recorded, {SUBSTITUTES[name]} stands in")
    return SUBSTITUTES[name]


def _electrode(
    edf: EdfFile, by_name: dict[str, str], name: str, where: str, notes: list[str]
) -> NDArray[np.floating]:
    """Return one electrode, referenced to the opposite ear, in microvolts at 200 Hz."""
    for label in _labels(name, "-"):
        if label in by_name:
            return _at_rate(edf, by_name[label], notes)
    for ear in REFERENCES[name]:
        if name in by_name and ear in by_name:
            notes.append("electrodes are stored unreferenced: re-referenced to the ears")
            electrode = _at_rate(edf, by_name[name], notes)
            reference = _at_rate(edf, by_name[ear], notes)
            if electrode.shape != reference.shape:
                raise DataError(f"{where}: {name} and {ear} have different lengths.")
            difference: NDArray[np.floating] = electrode - reference
            return difference
    accepted = " or ".join(_labels(name, "-"))
    raise DataError(f"{where}: no channel {accepted}. Found: {', '.join(edf.labels())}.")


def _at_rate(edf: EdfFile, label: str, notes: list[str]) -> NDArray[np.floating]:
    rate = edf.rate_hz(label)
    if not 50 <= rate <= 2000:
        raise DataError(f"{edf.path}: {label} is sampled at {rate:g} Hz, expected {RATE_HZ}.")
    signal = edf.microvolts(label).astype(np.float32)
    if rate != RATE_HZ:
        notes.append(f"resampled from {rate:g} to {RATE_HZ} Hz")
    return resample(signal, rate, RATE_HZ)


def _read_extracted(path: Path, subject: str) -> tuple[NDArray[np.float32], list[str]]:
    where = _where(path, subject)
    arrays = read_mat(path, {label for name in CHANNELS for label in _labels(name, "_")})
    notes = [PARTIAL_NOTE]
    columns = []
    for name in CHANNELS:
        column = _extracted(arrays, name)
        if column is None:
            column = _extracted(arrays, _substitute(name, subject, notes))
        if column is None:
            raise DataError(f"{where}: no variable {' or '.join(_labels(name, '_'))}.")
        if column.ndim != 2 or column.shape[1] != EPOCH_SAMPLES or not len(column):
            raise DataError(
                f"{where}: {name} has the shape {column.shape}, expected (epochs, {EPOCH_SAMPLES})."
            )
        columns.append(column)
    if len({len(column) for column in columns}) != 1:
        raise DataError(f"{where}: channels of different lengths.")
    epochs = np.empty((len(columns[0]), len(CHANNELS), EPOCH_SAMPLES), dtype=np.float32)
    for i, column in enumerate(columns):
        require_finite(column[:, None], where, CHANNELS[i : i + 1])
        epochs[:, i] = column
    return epochs, notes


def _extracted(arrays: dict[str, Any], name: str) -> NDArray[Any] | None:
    values = (arrays.get(label) for label in _labels(name, "_"))
    return next((value for value in values if isinstance(value, np.ndarray)), None)


def _find_file(root: Path, subject: str, *names: str) -> Path | None:
    folders = (subject, f"Subgroup_1/{subject}", f"{subject}/{subject}", "", "ExtractedChannels")
    paths = (root / folder / name for folder in folders for name in names)
    return next((path for path in paths if path.is_file()), None)


def _signal_path(root: Path, subject: str) -> Path | None:
    return _find_file(root, subject, f"{subject}.rec", f"{subject}.edf", f"subject{subject}.mat")


INFO = DatasetInfo(
    name="isruc",
    title="ISRUC-Sleep subgroup I",
    task="sleep staging: W, N1, N2, N3, REM (5 classes)",
    licence="free for research, citation asked",
    where="https://sleeptight.isr.uc.pt/",
    citation="Khalighi et al., Computer Methods and Programs in Biomedicine 124, 2016",
    subjects=SUBJECTS,
    shape="6 channels at 200 Hz; 90 187 epochs of 30 s",
    paper_windows="600 samples, stride 300 (Sec. IV-A): 19 an epoch",
    layout="1/1.rec 1/1_1.txt … (or Subgroup_1/1/…), or subject1.mat with 1/1_1.txt",
    steps="Download the archives of subgroup I from that page, one .rar per subject, and unpack "
    "them (unrar x 1.rar) into the folder; each makes a folder of its own",
)


def trial_shape(_settings: IsrucSettings) -> TrialShape:
    """Return the epochs of one subject on average; nights differ by a third."""
    epochs = sum(PUBLISHED_COUNTS.values()) // len(SUBJECTS)
    return TrialShape(CHANNELS, RATE_HZ, CLASS_NAMES, epochs, EPOCH_SAMPLES)


DATASET = Dataset(
    info=INFO,
    settings=IsrucSettings,
    find=find_subjects,
    files=source_files,
    load=load_subject,
    trial_shape=trial_shape,
    published=lambda settings: PUBLISHED_COUNTS if settings.scorer == 1 else {},
    excluded=lambda settings: (
        {NO_FRONTAL: "no frontal electrodes"} if settings.subject_8 == "exclude" else {}
    ),
)
