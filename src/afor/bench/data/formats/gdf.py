"""Read GDF 1.99 files, the format of BCI Competition IV 2a, with MNE.

MNE returns numbers for missing samples and for a file cut short; both are recognised here by what
the header says.
"""

import struct
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import DataError

MAX_BYTES = 128 << 20  # A01T.gdf has 34 MB
FIXED_BYTES = CHANNEL_BYTES = 256
# Offsets in the channel headers, in bytes per channel; ranges are physical and digital.
UNIT, RANGES, SAMPLES, TYPE = 102, (104, 112, 120, 128), 216, 220
INT16 = 3
EVENT_MODES = (b"\x01", b"\x03")
MICROVOLT_CODES = {4275: 1.0, 4274: 1e3}  # microvolt, millivolt


@dataclass(frozen=True, eq=False)
class GdfFile:
    """The content of a GDF file: signal in microvolts, NaN for missing samples, and events."""

    labels: tuple[str, ...]
    rate_hz: float
    signal_uv: NDArray[np.float64]  # (channels, samples)
    positions: NDArray[np.int64]  # of the events, in samples from 0
    codes: NDArray[np.int64]


def read_gdf(path: Path) -> GdfFile:
    """Read a GDF 1.99 file of int16 samples; raise DataError if it is not valid."""
    labels, lowest_uv = _read_header(path)
    import mne

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            raw = mne.io.read_raw_gdf(path, preload=True, verbose="error")
        signal_uv = raw.get_data() * 1e6
        rate_hz = float(raw.info["sfreq"])
        positions = np.round(np.asarray(raw.annotations.onset) * rate_hz).astype(np.int64)
        codes = np.array([int(text) for text in raw.annotations.description], dtype=np.int64)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        raise DataError(f"{path}: damaged, MNE cannot read it ({reason}).") from error
    if len(signal_uv) != len(labels):
        raise DataError(f"{path}: {len(signal_uv)} channels of {len(labels)} can be read.")
    # Between runs, all channels are at the digital minimum: missing samples.
    at_lowest = np.isclose(signal_uv, lowest_uv[:, None], rtol=1e-6, atol=0)
    signal_uv[:, at_lowest.all(axis=0)] = np.nan
    return GdfFile(labels, rate_hz, signal_uv, positions, codes)


def _read_header(path: Path) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return the labels of the channels and the value of their digital minimum, in microvolts."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            fixed = file.read(FIXED_BYTES)
            if fixed[:8] != b"GDF 1.99" or len(fixed) < FIXED_BYTES:
                raise DataError(f"{path}: starts with {fixed[:8]!r}, expected 'GDF 1.99'.")
            n_records, numerator, denominator, n = struct.unpack_from("<q2IH", fixed, 236)
            header = file.read(CHANNEL_BYTES * n)
            if size > MAX_BYTES:
                raise DataError(f"{path}: {size} bytes are more than the limit of {MAX_BYTES}.")
            if n < 1 or min(n_records, numerator, denominator) < 1:
                raise DataError(f"{path}: {n} channels, {n_records} records: damaged header.")
            if len(header) < CHANNEL_BYTES * n:
                raise DataError(f"{path}: truncated in the header. Fetch the file again.")
            per_record = _column(header, n, SAMPLES, "<i4").tolist()
            if min(per_record) < 1:
                raise DataError(f"{path}: a channel without samples: damaged header.")
            end = FIXED_BYTES + CHANNEL_BYTES * n + 2 * n_records * sum(per_record)
            if size < end:
                raise DataError(f"{path}: truncated. Fetch the file again.")
            file.seek(end)
            mode = file.read(1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    if mode not in EVENT_MODES:
        raise DataError(f"{path}: no event table after the samples. Fetch the file again.")
    units = _column(header, n, UNIT, "<u2").tolist()
    if others := set(units).difference(MICROVOLT_CODES):
        raise DataError(f"{path}: a channel has the unit code {min(others)}, expected µV.")
    if set(_column(header, n, TYPE, "<i4").tolist()) != {INT16}:
        raise DataError(f"{path}: a channel of another type than int16.")
    lowest, highest, *digital = (_column(header, n, at, "<f8") for at in RANGES)
    is_sound = np.isfinite([lowest, highest, *digital]).all()
    if not is_sound or (lowest >= highest).any() or (digital[0] >= digital[1]).any():
        raise DataError(f"{path}: a channel has an impossible range: damaged header.")
    labels = [header[16 * i : 16 * (i + 1)].split(b"\0")[0].decode("latin-1") for i in range(n)]
    return tuple(label.strip() for label in labels), lowest * [MICROVOLT_CODES[u] for u in units]


def _column(header: bytes, n: int, at: int, dtype: str) -> NDArray[Any]:
    """Return one field of all channels; fields are stored one after another."""
    return np.frombuffer(header, dtype, n, at * n)
