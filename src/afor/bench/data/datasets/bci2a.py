"""BCI Competition IV 2a: nine subjects imagine left hand, right hand, feet or tongue.

Two releases are supported: the competition's GDF files (with the classes of the evaluation session
in a separate ``A0xE.mat``), and the ``A0xT.mat``/``A0xE.mat`` of BNCI Horizon 2020.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from afor.bench.common.errors import DataError
from afor.bench.data.dataset import BandHz, Dataset, DatasetInfo, DataSettings, Part, Samples
from afor.bench.data.fetching import Fetch, RemoteFile
from afor.bench.data.formats.gdf import read_gdf
from afor.bench.data.formats.mat import read_mat
from afor.bench.data.recording import TrialShape, require_finite
from afor.bench.data.signal import PAPER_BAND_HZ, cut_trials, filter_signal

RATE_HZ = 250
N_STORED = 25  # 22 EEG and 3 EOG channels; EOG is not used
TRIALS = 288  # of a session
WHERE = "https://www.bbci.de/competition/iv/ or https://bnci-horizon-2020.eu/database/data-sets"
BNCI = "https://lampx.tugraz.at/~bci/database/001-2014"  # the server that MOABB names
SUBJECTS = tuple(f"A{i:02d}" for i in range(1, 10))
CHANNELS = (
    "Fz", "FC3", "FC1", "FCz", "FC2", "FC4", "C5", "C3", "C1", "Cz", "C2",
    "C4", "C6", "CP3", "CP1", "CPz", "CP2", "CP4", "P1", "Pz", "P2", "POz",
)  # fmt: skip
# Only these channels have a name in the file; the other EEG channels are all called "EEG".
NAMED_AT = {0: "Fz", 7: "C3", 9: "Cz", 11: "C4", 19: "Pz"}
CLASS_NAMES = ("left hand", "right hand", "feet", "tongue")
TRIAL_START, UNKNOWN_CUE, REJECTED = 768, 783, 1023
CUES = {769: 0, 770: 1, 771: 2, 772: 3}
CUE_AFTER_START = 2 * RATE_HZ
MARKED = {"A01T": 15, "A03T": 18, "A06T": 69}  # published numbers of trials with artifacts

Array = NDArray[np.floating]


class Bci2aSettings(DataSettings):
    """Options of BCI IV 2a; the defaults are those of the paper's Sec. IV-A."""

    sessions: Literal["TE", "T", "E"] = "TE"
    # Sec. IV-A: "0.5-3.5 s after cue onset (750 samples)"
    start_s: Annotated[float, Field(ge=-2, le=5.5)] = 0.5
    stop_s: Annotated[float, Field(ge=-2, le=5.5)] = 3.5
    band_hz: BandHz = PAPER_BAND_HZ
    filter_scope: Literal["trial", "continuous"] = "trial"
    drop_rejected: bool = False
    window_samples: Samples = 250  # Sec. IV-A: "overlapping 250-point windows"
    stride_samples: Samples = 125  # "with a 125-point stride"

    @model_validator(mode="after")
    def _check_times(self) -> "Bci2aSettings":
        if round(self.stop_s * RATE_HZ) <= round(self.start_s * RATE_HZ):
            raise ValueError(f"start_s = {self.start_s} is not before stop_s = {self.stop_s}.")
        return self


@dataclass(frozen=True, eq=False)
class Session:
    """The signal of a session, or of one run of it, with its cues."""

    signal_uv: Array  # (22, samples), NaN where missing
    cues: NDArray[np.int64]
    labels: NDArray[np.int64]
    rejected: NDArray[np.bool_]


def _read_gdf_session(path: Path, class_path: Path | None, where: str) -> Session:
    """Read a session; the classes of an evaluation session are in a file of their own."""
    gdf = read_gdf(path)
    if gdf.rate_hz != RATE_HZ:
        raise DataError(f"{where}: {gdf.rate_hz:g} Hz, expected {RATE_HZ}.")
    if len(gdf.labels) != N_STORED:
        raise DataError(f"{where}: {len(gdf.labels)} channels, expected {N_STORED}.")
    for position, name in NAMED_AT.items():
        label = gdf.labels[position].removeprefix("EEG-").strip()
        if label.lower() != name.lower():
            raise DataError(
                f"{where}: channel {position + 1} is called {label!r}, expected {name!r}. The "
                "channels are in another order or one is missing."
            )
    starts = gdf.positions[gdf.codes == TRIAL_START]
    is_cue = np.isin(gdf.codes, [*CUES, UNKNOWN_CUE])
    order = np.argsort(gdf.positions[is_cue], kind="stable")
    cues, codes = gdf.positions[is_cue][order], gdf.codes[is_cue][order]
    if not len(cues) or not np.array_equal(np.sort(starts) + CUE_AFTER_START, cues):
        raise DataError(
            f"{where}: {len(cues)} cues do not follow {len(starts)} trial starts by "
            f"{CUE_AFTER_START} samples each. The event table is damaged."
        )
    if class_path is not None:
        labels = _read_classes(class_path, len(cues))
    elif (codes == UNKNOWN_CUE).any():
        raise DataError(f"{where}: cues without a class in a training session.")
    else:
        labels = np.array([CUES[code] for code in codes.tolist()], dtype=np.int64)
    rejected_at = gdf.positions[gdf.codes == REJECTED]
    return Session(
        signal_uv=gdf.signal_uv[: len(CHANNELS)],
        cues=cues,
        labels=labels,
        rejected=np.isin(cues - CUE_AFTER_START, rejected_at),
    )


def _read_classes(path: Path, expected: int) -> NDArray[np.int64]:
    where = f"BCI IV 2a subject {path.stem.removesuffix('E')} ({path.name})"
    values = read_mat(path, {"classlabel"}).get("classlabel")
    if not isinstance(values, np.ndarray) or values.size != expected:
        count = values.size if isinstance(values, np.ndarray) else "no"
        raise DataError(f"{where}: {count} values of 'classlabel' for {expected} trials.")
    return _labels(values, where)


def _labels(values: NDArray[Any], where: str) -> NDArray[np.int64]:
    flat = values.reshape(-1)
    if (others := flat[~np.isin(flat, (1, 2, 3, 4))]).size:
        raise DataError(f"{where}: class {others[0]} is out of range; accepted are 1 to 4.")
    return flat.astype(np.int64) - 1


def _read_bnci(path: Path, where: str) -> Iterator[Session]:
    data = read_mat(path, {"data"}).get("data")
    if not isinstance(data, list) or not data:
        raise DataError(f"{where}: no variable 'data'. Use the BNCI Horizon 2020 download.")
    used = False
    for number, entry in enumerate(data, start=1):
        run = entry[0] if isinstance(entry, list) and len(entry) == 1 else entry
        missing = {"X", "trial", "y", "fs"}.difference(run) if isinstance(run, dict) else {"X"}
        if missing:
            raise DataError(f"{where}: run {number} lacks {', '.join(sorted(missing))}.")
        signal, trial, y, fs = (run[key] for key in ("X", "trial", "y", "fs"))
        if not all(isinstance(value, np.ndarray) for value in (signal, trial, y, fs)):
            raise DataError(f"{where}: run {number} holds something else than numbers.")
        if trial.size == 0:
            continue  # an eye-movement block; their number differs (A04T)
        used = True
        if signal.ndim != 2 or signal.shape[1] != N_STORED:
            raise DataError(
                f"{where}: run {number} has the shape {signal.shape}, expected (samples, "
                f"{N_STORED})."
            )
        if fs.size != 1 or float(fs.reshape(-1)[0]) != RATE_HZ:
            raise DataError(f"{where}: run {number} is not at {RATE_HZ} Hz.")
        artifacts = run.get("artifacts")
        marks = artifacts if isinstance(artifacts, np.ndarray) else np.zeros(trial.size)
        if y.size != trial.size or marks.size != trial.size:
            raise DataError(f"{where}: run {number} has {trial.size} trials, {y.size} labels.")
        onsets = trial.reshape(-1)
        if not ((onsets >= 1) & (onsets <= len(signal))).all():
            raise DataError(f"{where}: run {number} has a trial outside its samples.")
        yield Session(
            signal_uv=np.ascontiguousarray(signal[:, : len(CHANNELS)].T, dtype=np.float64),
            cues=onsets.astype(np.int64) - 1 + CUE_AFTER_START,
            labels=_labels(y, where),
            rejected=marks.reshape(-1) != 0,
        )
    if not used:
        raise DataError(f"{where}: no run with trials.")


def _filter_pieces(signal: Array, band: BandHz) -> Array:
    """Filter each stretch between missing samples separately; drop those below one second."""
    missing = np.isnan(signal).any(axis=0)
    edges = np.flatnonzero(np.diff(np.concatenate([[True], missing, [True]]).astype(np.int8)))
    filtered = np.full_like(signal, np.nan)
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        if end - begin >= RATE_HZ and np.isfinite(signal[:, begin:end]).all():
            filtered[:, begin:end] = filter_signal(signal[:, begin:end], RATE_HZ, band)
    return filtered


def _cut_and_filter(session: Session, settings: Bci2aSettings, where: str) -> Array:
    first = round(settings.start_s * RATE_HZ)
    samples = round(settings.stop_s * RATE_HZ) - first
    signal, is_continuous = session.signal_uv, settings.filter_scope == "continuous"
    if is_continuous:
        signal = _filter_pieces(signal, settings.band_hz)
    try:
        cut = cut_trials(signal, session.cues, first, samples)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    require_finite(cut, where, CHANNELS)
    # Paper: cut, then filter (Sec. IV-A, in this order). Here: the same by default;
    # filter_scope = "continuous" filters first, which leaves no edges in the trials.
    return cut if is_continuous else filter_signal(cut, RATE_HZ, settings.band_hz)


def _signal_path(root: Path, subject: str, session: str) -> Path:
    """Return the .mat file of a session if there is no GDF file of the subject, else that."""
    bnci = root / f"{subject}{session}.mat"
    # Next to a GDF file, A0xE.mat contains only the classes of A0xE.gdf.
    is_bnci = bnci.is_file() and not any(root.glob(f"{subject}?.gdf"))
    return bnci if is_bnci else bnci.with_suffix(".gdf")


def _class_path(root: Path, subject: str) -> Path:
    """Return the file with the classes of the evaluation session."""
    beside = root / f"{subject}E.mat"
    return beside if beside.is_file() else root / "true_labels" / beside.name


def _remote_files(
    _root: Path, subjects: Sequence[str], settings: Bci2aSettings
) -> list[RemoteFile]:
    names = [f"{subject}{session}.mat" for subject in subjects for session in settings.sessions]
    return [RemoteFile(name, f"{BNCI}/{name}", megabytes=42.0) for name in names]


class Bci2a(Dataset[Bci2aSettings]):
    """The reader of BCI IV 2a."""

    info = DatasetInfo(
        name="bci2a",
        title="BCI Competition IV 2a",
        task="motor imagery: left hand, right hand, feet, tongue (4 classes)",
        licence="free for research, citation asked (BNCI Horizon 2020: CC BY-ND 4.0)",
        where=WHERE,
        citation="Tangermann et al., Frontiers in Neuroscience 6:55, 2012",
        subjects=SUBJECTS,
        shape="22 EEG of 25 channels at 250 Hz; 2 sessions of 288 trials",
        paper_windows="250 samples, stride 125 (Sec. IV-A): 5 a trial",
        layout="A01T.gdf A01E.gdf A01E.mat … (GDF), or A01T.mat A01E.mat … (BNCI Horizon)",
    )
    settings = Bci2aSettings
    fetch = Fetch(files=_remote_files)

    def files(self, root: Path, subject: str, settings: Bci2aSettings) -> list[Path]:
        """Return the files of the selected sessions, and that of the classes of session E."""
        files = [_signal_path(root, subject, session) for session in settings.sessions]
        if files[-1].name == f"{subject}E.gdf" and files[-1].is_file():
            files.append(_class_path(root, subject))
        return files

    def trial_shape(self, settings: Bci2aSettings) -> TrialShape:
        """Return the trials of one subject, those marked as artifacts included."""
        samples = round((settings.stop_s - settings.start_s) * RATE_HZ)
        trials = TRIALS * len(settings.sessions)
        return TrialShape(CHANNELS, RATE_HZ, CLASS_NAMES, trials, samples)

    def published(self, settings: Bci2aSettings) -> dict[str, int]:
        """Return the published number of trials of each class, if none is dropped."""
        per_class = TRIALS // 4 * len(SUBJECTS) * len(settings.sessions)
        return {} if settings.drop_rejected else dict.fromkeys(CLASS_NAMES, per_class)

    def read(
        self, paths: Sequence[Path], subject: str, settings: Bci2aSettings, notes: list[str]
    ) -> Iterator[Part]:
        """Read the sessions of one subject and cut and filter them, in the order of the options."""
        for number, name in enumerate(settings.sessions):
            path = paths[number]
            where = f"BCI IV 2a subject {subject} ({path.name})"
            count = rejected = 0
            if path.suffix == ".mat":
                runs = _read_bnci(path, where)
            else:
                runs = iter([_read_gdf_session(path, paths[-1] if name == "E" else None, where)])
            for session in runs:
                cut = _cut_and_filter(session, settings, where)
                keep = ~session.rejected if settings.drop_rejected else np.full(len(cut), True)
                yield cut[keep], session.labels[keep], 1000 * number + count + np.flatnonzero(keep)
                count += len(cut)
                rejected += int(session.rejected.sum())
            if count != TRIALS:
                notes.append(f"session {name}: {count} trials instead of {TRIALS}")
            if rejected:
                action = "dropped" if settings.drop_rejected else "kept"
                notes.append(f"session {name}: {rejected} trials marked as artifacts, {action}")
            published = MARKED.get(f"{subject}{name}", rejected)
            if count == TRIALS and rejected != published:
                notes.append(f"session {name}: {published} marked trials are published")


DATASET = Bci2a()
