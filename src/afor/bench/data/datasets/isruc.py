"""ISRUC-Sleep subgroup I: a hundred nights, five sleep stages, six EEG channels.

It reads the recordings (``N/N.rec``, plain EDF) or the release of extracted channels
(``subjectN.mat``), both with the scoring of expert 1 (``N/N_1.txt``). Channels are selected by
name: there are two naming schemes, subject 8 has no frontal electrodes, subject 40 is unreferenced.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from afor.bench.common.errors import DataError
from afor.bench.data.dataset import PARTIAL_NOTE, Dataset, DatasetInfo, DataSettings, Part, Samples
from afor.bench.data.formats.edf import EdfFile, read_edf
from afor.bench.data.formats.mat import read_mat
from afor.bench.data.recording import TrialShape, require_finite
from afor.bench.data.signal import cut_epochs, resample

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


class Isruc(Dataset[IsrucSettings]):
    """The reader of ISRUC-Sleep."""

    info = DatasetInfo(
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
        steps="Download the archives of subgroup I from that page, one .rar per subject, and "
        "unpack them (unrar x 1.rar) into the folder; each makes a folder of its own",
    )
    settings = IsrucSettings

    def files(self, root: Path, subject: str, settings: IsrucSettings) -> tuple[Path, Path]:
        """Return the signal file and the scoring file."""
        scoring = _find_file(root, subject, f"{subject}_{settings.scorer}.txt")
        return _signal_path(root, subject), scoring

    def find(self, root: Path, settings: IsrucSettings) -> tuple[str, ...]:
        """Return the subjects with a signal file."""
        return tuple(subject for subject in SUBJECTS if _signal_path(root, subject).is_file())

    def trial_shape(self, settings: IsrucSettings) -> TrialShape:
        """Return the epochs of one subject on average; nights differ by a third."""
        epochs = sum(PUBLISHED_COUNTS.values()) // len(SUBJECTS)
        return TrialShape(CHANNELS, RATE_HZ, CLASS_NAMES, epochs, EPOCH_SAMPLES)

    def published(self, settings: IsrucSettings) -> dict[str, int]:
        """Return the published number of epochs of each stage, by the first scorer."""
        return PUBLISHED_COUNTS if settings.scorer == 1 else {}

    def excluded(self, settings: IsrucSettings) -> dict[str, str]:
        """Return subject 8, if it is not read with substitutes."""
        is_excluded = settings.subject_8 == "exclude"
        return {NO_FRONTAL: "no frontal electrodes"} if is_excluded else {}

    def read(
        self, paths: Sequence[Path], subject: str, settings: IsrucSettings, notes: list[str]
    ) -> Iterator[Part]:
        """Read one night as epochs of 30 s, without a filter, as in the paper."""
        path, scoring = paths
        where = f"ISRUC subject {subject}"
        labels = read_scoring(scoring, subject)
        if path.suffix == ".mat":
            epochs = _read_extracted(path, subject, notes)
        else:
            epochs = _read_recording(path, subject, settings, notes)
        missing, n = len(labels) - len(epochs), min(len(epochs), len(labels))
        counts = f"{len(epochs)} epochs in {path.name}, {len(labels)} scores in {scoring.name}"
        if path.suffix == ".mat":
            if missing != EXTRACTED_LACKS:
                raise DataError(
                    f"{where}: {counts}; the extracted release has exactly {EXTRACTED_LACKS} fewer."
                )
        elif abs(missing) > settings.max_epoch_difference:
            raise DataError(
                f"{where}: {counts}. They may differ by {settings.max_epoch_difference} "
                "(max_epoch_difference); one of the two files is not whole."
            )
        elif missing:
            notes.append(f"{len(epochs)} epochs and {len(labels)} scores: cut to the shorter")
        yield epochs[:n], labels[:n], np.arange(n)


DATASET = Isruc()


def read_scoring(path: Path, subject: str) -> NDArray[np.int64]:
    """Return the stages of a scoring file, which has one code per line; blank lines are allowed."""
    where = f"ISRUC subject {subject} ({path.name})"
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


def _read_recording(
    path: Path, subject: str, settings: IsrucSettings, notes: list[str]
) -> NDArray[np.floating]:
    where = f"ISRUC subject {subject} ({path.name})"
    edf = read_edf(path, allow_truncated=settings.allow_truncated)
    notes += edf.notes
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
    length = min(len(signal) for signal in signals)
    if length < EPOCH_SAMPLES:
        raise DataError(f"{where}: shorter than one epoch of 30 s.")
    return cut_epochs(np.stack([signal[:length] for signal in signals]), EPOCH_SAMPLES)


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


def _read_extracted(path: Path, subject: str, notes: list[str]) -> NDArray[np.floating]:
    where = f"ISRUC subject {subject} ({path.name})"
    arrays = read_mat(path, {label for name in CHANNELS for label in _labels(name, "_")})
    stored = {label: value for label, value in arrays.items() if isinstance(value, np.ndarray)}
    notes.append(PARTIAL_NOTE)
    columns = []
    for name in CHANNELS:
        labels = _labels(name, "_")
        if not stored.keys() & labels:
            labels = _labels(_substitute(name, subject, notes), "_")
        column = next((stored[label] for label in labels if label in stored), None)
        if column is None:
            raise DataError(f"{where}: no variable {' or '.join(_labels(name, '_'))}.")
        if column.ndim != 2 or column.shape[1] != EPOCH_SAMPLES or not len(column):
            raise DataError(
                f"{where}: {name} has the shape {column.shape}, expected (epochs, {EPOCH_SAMPLES})."
            )
        require_finite(column[:, None], where, [name])
        columns.append(column.astype(np.float32))
    if len({len(column) for column in columns}) != 1:
        raise DataError(f"{where}: channels of different lengths.")
    return np.stack(columns, axis=1)


def _find_file(root: Path, subject: str, *names: str) -> Path:
    """Return the first of the names that is in one of the usual folders, else the usual path."""
    folders = (subject, f"Subgroup_1/{subject}", f"{subject}/{subject}", "", "ExtractedChannels")
    paths = [root / folder / name for folder in folders for name in names]
    return next((path for path in paths if path.is_file()), paths[0])


def _signal_path(root: Path, subject: str) -> Path:
    return _find_file(root, subject, f"{subject}.rec", f"{subject}.edf", f"subject{subject}.mat")
