"""Ten people of PhysioNet EEGMMIDB with eyes open and closed, embedded in the package.

Each person has one minute per state: eight channels at 80 Hz, as 16-bit integers. The archive was
made by ``tools/physionet_small.py`` from the published recordings; ``embedded/README.md`` in the
package has the licence, the attribution and the changes that were made.
"""

import hashlib
import io
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from afor.bench.common.errors import DataError
from afor.bench.data.dataset import Dataset, DatasetInfo
from afor.bench.data.recording import Recording, channel_rows
from afor.bench.data.settings import BandHz, DataSettings, Samples, Words, band_of
from afor.bench.data.signal import cut_trials, filter_signal

ARCHIVE = "physionet_small.npz"
ARCHIVE_SHA256 = "818d1dc77b419db80ea81a2f9c942172bb4d4766b530bd84c9beb9a4fe7a6e48"
SUBJECTS = tuple(f"S{i:03d}" for i in range(1, 11))
CHANNELS = ("F3", "F4", "C3", "C4", "P3", "P4", "O1", "O2")
STATES = ("open", "closed")
RATE_HZ = 80.0
MICROVOLTS_PER_COUNT = 0.1


class PhysionetSmallSettings(DataSettings):
    """Options; the paper does not use this data set, so all defaults are ours."""

    channels: Words | None = None  # all 8
    trial_s: Annotated[float, Field(gt=0, le=60)] = 4.0
    band_hz: BandHz = (0.3, 35.0)
    window_samples: Samples = 80
    stride_samples: Samples = 80

    def trial_settings(self) -> dict[str, Any]:
        """Add the archive, which has no source file under a root."""
        return {**super().trial_settings(), "archive_sha256": ARCHIVE_SHA256}


def load_subject(_root: Path, subject: str, settings: PhysionetSmallSettings) -> Recording:
    """Filter the two minutes of one person and cut them into trials."""
    names = settings.channels or CHANNELS
    rows = channel_rows(names, CHANNELS, "physionet_small")
    samples = round(settings.trial_s * RATE_HZ)
    trials, labels, ids = [], [], []
    for label, state in enumerate(STATES):
        counts = _archive()[f"{subject}_{state}"][rows]
        signal = filter_signal(counts * MICROVOLTS_PER_COUNT, RATE_HZ, band_of(settings.band_hz))
        onsets = np.arange(0, signal.shape[1] - samples + 1, samples)
        trials.append(cut_trials(signal, onsets, 0, samples))
        labels += [label] * len(onsets)
        ids += [1000 * (label + 1) + number for number in range(len(onsets))]
    return Recording.of_trials(
        *(subject, np.concatenate(trials), labels, names, RATE_HZ),
        class_names=STATES,
        trial_ids=ids,
        dataset="physionet_small",
    )


@cache
def _archive() -> dict[str, NDArray[np.int16]]:
    """Return the signals by ``<subject>_<state>``; raise DataError if the archive was altered."""
    content = (files("afor.bench.data") / "embedded" / ARCHIVE).read_bytes()
    if hashlib.sha256(content).hexdigest() != ARCHIVE_SHA256:
        raise DataError(
            f"physionet_small: {ARCHIVE} in the installed package is damaged (its SHA-256 differs "
            f"from the published one). Install afor again."
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


DATASET = Dataset(
    info=DatasetInfo(
        name="physionet_small",
        title="Ten people of PhysioNet EEGMMIDB, embedded in the package",
        task="eyes open or closed (2 classes)",
        licence="Open Data Commons Attribution 1.0 (ODC-By)",
        where="nothing to get; made from https://physionet.org/content/eegmmidb/1.0.0/",
        citation="Schalk et al., IEEE TBME 51(6), 2004; Goldberger et al., Circulation 101(23), "
        "2000",
        subjects=SUBJECTS,
        shape="8 channels at 80 Hz; trials of 4 s",
        paper_windows="not in the paper; here 80 samples, stride 80",
        layout="part of the package",
    ),
    settings=PhysionetSmallSettings,
    find=lambda _root, _settings: SUBJECTS,
    load=load_subject,
    needs_root=False,
    published=lambda settings: dict.fromkeys(STATES, len(SUBJECTS) * int(60 // settings.trial_s)),
)
