"""Make the embedded data set `physionet_small` from recordings of PhysioNet EEGMMIDB.

    python tools/physionet_small.py data/physionet_mi

The folder has S001/S001R01.edf to S010/S010R02.edf and PhysioNet's SHA256SUMS.txt; every file must
have its published sum. Each recording is reduced to eight channels, low-pass filtered and resampled
from 160 to 80 Hz, cut to one minute and stored as int16 in steps of 0.1 microvolts. The archive has
the same bytes wherever NumPy, SciPy and zlib compute the same; `--check` compares only.
"""

import argparse
import hashlib
import io
import sys
import zipfile
from pathlib import Path

import numpy as np

from afor.bench.common.files import sha256_of
from afor.bench.data.datasets.physionet_small import (
    ARCHIVE,
    ARCHIVE_SHA256,
    CHANNELS,
    MICROVOLTS_PER_COUNT,
    RATE_HZ,
    STATES,
    SUBJECTS,
)
from afor.bench.data.formats.edf import read_edf
from afor.bench.data.montage import tidy_name
from afor.bench.data.prepared.source_files import PUBLISHED_LIST, published_checksums
from afor.bench.data.signal import resample

TARGET = Path(__file__).parents[1] / "src" / "afor" / "bench" / "data" / "embedded" / ARCHIVE
SECONDS = 60
FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # of every entry, so that the archive has no clock in it


def main() -> None:
    """Make the archive, or compare it with the one in the package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path, help="folder of the recordings")
    parser.add_argument("--check", action="store_true", help="write nothing, compare only")
    arguments = parser.parse_args()
    signals = reduced_signals(arguments.root)
    if arguments.check:
        with np.load(TARGET, allow_pickle=False) as stored:
            same = stored.files == list(signals) and all(
                np.array_equal(stored[name], signal) for name, signal in signals.items()
            )
        sys.exit(0 if same else f"{TARGET} differs from what {arguments.root} gives.")
    content = packed(signals)
    TARGET.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    print(f"{TARGET}: {len(content)} bytes, SHA-256 {digest}")
    if digest != ARCHIVE_SHA256:
        print("Set ARCHIVE_SHA256 in physionet_small.py to it.")


def reduced_signals(root: Path) -> dict[str, np.ndarray]:
    """Return the reduced recordings by ``<subject>_<state>``; exit if a file is not published."""
    sums = published_checksums(root)
    signals = {}
    for subject in SUBJECTS:
        for run, state in enumerate(STATES, start=1):
            name = f"{subject}/{subject}R{run:02d}.edf"
            if name not in sums:
                sys.exit(f"{root / PUBLISHED_LIST} does not list {name}.")
            if sha256_of(root / name) != sums[name]:
                sys.exit(f"{root / name} does not have its published sum. Fetch it again.")
            signals[f"{subject}_{state}"] = reduce_recording(root / name)
    return signals


def reduce_recording(path: Path) -> np.ndarray:
    """Return the first minute of a recording as int16 of shape (channels, samples)."""
    edf = read_edf(path)
    labels = {tidy_name(label): label for label in edf.labels()}
    signal = np.stack([edf.microvolts(labels[name]) for name in CHANNELS])
    rate_hz = edf.rate_hz(labels[CHANNELS[0]])
    reduced = resample(signal[:, : round(SECONDS * rate_hz)], rate_hz, RATE_HZ)
    counts = np.rint(reduced / MICROVOLTS_PER_COUNT)
    limits = np.iinfo(np.int16)
    if counts.min() < limits.min or counts.max() > limits.max:
        sys.exit(f"{path}: a sample does not fit into 16 bits.")
    return counts.astype("<i2")


def packed(signals: dict[str, np.ndarray]) -> bytes:
    """Return an .npz archive without dates, so that equal signals give equal bytes."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as entries:
        for name, signal in signals.items():
            array = io.BytesIO()
            np.lib.format.write_array(array, signal, allow_pickle=False)
            entries.writestr(
                zipfile.ZipInfo(f"{name}.npy", FIRST_DATE), array.getvalue(),
                compress_type=zipfile.ZIP_DEFLATED, compresslevel=9,
            )  # fmt: skip
    return archive.getvalue()


if __name__ == "__main__":
    main()
