"""PhysioNet EEG During Mental Arithmetic Tasks (EEGMAT): 36 people at rest and while subtracting.

The class is in the name of the file: ``Subject00_1.edf`` is the rest before the task, ``_2`` one
minute of mental subtraction. There are no events. Of the rest, which lasts about three minutes, the
last minute is used, so that the classes are balanced.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from afor.bench.common.errors import DataError
from afor.bench.data.dataset import Dataset, DatasetInfo, TrialShape
from afor.bench.data.fetching import (
    PUBLISHED_LIST,
    Fetch,
    RemoteFile,
    download,
    physionet_url,
    published_checksums,
)
from afor.bench.data.formats.edf import read_edf
from afor.bench.data.recording import Recording, TrialCollector, channel_rows
from afor.bench.data.settings import BandHz, DataSettings, Words, band_of
from afor.bench.data.signal import filter_signal, resample

SUBJECTS = tuple(f"Subject{i:02d}" for i in range(36))
CLASS_NAMES = ("rest", "arithmetic")
RATE_HZ = 500.0
CHANNELS = (
    "Fp1", "Fp2", "F3", "F4", "F7", "F8", "T3", "T4", "C3", "C4",
    "T5", "T6", "P3", "P4", "O1", "O2", "Fz", "Cz", "Pz",
)  # fmt: skip


class EegmatSettings(DataSettings):
    """Options of EEGMAT; the paper does not use it, so all defaults are ours."""

    channels: Words | None = None  # all 19
    seconds: Annotated[float, Field(gt=0, le=180)] = 60.0  # of rest: the last, of the task: all
    trial_s: Annotated[float, Field(gt=0, le=60)] = 4.0
    band_hz: BandHz = (0.5, 45.0)  # as the publishers filtered it
    resample_hz: Annotated[float, Field(ge=100, le=RATE_HZ)] = 125.0


def find_subjects(root: Path, _settings: EegmatSettings) -> tuple[str, ...]:
    """Return the subjects with both recordings."""
    return tuple(s for s in SUBJECTS if all(path.is_file() for path in _paths(root, s)))


def load_subject(root: Path, subject: str, settings: EegmatSettings) -> Recording:
    """Filter and resample both recordings of one subject and cut them into trials."""
    names = settings.channels or CHANNELS
    samples = round(settings.trial_s * settings.resample_hz)
    collected, done = TrialCollector(), 0
    for label, path in enumerate(_paths(root, subject)):
        edf = read_edf(path)
        by_name = {text.removeprefix("EEG ").strip(): text for text in edf.labels()}
        channel_rows(names, tuple(by_name), f"eegmat ({path.name})")
        recorded = edf.stacked([by_name[name] for name in names], RATE_HZ)
        signal = filter_signal(recorded, RATE_HZ, band_of(settings.band_hz))
        signal = resample(signal, RATE_HZ, settings.resample_hz)
        signal = signal[:, -round(settings.seconds * settings.resample_hz) :]
        count = signal.shape[1] // samples
        cut = signal[:, : count * samples].reshape(len(names), count, samples)
        collected.add(cut.transpose(1, 0, 2), [label] * count, range(done, done + count))
        done += count
        collected.notes += [f"{path.name}: {note}" for note in edf.notes]
    return collected.recording(
        dataset="eegmat",
        subject=subject,
        channel_names=names,
        rate_hz=settings.resample_hz,
        class_names=CLASS_NAMES,
    )


def trial_shape(settings: EegmatSettings) -> TrialShape:
    """Return the trials of one subject: as many of each class as fit."""
    trials = 2 * int(settings.seconds / settings.trial_s)
    samples = round(settings.trial_s * settings.resample_hz)
    names = settings.channels or CHANNELS
    return TrialShape(names, settings.resample_hz, CLASS_NAMES, trials, samples)


def _paths(root: Path, subject: str) -> tuple[Path, Path]:
    return root / f"{subject}_1.edf", root / f"{subject}_2.edf"


def _source_files(root: Path, subject: str, _settings: EegmatSettings) -> tuple[Path, ...]:
    paths = _paths(root, subject)
    if missing := [path.name for path in paths if not path.is_file()]:
        raise DataError(f"eegmat: {', '.join(missing)} is missing in {root}. {HOW}")
    return paths


def _remote_files(
    root: Path, subjects: Sequence[str], _settings: EegmatSettings
) -> list[RemoteFile]:
    checksums = published_checksums(root)
    files = []
    for name in (f"{subject}_{part}.edf" for subject in subjects for part in (1, 2)):
        digest = f"sha256:{checksums[name]}" if name in checksums else None
        size = 3.8 if name.endswith("_1.edf") else 1.3
        files.append(RemoteFile(name, physionet_url(f"eegmat/1.0.0/{name}"), digest, size))
    return files


def _published_list() -> list[RemoteFile]:
    """Return the publisher's list, which the files are checked against now and when read."""
    return [RemoteFile(PUBLISHED_LIST, physionet_url(f"eegmat/1.0.0/{PUBLISHED_LIST}"))]


HOW = "Fetch it: afor data get eegmat."

DATASET = Dataset(
    info=DatasetInfo(
        name="eegmat",
        title="PhysioNet EEG During Mental Arithmetic Tasks (EEGMAT)",
        task="rest or mental arithmetic (2 classes)",
        licence="Open Data Commons Attribution 1.0 (ODC-By)",
        where="https://physionet.org/content/eegmat/1.0.0/",
        citation="Zyma et al., Data 4(1):14, 2019; Goldberger et al., Circulation 101(23), 2000",
        subjects=SUBJECTS,
        shape="19 channels at 500 Hz, resampled to 125; 2 × 15 trials of 4 s",
        paper_windows="not in the paper; here the whole trial",
        layout="Subject00_1.edf Subject00_2.edf …",
    ),
    settings=EegmatSettings,
    find=find_subjects,
    files=_source_files,
    load=load_subject,
    trial_shape=trial_shape,
    fetch=Fetch(files=_remote_files, get=download, lists=_published_list),
)
