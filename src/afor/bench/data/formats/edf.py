"""Read EDF and EDF+ files; check every field.

MNE and edfio accept several damaged headers silently and fail on others with errors that do not
name the file. This reader checks every field against its range and the size of the file before it
allocates memory: a file that is cut short, too long or has an impossible header raises DataError,
never an endless loop or a memory error. What no check can see is a possible but wrong value: other
samples, or another physical or digital range of a signal. Checksums find these.
"""

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import DataError

FIXED_BYTES = 256
SIGNAL_BYTES = 256
MAX_SIGNALS = 512
MAX_RATE_HZ = 20_000
MAX_ANNOTATION_SAMPLES = 1 << 20
MAX_PHYSICAL = 1e9  # no amplifier's range is larger
MAX_DIGITAL = 32_768
ANNOTATIONS = "EDF Annotations"
MICROVOLTS = {"uV": 1.0, "µV": 1.0, "μV": 1.0, "mV": 1e3, "V": 1e6, "nV": 1e-3}
# Widths of the per-signal header fields, in order; each is stored for all signals together.
FIELDS = {
    "label": 16, "transducer": 80, "unit": 8, "physical_min": 8, "physical_max": 8,
    "digital_min": 8, "digital_max": 8, "prefilter": 80, "samples": 8, "reserved": 32,
}  # fmt: skip


@dataclass(frozen=True)
class Signal:
    """The header of one signal."""

    label: str
    unit: str
    physical_min: float
    physical_max: float
    digital_min: int
    digital_max: int
    samples: int  # per record
    first: int  # position inside a record


@dataclass(frozen=True)
class Annotation:
    """An EDF+ annotation, in seconds from the start of the file."""

    onset_s: float
    duration_s: float
    text: str


@dataclass(frozen=True, eq=False)
class EdfFile:
    """A checked EDF file: headers in memory, samples memory-mapped."""

    path: Path
    signals: tuple[Signal, ...]
    record_s: float
    records: NDArray[np.int16]  # (records, samples of all signals)
    notes: tuple[str, ...]

    def labels(self) -> tuple[str, ...]:
        """Return the labels of the ordinary signals."""
        return tuple(s.label for s in self.signals if s.label != ANNOTATIONS)

    def rate_hz(self, label: str) -> float:
        """Return the sampling rate of a signal."""
        return self._signal(label).samples / self.record_s

    def microvolts(self, label: str) -> NDArray[np.float64]:
        """Return the samples of a signal in microvolts."""
        signal = self._signal(label)
        scale = MICROVOLTS.get(signal.unit)
        if scale is None:
            raise DataError(
                f"{self.path}: signal {label!r} has the unit {signal.unit!r}; EEG needs one of "
                f"{', '.join(MICROVOLTS)}."
            )
        physical_range = signal.physical_max - signal.physical_min
        gain = physical_range / (signal.digital_max - signal.digital_min)
        digital = self._samples(signal).reshape(-1).astype(np.float64)
        return scale * ((digital - signal.digital_min) * gain + signal.physical_min)

    def channels(
        self, names: Sequence[str], rate_hz: float, name_of: Callable[[str], str] = str
    ) -> NDArray[np.float64]:
        """Return signals in microvolts, (signals, samples), by what `name_of` makes of a label.

        Raises DataError if a name is missing or occurs twice, or has another rate.
        """
        signals = [self._signal(name, name_of) for name in names]
        for name, signal in zip(names, signals, strict=True):
            if (rate := signal.samples / self.record_s) != rate_hz:
                raise DataError(
                    f"{self.path}: channel {name} has {rate:g} Hz, expected {rate_hz:g}."
                )
        return np.stack([self.microvolts(signal.label) for signal in signals])

    def annotations(self) -> list[Annotation]:
        """Return the EDF+ annotations with a text, by onset."""
        annotations: list[Annotation] = []
        for signal in self.signals:
            if signal.label == ANNOTATIONS:
                for record in self._samples(signal):
                    annotations += _parse_annotations(record.tobytes(), self.path)
        return sorted(annotations, key=lambda a: a.onset_s)

    def _samples(self, signal: Signal) -> NDArray[np.int16]:
        return self.records[:, signal.first : signal.first + signal.samples]

    def _signal(self, name: str, name_of: Callable[[str], str] = str) -> Signal:
        matches = [s for s in self.signals if s.label != ANNOTATIONS and name_of(s.label) == name]
        if len(matches) != 1:
            fault = f"channel {name} occurs twice" if matches else f"no channel {name}"
            present = ", ".join(map(name_of, self.labels()))
            raise DataError(f"{self.path}: {fault}. Found: {present}.")
        return matches[0]


def read_edf(path: Path, *, allow_truncated: bool = False) -> EdfFile:
    """Open an EDF or EDF+C file; raise DataError if it is not valid.

    ``allow_truncated`` accepts a file that is shorter or longer than its header says, and uses the
    complete records.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            fixed = file.read(FIXED_BYTES)
            n_signals, record_s, n_records, variant = _parse_fixed(fixed, path)
            signal_headers = file.read(SIGNAL_BYTES * n_signals)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    if len(signal_headers) < SIGNAL_BYTES * n_signals:
        raise DataError(f"{path}: ends inside its header. Fetch the file again.")
    signals = _parse_signals(signal_headers, n_signals, record_s, path)
    per_record = sum(signal.samples for signal in signals)
    header_bytes = FIXED_BYTES + SIGNAL_BYTES * n_signals
    present = (size - header_bytes) // (2 * per_record)
    extra = size - header_bytes - n_records * 2 * per_record
    fault = note = ""
    if n_records == -1:
        fault = (
            "the number of records was never written: the recording was not closed. "
            "Accept what is there with the option allow_truncated=true."
        )
        note = f"not closed: {present} records"
        n_records = present
    elif present < n_records:
        fault = (
            f"truncated, {present} of {n_records} records are there. Fetch the file again, or "
            "accept the part with the option allow_truncated=true."
        )
        note = f"truncated: {present} of {n_records} records"
    elif extra:
        # More data than the header says: the count may be damaged, and data would be lost.
        fault = (
            f"{extra} bytes more than its header announces ({n_records} records). Header or file "
            "is damaged; fetch the file again, or accept the announced part with the option "
            "allow_truncated=true."
        )
        note = f"{extra} bytes after the last record left out"
    if fault and (not allow_truncated or present == 0):
        raise DataError(f"{path}: {fault}")
    if variant.startswith("EDF+D"):
        raise DataError(f"{path}: EDF+D (with gaps) is not supported; convert it to EDF+C.")
    count = min(present, n_records)
    samples = np.memmap(path, dtype="<i2", mode="r", offset=header_bytes, shape=(count, per_record))
    return EdfFile(path, signals, record_s, np.asarray(samples), (note,) if note else ())


def _parse_fixed(fixed: bytes, path: Path) -> tuple[int, float, int, str]:
    if not fixed:
        raise DataError(f"{path}: the file is empty. Fetch it again.")
    if len(fixed) < FIXED_BYTES:
        raise DataError(f"{path}: {len(fixed)} bytes are too few for an EDF header.")
    if fixed[:8] != b"0       ":
        raise DataError(f"{path}: no EDF file, it starts with {fixed[:8]!r} instead of '0'.")
    n_signals = _integer(fixed[252:256], "number of signals", path)
    if not 1 <= n_signals <= MAX_SIGNALS:
        raise DataError(f"{path}: {n_signals} signals; accepted are 1 to {MAX_SIGNALS}.")
    header_bytes = _integer(fixed[184:192], "header size", path)
    if header_bytes != (needed := FIXED_BYTES + SIGNAL_BYTES * n_signals):
        raise DataError(
            f"{path}: the header says it has {header_bytes} bytes, but {n_signals} signals need "
            f"{needed}."
        )
    record_s = _number(fixed[244:252], "record duration", path)
    if record_s < 0:
        raise DataError(f"{path}: a record duration of {record_s:g} s is not possible.")
    n_records = _integer(fixed[236:244], "number of records", path)
    if n_records == 0 or n_records < -1:
        raise DataError(f"{path}: {n_records} records; at least 1 is needed.")
    return n_signals, record_s, n_records, fixed[192:236].decode("latin-1")


def _parse_signals(
    header: bytes, n_signals: int, record_s: float, path: Path
) -> tuple[Signal, ...]:
    columns: dict[str, list[bytes]] = {}
    file = io.BytesIO(header)
    for field, width in FIELDS.items():
        columns[field] = [file.read(width) for _ in range(n_signals)]
    signals, first = [], 0
    for i in range(n_signals):
        label = columns["label"][i].decode("latin-1").strip()
        where = f"of signal {label!r}"
        samples = _integer(columns["samples"][i], f"samples per record {where}", path)
        is_timeless = record_s == 0  # as in a file of annotations alone
        if is_timeless and label != ANNOTATIONS:
            raise DataError(f"{path}: a record duration of 0 s is not possible.")
        limit = MAX_ANNOTATION_SAMPLES if is_timeless else max(1, MAX_RATE_HZ * record_s)
        if not 1 <= samples <= limit:
            raise DataError(f"{path}: {samples} samples per record {where} are not possible.")
        signal = Signal(
            label=label,
            unit=columns["unit"][i].decode("latin-1").strip(),
            physical_min=_number(columns["physical_min"][i], f"physical minimum {where}", path),
            physical_max=_number(columns["physical_max"][i], f"physical maximum {where}", path),
            digital_min=_integer(columns["digital_min"][i], f"digital minimum {where}", path),
            digital_max=_integer(columns["digital_max"][i], f"digital maximum {where}", path),
            samples=samples,
            first=first,
        )
        low, high = signal.digital_min, signal.digital_max
        bottom, top = signal.physical_min, signal.physical_max
        is_digital = -MAX_DIGITAL <= low < high <= MAX_DIGITAL
        if not is_digital or bottom == top or max(abs(bottom), abs(top)) > MAX_PHYSICAL:
            raise DataError(
                f"{path}: impossible range {where}: digital {low} to {high}, physical {bottom:g} "
                f"to {top:g}."
            )
        signals.append(signal)
        first += samples
    return tuple(signals)


def _parse_annotations(record: bytes, path: Path) -> list[Annotation]:
    annotations = []
    for entry in record.split(b"\x00"):
        if not entry:
            continue
        head, *texts = entry.split(b"\x14")
        onset, _, duration = head.partition(b"\x15")
        if len(texts) < 2 or texts[-1]:
            raise DataError(f"{path}: broken EDF+ annotation {entry[:40]!r}.")
        start = _number(onset, "annotation onset", path)
        length = _number(duration, "annotation duration", path) if duration else 0.0
        annotations += [
            Annotation(start, length, text.decode("utf-8", "replace"))
            for text in texts[:-1]
            if text
        ]
    return annotations


def _number(text: bytes, field: str, path: Path) -> float:
    plain = text.decode("latin-1").strip(" \x00")
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", plain, re.ASCII):
        value = float(plain)
        if math.isfinite(value):
            return value
    raise DataError(f"{path}: the {field} is {plain!r}, expected a number.")


def _integer(text: bytes, field: str, path: Path) -> int:
    value = _number(text, field, path)
    if value != int(value):
        raise DataError(f"{path}: the {field} is {value}, expected a whole number.")
    return int(value)
