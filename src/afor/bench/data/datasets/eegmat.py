"""PhysioNet EEG During Mental Arithmetic Tasks (EEGMAT): 36 people at rest and while subtracting.

The class is in the name of the file: ``Subject00_1.edf`` is the rest before the task, ``_2`` one
minute of mental subtraction. There are no events. Of the rest, which lasts about three minutes, the
last minute is used, so that the classes are balanced.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from afor.bench.data.dataset import BandHz, Dataset, DatasetInfo, DataSettings, Part, Words
from afor.bench.data.fetching import PUBLISHED_LIST, Fetch, RemoteFile, listed_checksums
from afor.bench.data.formats.edf import read_edf
from afor.bench.data.recording import TrialShape, channel_rows
from afor.bench.data.signal import cut_epochs, filter_signal, resample

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


def _remote_files(
    root: Path, subjects: Sequence[str], _settings: EegmatSettings
) -> list[RemoteFile]:
    checksums = listed_checksums(root, PUBLISHED_LIST)
    files = []
    for name in (f"{subject}_{part}.edf" for subject in subjects for part in (1, 2)):
        digest = f"sha256:{checksums[name]}" if name in checksums else None
        size = 3.8 if name.endswith("_1.edf") else 1.3
        files.append(RemoteFile.of_physionet("eegmat/1.0.0", name, digest, size))
    return files


class Eegmat(Dataset[EegmatSettings]):
    """The reader of EEGMAT."""

    info = DatasetInfo(
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
    )
    settings = EegmatSettings
    fetch = Fetch(
        files=_remote_files,
        lists=lambda: [RemoteFile.of_physionet("eegmat/1.0.0", PUBLISHED_LIST)],
    )

    def files(self, root: Path, subject: str, settings: EegmatSettings) -> tuple[Path, Path]:
        """Return the recordings of rest and of arithmetic."""
        return root / f"{subject}_1.edf", root / f"{subject}_2.edf"

    def find(self, root: Path, settings: EegmatSettings) -> tuple[str, ...]:
        """Return the subjects with both recordings."""
        return tuple(
            s for s in SUBJECTS if all(path.is_file() for path in self.files(root, s, settings))
        )

    def trial_shape(self, settings: EegmatSettings) -> TrialShape:
        """Return the trials of one subject: as many of each class as fit."""
        trials = 2 * int(settings.seconds / settings.trial_s)
        samples = round(settings.trial_s * settings.resample_hz)
        names = settings.channels or CHANNELS
        channel_rows(names, CHANNELS, self.info.name)
        return TrialShape(names, settings.resample_hz, CLASS_NAMES, trials, samples)

    def read(
        self, paths: Sequence[Path], subject: str, settings: EegmatSettings, notes: list[str]
    ) -> Iterator[Part]:
        """Filter and resample both recordings of one subject and cut them into trials."""
        shape, done = self.trial_shape(settings), 0
        for label, path in enumerate(paths):
            edf = read_edf(path)
            recorded = edf.channels(shape.channel_names, RATE_HZ, _plain_name)
            signal = filter_signal(recorded, RATE_HZ, settings.band_hz)
            signal = resample(signal, RATE_HZ, settings.resample_hz)
            signal = signal[:, -round(settings.seconds * settings.resample_hz) :]
            cut = cut_epochs(signal, shape.samples)
            yield cut, [label] * len(cut), done + np.arange(len(cut))
            done += len(cut)
            notes += [f"{path.name}: {note}" for note in edf.notes]


def _plain_name(label: str) -> str:
    return label.removeprefix("EEG ").strip()


DATASET = Eegmat()
