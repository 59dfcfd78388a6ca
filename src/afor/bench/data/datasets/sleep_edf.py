"""Sleep-EDF Expanded, sleep cassette: 78 people, one or two nights each, five stages.

``SC4ssNE0-PSG.edf`` is night N of subject ss, ``SC4ssNEx-Hypnogram.edf`` its scoring. The nights of
one person are one subject, so they stay on one side of a split. Stages 3 and 4 are N3. Recordings
last a day: wake more than half an hour before the first or after the last sleep is left out.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from afor.bench.common.errors import DataError
from afor.bench.data.dataset import BandHz, Dataset, DatasetInfo, DataSettings, Part, Samples
from afor.bench.data.fetching import Fetch, RemoteFile
from afor.bench.data.formats.edf import read_edf
from afor.bench.data.recording import TrialShape
from afor.bench.data.signal import cut_epochs, filter_signal

RATE_HZ = 100
EPOCH_S = 30
EPOCH_SAMPLES = RATE_HZ * EPOCH_S
CHANNELS = ("Fpz-Cz", "Pz-Oz")
CLASS_NAMES = ("W", "N1", "N2", "N3", "REM")
STAGES = {"W": 0, "1": 1, "2": 2, "3": 3, "4": 3, "R": 4}
UNSCORED = -1  # movement time and "?"
# Of the people numbered 0 to 82; 39, 68, 69, 78 and 79 do not exist.
SUBJECTS = tuple(f"SC4{i:02d}" for i in range(83) if i not in (39, 68, 69, 78, 79))
SIGNAL_NAME = re.compile(r"(SC4\d\d)(\d).*-PSG\.edf")


class SleepEdfSettings(DataSettings):
    """Options of Sleep-EDF; the paper does not use it, so all defaults are ours."""

    nights: Annotated[tuple[int, ...], Field(strict=False, min_length=1)] = (1, 2)
    wake_margin_s: Annotated[float, Field(ge=0, le=86400)] = 1800.0
    band_hz: BandHz = (0.3, 35.0)
    window_samples: Samples = 300
    stride_samples: Samples = 300


def _read_hypnogram(path: Path, count: int) -> NDArray[np.int64]:
    """Return the stage of each epoch, `UNSCORED` where there is none."""
    stages = np.full(count, UNSCORED, dtype=np.int64)
    for annotation in read_edf(path).annotations():
        stage = annotation.text.removeprefix("Sleep stage ").strip()
        first, n = annotation.onset_s / EPOCH_S, annotation.duration_s / EPOCH_S
        if first != int(first) or n != int(n) or first < 0:
            raise DataError(
                f"{path}: {annotation.text!r} at {annotation.onset_s:g} s for "
                f"{annotation.duration_s:g} s does not fit epochs of {EPOCH_S} s."
            )
        if stage not in STAGES and stage not in ("?", "Movement time"):
            raise DataError(f"{path}: {annotation.text[:40]!r} is no sleep stage.")
        stages[int(first) : int(first + n)] = STAGES.get(stage, UNSCORED)
    return stages


def _epochs_of_the_night(
    stages: NDArray[np.int64], margin_s: float, path: Path
) -> NDArray[np.int64]:
    """Return the scored epochs from the margin before the first sleep to that after the last."""
    asleep = np.flatnonzero(stages > 0)
    if not asleep.size:
        raise DataError(f"{path}: nobody sleeps in it.")
    margin = int(margin_s / EPOCH_S)
    first, last = max(0, int(asleep[0]) - margin), int(asleep[-1]) + margin
    scored = np.flatnonzero(stages != UNSCORED)
    return scored[(scored >= first) & (scored <= last)]


def _signal_names(root: Path) -> list[re.Match[str]]:
    names = sorted(path.name for path in root.glob("SC4*-PSG.edf"))
    return [match for name in names if (match := SIGNAL_NAME.fullmatch(name))]


@cache
def _records() -> tuple[dict[str, str], ...]:
    """Return the table of recordings that is installed with MNE, with their SHA-1."""
    table = files("mne") / "datasets" / "sleep_physionet" / "age_records.csv"
    return tuple(csv.DictReader(table.read_text("utf-8").splitlines()))


def _remote_files(
    _root: Path, subjects: Sequence[str], settings: SleepEdfSettings
) -> list[RemoteFile]:
    return [
        RemoteFile.of_physionet(
            "sleep-edfx/1.0.0/sleep-cassette",
            record["fname"],
            f"sha1:{record['sha']}",
            50.0 if record["record type"] == "PSG" else 0.01,
        )
        for record in _records()
        if record["fname"][:5] in subjects and int(record["night"]) in settings.nights
    ]


class SleepEdf(Dataset[SleepEdfSettings]):
    """The reader of Sleep-EDF."""

    info = DatasetInfo(
        name="sleep_edf",
        title="PhysioNet Sleep-EDF Expanded, sleep cassette",
        task="sleep staging: W, N1, N2, N3, REM (5 classes)",
        licence="Open Data Commons Attribution 1.0 (ODC-By)",
        where="https://physionet.org/content/sleep-edfx/1.0.0/",
        citation="Kemp et al., IEEE TBME 47(9), 2000; Goldberger et al., Circulation 101(23), 2000",
        subjects=SUBJECTS,
        shape="2 channels at 100 Hz; about 1 280 epochs of 30 s a night, two nights",
        paper_windows="not in the paper; here 300 samples, stride 300",
        layout="SC4001E0-PSG.edf SC4001EC-Hypnogram.edf …",
    )
    settings = SleepEdfSettings
    fetch = Fetch(files=_remote_files)

    def find(self, root: Path, settings: SleepEdfSettings) -> tuple[str, ...]:
        """Return the subjects with at least one of the nights."""
        matches = _signal_names(root)
        return tuple(sorted({match[1] for match in matches if int(match[2]) in settings.nights}))

    def files(self, root: Path, subject: str, settings: SleepEdfSettings) -> list[Path]:
        """Return the recordings of a subject's nights, each followed by its hypnogram."""
        paths: list[Path] = []
        for match in _signal_names(root):
            if match[1] != subject or int(match[2]) not in settings.nights:
                continue
            scoring = sorted(root.glob(f"{subject}{match[2]}*-Hypnogram.edf"))
            if len(scoring) != 1:
                raise DataError(
                    f"Sleep-EDF subject {subject}: {len(scoring)} files {subject}{match[2]}*-"
                    f"Hypnogram.edf in {root}, expected one. Fetch it: afor data get sleep_edf."
                )
            paths += [root / match[0], scoring[0]]
        return paths

    def trial_shape(self, settings: SleepEdfSettings) -> TrialShape:
        """Return the epochs of one subject, about 1 280 a night."""
        epochs = 1280 * len(settings.nights)
        return TrialShape(CHANNELS, RATE_HZ, CLASS_NAMES, epochs, EPOCH_SAMPLES)

    def read(
        self, paths: Sequence[Path], subject: str, settings: SleepEdfSettings, notes: list[str]
    ) -> Iterator[Part]:
        """Read the nights of one subject as epochs of 30 s."""
        for path, hypnogram in zip(paths[::2], paths[1::2], strict=True):
            recorded = read_edf(path).channels([f"EEG {name}" for name in CHANNELS], RATE_HZ)
            epochs = cut_epochs(filter_signal(recorded, RATE_HZ, settings.band_hz), EPOCH_SAMPLES)
            stages = _read_hypnogram(hypnogram, len(epochs))
            kept = _epochs_of_the_night(stages, settings.wake_margin_s, hypnogram)
            yield epochs[kept], stages[kept], 10_000 * int(path.name[5]) + kept
            if unscored := int((stages[kept[0] : kept[-1] + 1] == UNSCORED).sum()):
                notes.append(f"{path.name}: {unscored} epochs without a stage left out")


DATASET = SleepEdf()
