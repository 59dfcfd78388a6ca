"""Read GDF 1.99 files, the format of BCI Competition IV 2a; check every field."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import DataError
from afor.bench.common.files import read_limited

FIXED_BYTES = 256
CHANNEL_BYTES = 256
MAX_CHANNELS = 512
MAX_BYTES = 128 << 20  # A01T.gdf has 34 MB
INT16 = 3
MAX_VALUE = 1e9  # no amplifier's range is larger
MICROVOLT_CODES = {4275: 1.0, 4274: 1e3}  # microvolt, millivolt
# Offsets of the fields in the channel headers, in bytes per channel; labels are at 0.
UNIT, PHYSICAL_MIN, PHYSICAL_MAX = 102, 104, 112
DIGITAL_MIN, DIGITAL_MAX, SAMPLES, TYPE = 120, 128, 216, 220


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
    content = read_limited(path, MAX_BYTES)
    if not content:
        raise DataError(f"{path}: the file is empty. Fetch it again.")
    if content[:8] != b"GDF 1.99":
        raise DataError(f"{path}: starts with {content[:8]!r}, expected 'GDF 1.99'.")
    if len(content) < FIXED_BYTES:
        raise DataError(f"{path}: ends inside its header. Fetch it again.")
    (blocks,) = struct.unpack_from("<H", content, 184)
    n_records, numerator, denominator, n = struct.unpack_from("<q2IH", content, 236)
    if not 1 <= n <= MAX_CHANNELS or blocks != n + 1 or len(content) < FIXED_BYTES * (n + 1):
        raise DataError(f"{path}: {n} channels in a header of {blocks} blocks is not possible.")
    header = content[FIXED_BYTES : FIXED_BYTES + CHANNEL_BYTES * n]
    per_record = _column(header, SAMPLES, n, "<i4")
    types = _column(header, TYPE, n, "<i4")
    samples = int(per_record[0])
    if samples < 1 or (per_record != samples).any() or (types != INT16).any():
        raise DataError(f"{path}: expected int16 channels of one rate; the header is damaged.")
    if numerator < 1 or denominator < 1 or n_records < 1:
        raise DataError(
            f"{path}: {n_records} records of {numerator}/{denominator} s are not possible."
        )
    start = FIXED_BYTES * (n + 1)
    data_bytes = n_records * samples * n * 2
    if data_bytes > len(content) - start:
        raise DataError(
            f"{path}: truncated, {len(content) - start} of {data_bytes} bytes of samples are there."
            " Fetch the file again."
        )
    digital = np.frombuffer(content, "<i2", data_bytes // 2, start)
    digital = digital.reshape(n_records, n, samples).transpose(1, 0, 2).reshape(n, -1)
    positions, codes = _events(content[start + data_bytes :], path)
    return GdfFile(
        labels=tuple(
            header[16 * i : 16 * (i + 1)].split(b"\0")[0].decode("latin-1").strip()
            for i in range(n)
        ),
        rate_hz=samples * denominator / numerator,
        signal_uv=_scaled(digital, header, n, path),
        positions=positions,
        codes=codes,
    )


def _column(header: bytes, offset: int, n: int, layout: str) -> NDArray[Any]:
    return np.frombuffer(header, layout, n, offset * n)


def _scaled(digital: NDArray[np.int16], header: bytes, n: int, path: Path) -> NDArray[np.float64]:
    offsets = (DIGITAL_MIN, DIGITAL_MAX, PHYSICAL_MIN, PHYSICAL_MAX)
    ranges = np.stack([_column(header, offset, n, "<f8") for offset in offsets], axis=1)
    units = _column(header, UNIT, n, "<u2").tolist()
    signal = np.empty(digital.shape)
    for i in range(n):
        low, high, bottom, top = ranges[i]
        is_bounded = all(abs(value) <= MAX_VALUE for value in ranges[i].tolist())  # NaN is not
        if not is_bounded or high <= low or top == bottom:
            raise DataError(f"{path}: channel {i + 1} has an impossible range {tuple(ranges[i])}.")
        if units[i] not in MICROVOLT_CODES:
            raise DataError(f"{path}: channel {i + 1} has the unit code {units[i]}, expected µV.")
        gain = (top - bottom) / (high - low)
        signal[i] = MICROVOLT_CODES[units[i]] * ((digital[i] - low) * gain + bottom)
    # Between runs, all channels are at the digital minimum: missing samples.
    signal[:, (digital == np.round(ranges[:, :1])).all(axis=0)] = np.nan
    return signal


def _events(table: bytes, path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if len(table) < 8 or table[0] not in (1, 3):
        raise DataError(f"{path}: no event table after the samples; the file is damaged.")
    n = int.from_bytes(table[1:4], "little")
    per_event = 12 if table[0] == 3 else 6
    if len(table) != 8 + per_event * n:
        raise DataError(
            f"{path}: an event table of {n} events needs {8 + per_event * n} bytes, "
            f"{len(table)} are there."
        )
    positions = np.frombuffer(table, "<u4", n, 8).astype(np.int64) - 1
    codes = np.frombuffer(table, "<u2", n, 8 + 4 * n).astype(np.int64)
    return positions, codes
