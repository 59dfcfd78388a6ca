"""DEAP: 32 subjects rate 40 one-minute music videos; valence above 5 is the positive class.

It reads the "data_preprocessed_python" files, Python 2 pickles, without unpickling them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from afor.bench.common.errors import DataError
from afor.bench.data.dataset import (
    BandHz,
    Dataset,
    DatasetInfo,
    DataSettings,
    Part,
    Samples,
    is_stand_in,
)
from afor.bench.data.formats.pickle import read_arrays
from afor.bench.data.recording import TrialShape, require_finite
from afor.bench.data.signal import PAPER_BAND_HZ, BaselineMode, filter_signal, subtract_baseline

RATE_HZ = 128
BASELINE_SAMPLES = 3 * RATE_HZ  # Sec. IV-A: "a 3 s pre-trial baseline"
DATA_SHAPE = (40, 40, 63 * RATE_HZ)
RATINGS = {"valence": 0, "arousal": 1, "dominance": 2, "liking": 3}
RATING_RANGE = (1.0, 9.0)
SUBJECTS = tuple(f"s{i:02d}" for i in range(1, 33))
CHANNELS = (
    "Fp1", "AF3", "F3", "F7", "FC5", "FC1", "C3", "T7",
    "CP5", "CP1", "P3", "P7", "PO3", "O1", "Oz", "Pz",
    "Fp2", "AF4", "Fz", "F4", "F8", "FC6", "FC2", "Cz",
    "C4", "T8", "CP6", "CP2", "P4", "P8", "PO4", "O2",
)  # fmt: skip


class DeapSettings(DataSettings):
    """Options of DEAP; the defaults are those of the paper's Sec. IV-A."""

    rating: Annotated[str, Field(pattern="^(valence|arousal|dominance|liking)$")] = "valence"
    # Sec. IV-A: "binarize valence at threshold 5"; high is > 5
    threshold: Annotated[float, Field(ge=0, le=10)] = 5.0
    baseline: BaselineMode = "template"
    band_hz: BandHz = PAPER_BAND_HZ
    window_samples: Samples = 128  # Sec. IV-A: "non-overlapping 1 s clips of 128 time points"
    stride_samples: Samples = 128


def _check_ratings(labels: NDArray[np.floating], where: str) -> None:
    low, high = RATING_RANGE
    is_outside = ~((labels >= low) & (labels <= high))
    if is_outside.any():
        trial, column = np.argwhere(is_outside)[0]
        raise DataError(
            f"{where}: the {list(RATINGS)[column]} rating of trial {trial} is "
            f"{labels[trial, column]}; accepted are {low:g} to {high:g}."
        )


class Deap(Dataset[DeapSettings]):
    """The reader of DEAP."""

    info = DatasetInfo(
        name="deap",
        title="DEAP",
        task="emotion: low or high valence (2 classes)",
        licence="academic use after a signed agreement (EULA)",
        where="https://www.eecs.qmul.ac.uk/mmv/datasets/deap/",
        citation="Koelstra et al., IEEE Trans. Affective Computing 3(1), 2012",
        subjects=SUBJECTS,
        shape="32 EEG of 40 channels at 128 Hz; 40 trials of 60 s after 3 s of baseline",
        paper_windows="128 samples, stride 128 (Sec. IV-A): 60 a trial",
        layout="s01.dat … s32.dat, or the same in data_preprocessed_python/",
        steps="Print, sign and send the agreement (EULA) on that page; the answer names the "
        "download of data_preprocessed_python.zip. Unpack it into the folder",
    )
    settings = DeapSettings

    def files(self, root: Path, subject: str, settings: DeapSettings) -> list[Path]:
        """Return the file of a subject."""
        inside = root / "data_preprocessed_python"
        return [(inside if inside.is_dir() else root) / f"{subject}.dat"]

    def trial_shape(self, settings: DeapSettings) -> TrialShape:
        """Return the trials of one subject."""
        samples = DATA_SHAPE[2] - BASELINE_SAMPLES
        classes = (f"low {settings.rating}", f"high {settings.rating}")
        return TrialShape(CHANNELS, RATE_HZ, classes, DATA_SHAPE[0], samples)

    def read(
        self, paths: Sequence[Path], subject: str, settings: DeapSettings, notes: list[str]
    ) -> Iterator[Part]:
        """Read one subject, subtract the baseline and filter the whole minute."""
        (path,) = paths
        where = f"DEAP subject {subject} ({path.name})"
        arrays = read_arrays(path)
        n = DATA_SHAPE[0]
        if is_stand_in(path.parent):  # which may have fewer trials
            n = min(n, len(arrays.get("labels", ())))
        for key, expected in (("data", (n, *DATA_SHAPE[1:])), ("labels", (n, len(RATINGS)))):
            shape = arrays[key].shape if key in arrays else "nothing"
            if shape != expected:
                raise DataError(
                    f"{where}: expected {key} of shape {expected}, found {shape}. Use the "
                    "'data_preprocessed_python' download."
                )
        if extra := sorted(set(arrays) - {"data", "labels"}):
            raise DataError(f"{where}: unexpected {', '.join(extra)}.")
        # The other 8 of the 40 channels are eye, muscle, skin, breath, pulse and temperature.
        eeg = arrays["data"][:, : len(CHANNELS)]
        require_finite(eeg, where, CHANNELS)
        _check_ratings(arrays["labels"], where)
        ratings = arrays["labels"][:, RATINGS[settings.rating]]
        signal = subtract_baseline(eeg, BASELINE_SAMPLES, RATE_HZ, settings.baseline)
        filtered = filter_signal(signal, RATE_HZ, settings.band_hz)
        yield filtered, ratings > settings.threshold, np.arange(n)


DATASET = Deap()
