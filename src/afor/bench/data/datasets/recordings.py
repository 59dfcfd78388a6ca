"""Your own continuous recordings: files that MNE reads, with the events that mark their trials.

Recordings in a folder per subject belong to the subject the folder is named after; others to the
part of their name before the first ``_``: ``anna_1.edf`` and ``anna_2.edf`` are both of anna.

Events come from a table beside the recording (``<recording>_events.tsv`` or ``.csv``), from one
table for the whole folder (``events.tsv`` or ``.csv`` with a column ``file``), from MNE's
``<recording>-eve.fif``, from the annotations inside the file, or from its stim channels. A table
has a column ``onset`` in seconds, ``duration`` (optional) and a column with the class. With
``classes_from`` the whole recording has one class: that in its name, or its BIDS task.
"""

import csv
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.common.suggest import did_you_mean
from afor.bench.data.dataset import BandHz, Dataset, DatasetInfo, DataSettings, Words
from afor.bench.data.recording import Recording, channel_rows, require_finite
from afor.bench.data.signal import filter_signal, resample

SUFFIXES = (".edf", ".bdf", ".gdf", ".fif", ".set", ".vhdr")
SIDE_FILES = (".eeg", ".vmrk", ".fdt", ".dat")  # that belong to a .vhdr or .set file
TABLE_SUFFIXES = (".tsv", ".csv")
FOLDER_TABLE = "events"  # name of the table for all files of a folder
MICROVOLTS_PER_VOLT = 1e6
IGNORED_LABELS = ("bad", "edge", "boundary", "new segment")  # of MNE, EEGLAB, BrainVision
STIM_BITS = 0xFFFF  # the triggers; BioSemi uses higher bits for its own state
NOT_RECORDINGS = ("-epo.fif", "_epo.fif", "-eve.fif", "_eve.fif")
DEFAULT_TRIAL_S = 4.0  # of a recording that is of one class
NO_LABEL = ("", "n/a")  # BIDS writes n/a for a missing value


class ContinuousSettings(DataSettings):
    """Options of continuous recordings."""

    channels: Words | None = None  # None: all that MNE takes for EEG
    events_column: str = "trial_type"  # the column of the table with the class
    # And their order; other events are ignored. None: all, by name. A table gives codes names.
    classes: Words | dict[str, str] | None = None
    classes_from: Literal["events", "file", "task"] = "events"
    start_s: Annotated[float, Field(ge=-3600, le=3600)] = 0.0  # of a trial after its event
    trial_s: Annotated[float, Field(gt=0, le=86400)] | None = None  # None: the events' duration
    band_hz: BandHz = "none"
    resample_hz: Annotated[float, Field(gt=0, le=1e6)] | None = None
    scale: Annotated[float, Field(gt=0, le=1e9)] = 1.0  # of the signal, if a header is wrong

    def names_of_labels(self) -> dict[str, str] | None:
        """Return the class of each label of events; None: all labels are classes."""
        if isinstance(self.classes, dict):
            return {label: name for name, label in self.classes.items()}
        return None if self.classes is None else {name: name for name in self.classes}


ContinuousT = TypeVar("ContinuousT", bound=ContinuousSettings)


@dataclass(frozen=True)
class Event:
    """A labelled moment of a recording."""

    onset_s: float
    duration_s: float
    label: str


@dataclass(frozen=True)
class RawFile:
    """A recording on disk."""

    path: Path
    subject: str
    label: str  # its class if it is of one: what its name says besides its subject, or its task

    def read(self, where: str, *, preload: bool = True) -> tuple[Any, list[str]]:
        """Read it with MNE; return it with what MNE warned about."""
        import mne

        with mne_errors(where) as remarks:
            raw = mne.io.read_raw(self.path, preload=preload, verbose="error")
        return raw, remarks

    def events_table(self) -> Path | None:
        """Return the table of events beside the recording, or that of its folder, or None."""
        path = self.path
        stem = path.stem.removesuffix("_eeg")
        names = [f"{stem}_events", f"{path.stem}_events", FOLDER_TABLE]
        tables = [path.with_name(f"{name}{suffix}") for name in names for suffix in TABLE_SUFFIXES]
        return next((table for table in tables if table.is_file()), None)

    def files(self) -> list[Path]:
        """Return the recording, the files that belong to it and its tables."""
        beside = [self.path.with_suffix(suffix) for suffix in SIDE_FILES]
        tables = [table for table in (self.events_table(), event_file_of(self.path)) if table]
        return [self.path, *(path for path in beside if path.is_file()), *tables]


def event_file_of(path: Path) -> Path | None:
    """Return MNE's file of events beside a recording, or None; a recording in memory has none."""
    if not path.name:
        return None
    stem = re.sub(r"[-_](raw|eeg)$", "", path.stem)
    candidates = [path.with_name(f"{stem}{end}") for end in ("-eve.fif", "_eve.fif")]
    return next((file for file in candidates if file.is_file()), None)


@contextmanager
def mne_errors(where: str) -> Iterator[list[str]]:
    """Turn any error of MNE into a DataError and collect its warnings as notes."""
    remarks: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield remarks
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:500]
            raise DataError(f"{where}: MNE cannot read it ({reason}).") from error
    texts = dict.fromkeys(" ".join(str(w.message).split()) for w in caught)
    remarks += [f"MNE: {text[:200]}" for text in texts]


def events_of(
    raw: Any, path: Path, table: Path | None, column: str = "trial_type"
) -> tuple[list[Event], str]:
    """Return the events of a recording and where they are from: the first source that has some."""
    if table is not None:
        file_name = path.name if table.stem == FOLDER_TABLE else ""
        return read_events_table(table, column, file_name), "tables of events"
    import mne

    if (file := event_file_of(path)) is not None:
        with mne_errors(str(file)):
            return _coded(raw, mne.read_events(file, verbose="error")), "files -eve.fif"
    annotated = [
        Event(float(a["onset"]) - raw.first_time, float(a["duration"]), str(a["description"]))
        for a in raw.annotations
    ]
    if any(not event.label.lower().startswith(IGNORED_LABELS) for event in annotated):
        return annotated, "annotations"
    stim = channels_of_type(raw, "stim")  # such as STI 014 or BioSemi's Status
    if not stim:
        return annotated, "annotations"
    with mne_errors(str(path)):
        options = {"shortest_event": 1, "mask": STIM_BITS, "mask_type": "and", "uint_cast": True}
        codes = mne.find_events(raw, stim_channel=stim, verbose="error", **options)
    return _coded(raw, codes), f"the stim channel {', '.join(stim)}"


def channels_of_type(raw: Any, wanted: str) -> list[str]:
    """Return the channels of one of MNE's types."""
    types = zip(raw.ch_names, raw.get_channel_types(), strict=True)
    return [name for name, channel_type in types if channel_type == wanted]


def _coded(raw: Any, events: NDArray[np.int64]) -> list[Event]:
    """Return MNE's events (sample, before, code), labelled by their codes."""
    rate_hz = float(raw.info["sfreq"])
    return [Event((int(at) - raw.first_samp) / rate_hz, 0.0, str(code)) for at, _, code in events]


def label_of_file(path: Path, subject: str) -> str:
    """Return what the name of a recording says besides its subject.

    >>> label_of_file(Path("Subject00_1.edf"), "Subject00")
    '1'
    """
    stem = re.sub(r"[-_](raw|eeg)$", "", path.stem)
    return stem.removeprefix(subject).strip("_- ") or stem


def whole_recording(raw: Any, label: str, settings: ContinuousSettings) -> list[Event]:
    """Return one event after another, as many as fit, for a recording of one class."""
    trial_s = settings.trial_s or DEFAULT_TRIAL_S
    usable_s = raw.n_times / float(raw.info["sfreq"]) - settings.start_s
    return [Event(number * trial_s, trial_s, label) for number in range(int(usable_s / trial_s))]


def read_events_table(table: Path, column: str, file_name: str = "") -> list[Event]:
    """Read a table of events, a .tsv or .csv file with a header.

    Args:
        table: The file.
        column: The column with the class.
        file_name: Take only the rows whose column ``file`` ends with this name; empty takes all.
    """
    try:
        text = table.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{table}: cannot be read as a table of events ({error}).") from None
    rows = csv.DictReader(text.splitlines(), delimiter="\t" if table.suffix == ".tsv" else ",")
    present = [name for name in rows.fieldnames or () if name]
    for needed in ("onset", column, *(("file",) if file_name else ())):
        if needed not in present:
            raise DataError(
                f"{table}: no column {needed!r}.{did_you_mean(needed, present)} It has "
                f"{', '.join(present) or 'none'}; a table of events has onset (seconds), "
                f"duration (optional) and the class, whose column events_column names."
            )
    events = []
    for number, row in enumerate(rows, start=2):
        if file_name and Path(row["file"] or "").name != file_name:
            continue
        label = (row[column] or "").strip()
        if label in NO_LABEL:
            continue
        onset_s, duration_s = _seconds(row["onset"]), _seconds(row.get("duration"))
        if onset_s is None:
            raise DataError(
                f"{table}, line {number}: onset {row['onset']!r} is not a number of seconds."
            )
        events.append(Event(onset_s, duration_s or 0.0, label))
    return events


def _seconds(text: str | None) -> float | None:
    """Return a time, or None if it is missing or no finite number."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class RawPart:
    """One recording of a subject, read by MNE, with its events."""

    where: str
    raw: Any
    events: Sequence[Event]
    notes: Sequence[str] = ()


def recording_of(
    dataset: str, subject: str, parts: Sequence[RawPart], settings: ContinuousSettings
) -> Recording:
    """Cut the recordings of one subject, which must agree in channels and rate, into trials."""
    trials: list[NDArray[np.floating]] = []
    words: list[str] = []
    notes: list[str] = []
    first: tuple[tuple[str, ...], float] | None = None
    for part in parts:
        names, signal, rate_hz = _signal(part, settings)
        if first is None:
            first = (names, rate_hz)
        elif first != (names, rate_hz):
            raise DataError(
                f"{part.where}: {len(names)} channels at {rate_hz:g} Hz, but the subject's first "
                f"recording has {len(first[0])} at {first[1]:g} Hz. Name the common ones with "
                "channels, and a common rate with resample_hz."
            )
        cut, labels, dropped = _cut(part, signal, rate_hz, settings)
        if trials and cut and cut[0].shape != trials[0].shape:
            lengths = sorted({trials[0].shape[1] / rate_hz, cut[0].shape[1] / rate_hz})
            raise ConfigError(
                f"{part.where}: its events last {lengths[0]:g} s or {lengths[1]:g} s, those of the "
                "subject's other recordings do not. Set the option trial_s, in seconds."
            )
        trials += cut
        words += labels
        notes += part.notes
        if dropped:
            notes.append(f"{part.where}: {dropped} events reach over an end of the recording")
    if first is None or not words:
        seen = sorted({event.label for part in parts for event in part.events})
        raise DataError(
            f"{dataset} subject {subject}: no trial. Events here: {', '.join(seen) or 'none'}. "
            "Put a table of events beside the recording, name its classes with classes, or, if "
            'each recording is of one class, set classes_from = "file".'
        )
    return Recording.of_trials(
        subject=subject,
        trials=np.stack(trials),
        labels=words,
        channel_names=first[0],
        rate_hz=first[1],
        class_names=None if settings.classes is None else tuple(settings.classes),
        dataset=dataset,
        notes=notes,
    )


def _signal(
    part: RawPart, settings: ContinuousSettings
) -> tuple[tuple[str, ...], NDArray[np.floating], float]:
    """Return the names of the channels, their signal in microvolts, and its rate."""
    raw = part.raw
    if settings.channels is not None:
        names = settings.channels
        channel_rows(names, raw.ch_names, part.where)
    else:
        names = tuple(channels_of_type(raw, "eeg"))
        if not names:
            raise DataError(
                f"{part.where}: MNE finds no EEG channel among {', '.join(raw.ch_names)}. Name "
                "them with channels."
            )
    rate_hz = float(raw.info["sfreq"])
    signal = raw.get_data(picks=list(names)) * (MICROVOLTS_PER_VOLT * settings.scale)
    require_finite(signal, part.where, names)
    signal = filter_signal(signal, rate_hz, settings.band_hz)
    if settings.resample_hz is not None:
        signal = resample(signal, rate_hz, settings.resample_hz)
        rate_hz = settings.resample_hz
    return names, signal, rate_hz


def _cut(
    part: RawPart, signal: NDArray[np.floating], rate_hz: float, settings: ContinuousSettings
) -> tuple[list[NDArray[np.floating]], list[str], int]:
    """Return the trials, their classes, and the number of events that do not fit."""
    names = settings.names_of_labels()
    events = [event for event in part.events if names is None or event.label in names]
    trial_s = settings.trial_s
    if trial_s is None:
        durations = {event.duration_s for event in events}
        if events and (len(durations) > 1 or not max(durations) > 0):
            shown = ", ".join(f"{s:g}" for s in sorted(durations)[:5])
            raise ConfigError(
                f"{part.where}: the events last {shown} s, which gives no common length of a "
                "trial. Set the option trial_s, in seconds."
            )
        trial_s = max(durations, default=0.0)
    samples = round(trial_s * rate_hz)
    trials, labels, dropped = [], [], 0
    for event in events:
        start = round((event.onset_s + settings.start_s) * rate_hz)
        if start < 0 or start + samples > signal.shape[1]:
            dropped += 1
            continue
        trials.append(signal[:, start : start + samples])
        labels.append(event.label if names is None else names[event.label])
    return trials, labels, dropped


class ContinuousDataset(Dataset[ContinuousT]):
    """A data set of continuous recordings, which `files_by_subject` lists."""

    def files_by_subject(
        self, root: Path, settings: ContinuousT
    ) -> Mapping[str, Sequence[RawFile]]:
        """Return the recordings of each subject, both sorted, as `find` saw them."""
        raise NotImplementedError

    def files(self, root: Path, subject: str, settings: ContinuousT) -> list[Path]:
        """Return the recordings of a subject with the files that belong to them."""
        files = self.files_by_subject(root, settings).get(subject, [])
        return list(dict.fromkeys(path for file in files for path in file.files()))

    def load(self, root: Path, subject: str, settings: ContinuousT) -> Recording:
        """Read the recordings of one subject and cut them into trials."""
        parts = []
        for file in self.files_by_subject(root, settings)[subject]:
            where = f"{self.info.name} subject {subject} ({file.path.relative_to(root)})"
            raw, notes = file.read(where)
            if settings.classes_from == "events":
                events, _ = events_of(raw, file.path, file.events_table(), settings.events_column)
            else:
                events = whole_recording(raw, file.label, settings)
            parts.append(RawPart(where, raw, events, notes))
        return recording_of(self.info.name, subject, parts, settings)


class Recordings(ContinuousDataset[ContinuousSettings]):
    """The reader of recordings in a folder."""

    info = DatasetInfo(
        name="recordings",
        title="Your own continuous recordings in a folder",
        task="whatever the events say",
        shape="the same channels, rate and trial length for every subject",
        layout=f"<subject>/<name> or <subject>_<name>, {', '.join(SUFFIXES)}; events in "
        "<name>_events.tsv, events.tsv or the file's annotations",
    )
    settings = ContinuousSettings

    def find(self, root: Path, settings: ContinuousSettings) -> tuple[str, ...]:
        """Return the subjects; this lists the folder anew, once for all that is read after it."""
        list_files.cache_clear()
        return tuple(list_files(root))

    def files_by_subject(
        self, root: Path, settings: ContinuousSettings
    ) -> Mapping[str, Sequence[RawFile]]:
        """Return the recordings under a folder by subject."""
        return list_files(root)


@lru_cache(maxsize=8)
def list_files(root: Path) -> dict[str, list[RawFile]]:
    """Return the recordings under a folder by subject, both sorted, listed once."""
    by_subject: dict[str, list[RawFile]] = {}
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        is_hidden = any(part.startswith(".") for part in parts)
        is_recording = path.suffix.lower() in SUFFIXES and not path.name.endswith(NOT_RECORDINGS)
        if is_recording and path.is_file() and not is_hidden:
            subject = parts[0] if len(parts) > 1 else path.stem.partition("_")[0]
            file = RawFile(path, subject, label_of_file(path, subject))
            by_subject.setdefault(subject, []).append(file)
    return dict(sorted(by_subject.items()))


DATASET = Recordings()
