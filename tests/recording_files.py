"""Write recordings in formats that the package reads but does not write: EDF+, GDF and pickles."""

import struct

import edfio
import numpy as np

from afor.bench.data.datasets import bci2a
from afor.bench.data.datasets.synthetic import SyntheticSettings, load_subject

DIGITAL_MIN, DIGITAL_MAX = -32768, 32767
GDF_MICROVOLT, GDF_INT16 = 4275, 3
GAP_SAMPLES = 100


def write_edf_plus(path, labels, signal_uv, rate_hz, annotations):
    """Write a signal and its annotations (onset, duration, text) as EDF+."""
    limit = float(np.ceil(np.abs(signal_uv).max() + 1))
    unit = {"physical_dimension": "uV", "physical_range": (-limit, limit)}
    signals = [
        edfio.EdfSignal(row, rate_hz, label=label, **unit)
        for label, row in zip(labels, signal_uv, strict=True)
    ]
    notes = [edfio.EdfAnnotation(*annotation) for annotation in annotations]
    path.parent.mkdir(parents=True, exist_ok=True)
    edfio.Edf(signals, annotations=notes, data_record_duration=1).write(path)


def bci2a_session(trials=12, seed=0):
    """Return the signal, events (sample, code, duration) and classes (1 to 4) of a session of 2a.

    Between its runs, samples are missing.
    """
    settings = SyntheticSettings(
        kind="imagery", channels=bci2a.CHANNELS, rate_hz=bci2a.RATE_HZ, trial_s=7, trials=trials,
        n_subjects=9, seed=seed,
    )  # fmt: skip
    recording = load_subject(settings, "sub-01")
    rng = np.random.default_rng(seed)
    lead_in, gap = 2 * bci2a.RATE_HZ, np.full((25, GAP_SAMPLES), np.nan)
    pieces, events, run_start = [], [], 0
    for run in np.array_split(np.arange(trials), min(6, trials)):
        events.append((run_start, 32766, 0))
        body = np.concatenate(list(recording.trials[run]), axis=1)
        signal = rng.normal(0, 40, (25, lead_in + body.shape[1]))
        signal[:22, lead_in:] = body
        for i, trial in enumerate(run):
            start = run_start + lead_in + i * recording.trials.shape[2]
            events.append((start, bci2a.TRIAL_START, 1875))
            if trial % 20 == 7:
                events.append((start, bci2a.REJECTED, 1875))
            code = 769 + int(recording.labels[trial])
            events.append((start + bci2a.CUE_AFTER_START, code, 313))
        pieces += [signal, gap]
        run_start += signal.shape[1] + GAP_SAMPLES
    return np.concatenate(pieces[:-1], axis=1), events, recording.labels + 1


def write_gdf(path, labels, signal_uv, rate_hz, events):
    """Write a signal as GDF 1.99; NaN becomes the digital minimum, events count from sample 0."""
    n, samples = signal_uv.shape
    limit = float(np.ceil(np.nanmax(np.abs(signal_uv)) + 1))
    steps = (DIGITAL_MAX - DIGITAL_MIN) / (2 * limit)
    known = np.nan_to_num(signal_uv, nan=0.0)
    digital = np.round((known + limit) * steps + DIGITAL_MIN).astype("<i2")
    digital[np.isnan(signal_uv)] = DIGITAL_MIN
    fixed = [
        b"GDF 1.99",
        bytes(66 + 10 + 4),
        bytes(64 + 4 + 12 + 8 + 8),
        struct.pack("<H", n + 1) + bytes(6 + 8 + 6 + 6 + 24),  # header in blocks of 256 bytes
        struct.pack("<q2I2H", samples, 1, rate_hz, n, 0),
    ]
    variable = [
        *(label.encode().ljust(16) for label in labels),
        bytes(80 + 6) * n,
        struct.pack("<H", GDF_MICROVOLT) * n,
        *(struct.pack("<d", x) * n for x in (-limit, limit, DIGITAL_MIN, DIGITAL_MAX)),
        bytes(68 + 12) * n,  # prefilter, low pass, high pass, notch
        struct.pack("<i", 1) * n,  # samples per record
        struct.pack("<i", GDF_INT16) * n,
        bytes(12 + 20) * n,  # position, impedance
    ]
    position, code, duration = np.array(events, dtype=np.int64).reshape(-1, 3).T
    table = [
        bytes([3]) + struct.pack("<I", len(events))[:3] + struct.pack("<f", rate_hz),
        (position + 1).astype("<u4").tobytes(),
        code.astype("<u2").tobytes(),
        np.zeros(len(events), "<u2").tobytes(),
        duration.astype("<u4").tobytes(),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    samples_of_all = np.ascontiguousarray(digital.T).tobytes()
    path.write_bytes(b"".join([*fixed, *variable, samples_of_all, *table]))


def write_python2_pickle(path, arrays):
    """Write a dict of float64 arrays as Python 2 did with protocol 2, with byte strings."""

    def short(content):
        return b"U" + bytes([len(content)]) + content

    parts = [b"\x80\x02}q\x00("]
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array, dtype="<f8").tobytes()
        shape = b"".join(b"J" + struct.pack("<i", size) for size in array.shape)
        parts += [
            short(name.encode()),
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85",
            short(b"b") + b"\x87R(K\x01(" + shape + b"t",
            b"cnumpy\ndtype\n" + short(b"f8") + b"K\x00K\x01\x87R",
            b"(K\x03" + short(b"<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89T" + struct.pack("<i", len(raw)),
            raw,
            b"tb",
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join([*parts, b"u."]))
