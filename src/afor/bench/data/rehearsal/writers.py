"""Write small files in the formats of the data sets: EDF, EDF+, GDF 1.99 and a Python 2 pickle.

They are used for stand-ins (see twins.py) and tests; other programs can read them, too.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
DIGITAL_MIN, DIGITAL_MAX = -32768, 32767
SYNTHETIC = "SYNTHETIC"
GDF_MICROVOLT, GDF_INT16 = 4275, 3


def write_edf(
    path: Path,
    labels: Sequence[str],
    signal_uv: Array,
    rate_hz: int,
    annotations: Sequence[tuple[float, float, str]] | None = None,
) -> None:
    """Write a signal as EDF, or as EDF+ if there are annotations.

    Args:
        path: The file to write.
        labels: Names of the channels.
        signal_uv: Signal in microvolts, (channels, samples), a whole number of seconds long.
        rate_hz: Sampling rate.
        annotations: Onset and duration in seconds, and text, of each annotation.
    """
    n_records, left_over = divmod(signal_uv.shape[1], rate_hz)
    if left_over:
        raise ValueError(f"{signal_uv.shape[1]} samples are no whole seconds at {rate_hz} Hz")
    limit = float(np.ceil(np.abs(signal_uv).max() + 1))
    digital = _to_int16(signal_uv, limit)
    records = [digital[:, i * rate_hz : (i + 1) * rate_hz].tobytes() for i in range(n_records)]
    rows = [(label, "uV", -limit, limit, rate_hz) for label in labels]
    if annotations is not None:
        texts = [_annotation_text(i, annotations) for i in range(n_records)]
        width = 2 * ((max(map(len, texts)) + 2) // 2)
        rows.append(("EDF Annotations", "", -1, 1, width // 2))
        records = [r + t.ljust(width, b"\x00") for r, t in zip(records, texts, strict=True)]
    n = len(rows)
    plus = annotations is not None
    names, units, minima, maxima, sizes = zip(*rows, strict=True)
    head = [
        _text("0", 8),
        _text("X X X X" if plus else SYNTHETIC, 80),
        _text(f"Startdate 01-JAN-2000 X X {SYNTHETIC}" if plus else SYNTHETIC, 80),
        b"01.01.0000.00.00",
        _text(str(256 * (n + 1)), 8),
        _text("EDF+C" if plus else "", 44),
        _text(str(n_records), 8),
        _text("1", 8),
        _text(str(n), 4),
        *(_text(name, 16) for name in names),
        _text("", 80) * n,
        *(_text(unit, 8) for unit in units),
        *(_text(f"{limit:.7g}"[:8], 8) for limit in (*minima, *maxima)),
        _text(str(DIGITAL_MIN), 8) * n,
        _text(str(DIGITAL_MAX), 8) * n,
        _text("", 80) * n,
        *(_text(str(size), 8) for size in sizes),
        _text("", 32) * n,
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(head) + b"".join(records))


def _annotation_text(record: int, annotations: Sequence[tuple[float, float, str]]) -> bytes:
    entries = [b"+%d\x14\x14\x00" % record]
    entries += [
        f"+{onset:g}\x15{duration:g}\x14{text}\x14\x00".encode()
        for onset, duration, text in annotations
        if int(onset) == record
    ]
    return b"".join(entries)


def write_gdf(
    path: Path,
    labels: Sequence[str],
    signal_uv: Array,
    rate_hz: int,
    events: Sequence[tuple[int, int, int]],
) -> None:
    """Write a signal as GDF 1.99.

    Args:
        path: The file to write.
        labels: Names of the channels.
        signal_uv: Signal in microvolts, (channels, samples); NaN becomes the digital minimum.
        rate_hz: Sampling rate.
        events: Sample (from 0), code and duration in samples of each event.
    """
    n, samples = signal_uv.shape
    limit = float(np.ceil(np.nanmax(np.abs(signal_uv)) + 1))
    digital = _to_int16(np.nan_to_num(signal_uv, nan=0.0), limit)
    digital[np.isnan(signal_uv)] = DIGITAL_MIN
    fixed = b"".join(
        [
            b"GDF 1.99",
            _text(f"X {SYNTHETIC}", 66) + bytes(10 + 4),
            _text(SYNTHETIC, 64) + bytes(4 + 12 + 8 + 8),
            struct.pack("<H", n + 1) + bytes(6 + 8 + 6 + 6 + 24),  # header in blocks of 256 bytes
            struct.pack("<q2I2H", samples, 1, rate_hz, n, 0),
        ]
    )
    variable = b"".join(
        [
            *(_text(label, 16) for label in labels),
            _text("", 80 + 6) * n,
            struct.pack("<H", GDF_MICROVOLT) * n,
            *(struct.pack("<d", x) * n for x in (-limit, limit, DIGITAL_MIN, DIGITAL_MAX)),
            bytes(68 + 12) * n,  # prefilter, low pass, high pass, notch
            struct.pack("<i", 1) * n,  # samples per record
            struct.pack("<i", GDF_INT16) * n,
            bytes(12 + 20) * n,  # position, impedance
        ]
    )
    position, code, duration = np.array(events, dtype=np.int64).reshape(-1, 3).T
    table = b"".join(
        [
            bytes([3]) + struct.pack("<I", len(events))[:3] + struct.pack("<f", rate_hz),
            (position + 1).astype("<u4").tobytes(),
            code.astype("<u2").tobytes(),
            np.zeros(len(events), "<u2").tobytes(),
            duration.astype("<u4").tobytes(),
        ]
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(fixed + variable + np.ascontiguousarray(digital.T).tobytes() + table)


def write_python2_pickle(path: Path, arrays: dict[str, NDArray[np.float64]]) -> None:
    """Write a dict of float64 arrays as Python 2 did with protocol 2, with byte strings."""
    parts = [b"\x80\x02}q\x00("]
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array, dtype="<f8").tobytes()
        shape = b"".join(b"J" + struct.pack("<i", size) for size in array.shape)
        parts += [
            _short_string(name.encode()),
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85",
            _short_string(b"b") + b"\x87R(K\x01(" + shape + b"t",
            b"cnumpy\ndtype\n" + _short_string(b"f8") + b"K\x00K\x01\x87R",
            b"(K\x03" + _short_string(b"<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89T" + struct.pack("<i", len(raw)),
            raw,
            b"tb",
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join([*parts, b"u."]))


def _short_string(content: bytes) -> bytes:
    return b"U" + bytes([len(content)]) + content


def _text(content: str, width: int) -> bytes:
    return content.encode("ascii")[:width].ljust(width)


def _to_int16(signal_uv: Array, limit_uv: float) -> NDArray[np.int16]:
    steps = (DIGITAL_MAX - DIGITAL_MIN) / (2 * limit_uv)
    return np.round((signal_uv + limit_uv) * steps + DIGITAL_MIN).astype("<i2")
