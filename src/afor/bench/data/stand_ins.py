"""Write stand-ins for data sets: files in the real formats, filled with synthetic subjects.

They allow rehearsing a study on DEAP, BCI IV 2a or ISRUC before access is granted. Each folder has
a file ``STAND-IN.txt`` that marks it as a stand-in. The writers of EDF, EDF+, GDF 1.99 and Python
2 pickles follow at the end; other programs can read their files, too.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError
from afor.bench.data.dataset import STAND_IN_MARK
from afor.bench.data.datasets import bci2a, deap, isruc
from afor.bench.data.datasets.synthetic import SyntheticSettings, load_subject, subject_names
from afor.bench.data.recording import Recording

NOTICE = "These files are synthetic stand-ins written by `afor data stand-in`, not the data set.\n"
RUNS, GAP_SAMPLES = 6, 100  # of a session of BCI IV 2a
TRIAL_S, LEAD_IN_S = 7.0, 2
# ISRUC: subjects whose references are called A1 and A2 instead of M1 and M2.
A_SCHEME = frozenset(map(str, (*range(1, 8), 9, 10, 12, 15, 16, 18, 22, 24, 26)))
UNREFERENCED = "40"
EAR_CHANNELS = ("ROC", "A1", "LOC", "A2", "C4", "O2", "C3", "O1", "F4", "F3")
Array = NDArray[np.floating]
DIGITAL_MIN, DIGITAL_MAX = -32768, 32767
SYNTHETIC = "SYNTHETIC"  # stands in the headers of the files
GDF_MICROVOLT, GDF_INT16 = 4275, 3


def write_stand_in(
    name: str, root: Path, subjects: Sequence[str] | None = None, *, trials: int = 0, seed: int = 0
) -> list[Path]:
    """Write a stand-in for ``deap``, ``bci2a`` or ``isruc`` into a folder; return its files.

    Args:
        name: The data set.
        root: The folder to write.
        subjects: Names of the subjects; None writes all.
        trials: Number of trials of a subject of DEAP (at most 40), of a session of BCI IV 2a or of
            a night of ISRUC; 0 writes as many as the data set has: 40, 288 and 880.
        seed: Seed of the synthetic signals.

    Raises:
        ConfigError: There is no stand-in for the data set, or no such subject.
    """
    if name not in WRITERS:
        raise ConfigError(f"No stand-in for {name!r}; there is one for {', '.join(WRITERS)}.")
    all_subjects, write = WRITERS[name]
    if unknown := sorted(set(subjects or ()).difference(all_subjects)):
        raise ConfigError(f"{name} has no subject {', '.join(unknown)}.")
    root.mkdir(parents=True, exist_ok=True)
    (root / STAND_IN_MARK).write_text(NOTICE)
    files: list[Path] = []
    for subject in subjects or all_subjects:
        files += write(root, subject, all_subjects.index(subject), trials, seed)
    return files


def _synthesise(index: int, n_subjects: int, **options: object) -> Recording:
    settings = SyntheticSettings(n_subjects=n_subjects, **options)  # type: ignore[arg-type]
    return load_subject(settings, subject_names(settings)[index])


def _write_deap(root: Path, subject: str, index: int, trials: int, seed: int) -> list[Path]:
    n_trials, n_channels, samples = deap.DATA_SHAPE
    n = min(trials or n_trials, n_trials)
    recording = _synthesise(
        index, 32, kind="emotion", channels=deap.CHANNELS, trials=n, trial_s=63, seed=seed
    )
    rng = np.random.default_rng([seed, index])
    data = np.empty((n, n_channels, samples))
    data[:, :32] = recording.trials
    data[:, 32:] = rng.normal(0, 100, (n, n_channels - 32, samples))
    labels = rng.uniform(1, 9, (n, len(deap.RATINGS)))
    labels[:, 0] = np.where(recording.labels == 1, rng.uniform(5.1, 9, n), rng.uniform(1, 5, n))
    path = root / f"{subject}.dat"
    write_python2_pickle(path, {"labels": labels, "data": data})
    return [path]


def bci2a_session(
    index: int, session: int, trials: int, seed: int
) -> tuple[NDArray[np.float64], list[tuple[int, int, int]], NDArray[np.int64]]:
    """Return one session's signal, events (sample, code, duration) and classes from 1 to 4."""
    recording = _synthesise(
        index, 9, kind="imagery", channels=bci2a.CHANNELS, rate_hz=bci2a.RATE_HZ,
        trial_s=TRIAL_S, trials=trials, seed=seed, session=session,
    )  # fmt: skip
    rng = np.random.default_rng([seed, index, session])
    lead_in, gap = LEAD_IN_S * bci2a.RATE_HZ, np.full((25, GAP_SAMPLES), np.nan)
    pieces: list[NDArray[np.float64]] = []
    events: list[tuple[int, int, int]] = []
    run_start = 0
    for run in np.array_split(np.arange(trials), min(RUNS, trials)):
        events.append((run_start, 32766, 0))
        body = np.concatenate(list(recording.trials[run]), axis=1)
        signal = np.empty((25, lead_in + body.shape[1]))
        signal[:22, :lead_in] = rng.normal(0, 10, (22, lead_in))
        signal[:22, lead_in:] = body
        signal[22:] = rng.normal(0, 40, (3, signal.shape[1]))
        for i, trial in enumerate(run):
            start = run_start + lead_in + i * recording.trials.shape[2]
            code = 783 if session else 769 + int(recording.labels[trial])
            events += [(start, bci2a.TRIAL_START, 1875)]
            if trial % 20 == 7:
                events.append((start, bci2a.REJECTED, 1875))
            events.append((start + bci2a.CUE_AFTER_START, code, 313))
        pieces += [signal, gap]
        run_start += signal.shape[1] + GAP_SAMPLES
    return np.concatenate(pieces[:-1], axis=1), events, recording.labels + 1


def _write_bci2a(root: Path, subject: str, index: int, trials: int, seed: int) -> list[Path]:
    from scipy.io import savemat

    named = {position: f"EEG-{name}" for position, name in bci2a.NAMED_AT.items()}
    labels = [named.get(i, "EEG") for i in range(22)] + ["EOG-left", "EOG-central", "EOG-right"]
    files = []
    for session, letter in enumerate("TE"):
        signal, events, classes = bci2a_session(index, session, trials or bci2a.TRIALS, seed)
        files.append(root / f"{subject}{letter}.gdf")
        write_gdf(files[-1], labels, signal, bci2a.RATE_HZ, events)
        if letter == "E":
            files.append(root / f"{subject}E.mat")
            savemat(files[-1], {"classlabel": classes[:, None].astype(np.float64)})
    return files


def _write_isruc(root: Path, subject: str, index: int, trials: int, seed: int) -> list[Path]:
    recording = _synthesise(
        index, 100, kind="sleep", rate_hz=isruc.RATE_HZ, trial_s=isruc.EPOCH_S,
        trials=trials or 880, seed=seed,
    )  # fmt: skip
    night = np.concatenate(list(recording.trials), axis=1).astype(np.float64)
    by_name = dict(zip(isruc.CHANNELS, night, strict=True))
    rng = np.random.default_rng([seed, index])
    noise = {name: rng.normal(0, 20, night.shape[1]) for name in ("LOC", "ROC", "A1", "A2")}
    if subject == UNREFERENCED:
        recorded = {name: by_name[name] + noise[isruc.REFERENCES[name][0]] for name in by_name}
        stored = {name: (noise | recorded)[name] for name in EAR_CHANNELS}
    else:
        is_a = subject in A_SCHEME
        left, right = ("LOC-A2", "ROC-A1") if is_a else ("E1-M2", "E2-M1")
        stored = {left: noise["LOC"], right: noise["ROC"]}
        for name in isruc.CHANNELS:
            if subject != isruc.NO_FRONTAL or name not in isruc.SUBSTITUTES:
                stored[f"{name}-{isruc.REFERENCES[name][0 if is_a else 1]}"] = by_name[name]
    folder = root / subject
    files = [folder / f"{subject}.rec", folder / f"{subject}_1.txt", folder / f"{subject}_2.txt"]
    write_edf(files[0], list(stored), np.stack(list(stored.values())), isruc.RATE_HZ)
    codes = {label: code for code, label in isruc.STAGES.items()}
    text = "".join(f"{codes[label]}\n" for label in recording.labels.tolist())
    for path in files[1:]:
        path.write_text(text + "\n")
    return files


WRITERS = {
    "deap": (deap.SUBJECTS, _write_deap),
    "bci2a": (bci2a.SUBJECTS, _write_bci2a),
    "isruc": (isruc.SUBJECTS, _write_isruc),
}


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
