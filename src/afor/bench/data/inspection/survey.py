"""Look at a folder of EEG files and propose how a study reads it.

The names of files, BIDS tasks, events and stim channels are looked at in all recordings, the signal
in the first one. The proposal is then tried: a study that cannot be planned is said to be one.
"""

import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from afor.bench.common.errors import AforError, DataError, LeakageError
from afor.bench.data.catalog import get_dataset
from afor.bench.data.datasets import bids, recordings
from afor.bench.data.datasets.recordings import (
    DEFAULT_TRIAL_S,
    IGNORED_LABELS,
    MICROVOLTS_PER_VOLT,
    SUFFIXES,
    Event,
    RawFile,
    channels_of_type,
    events_of,
)
from afor.bench.data.loading import (
    OnSubject,
    check_together,
    prepare_all,
    select_subjects,
    windows_of,
)
from afor.bench.data.montage import is_eeg_name
from afor.bench.data.recording import likely_scale
from afor.bench.data.splits import make_splits
from afor.bench.data.window_source import WindowSource

KNOWN = ("bci2a", "eegmat", "sleep_edf", "physionet_mi", "deap", "isruc")
MAX_FREE_EVENTS = 20  # more different labels than these are no classes
MIN_TRIAL_S = 0.1  # shorter events are marks, not trials
MAX_RATE_HZ = 256.0  # recordings above it are resampled
MAX_SECONDS_LOOKED_AT = 60


@dataclass(frozen=True)
class Survey:
    """What a folder holds. Channels and rate are those of the first recording."""

    root: str
    use: str  # the data set that reads it
    subjects: Mapping[str, int]  # number of recordings of each; 0: of a data set known by name
    first: str = ""
    channels: tuple[str, ...] = ()
    other_channels: tuple[str, ...] = ()  # that MNE does not take for EEG, or with another name
    rate_hz: float = 0.0
    seconds: float = 0.0
    typical_uv: float = 0.0  # standard deviation of the median channel
    events_from: str = ""
    events: Mapping[str, int] = field(default_factory=dict)  # of all recordings
    event_s: float = 0.0  # shortest duration of an event that may be a trial
    gap_s: float = 0.0  # from an event to the next, the median
    conditions: Mapping[str, int] = field(default_factory=dict)  # in names of files or tasks
    tasks: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the labels of events that may be classes.

        Of numbers, which also mark beginnings and ends, those that occur equally often.
        """
        labels = [name for name in self.events if not name.lower().startswith(IGNORED_LABELS)]
        if len(labels) < 3 or not all(label.isdigit() for label in labels):
            return tuple(labels)
        by_count: dict[int, list[str]] = {}
        for label in labels:
            by_count.setdefault(self.events[label], []).append(label)
        best = max(by_count.values(), key=lambda group: (len(group), self.events[group[0]]))
        return tuple(best) if len(best) > 1 else tuple(labels)

    @property
    def has_condition_per_file(self) -> bool:
        """Return True if events give no classes, and every subject has the same conditions.

        Events that some recordings lack, such as a mark of their end, give no classes.
        """
        has_classes = len(self.classes) > 1 and (
            sum(self.events[name] for name in self.classes) >= sum(self.subjects.values())
        )
        counts = self.conditions.values()
        return not has_classes and len(counts) > 1 and set(counts) == {len(self.subjects)}

    @property
    def scale(self) -> float:
        """Return what to multiply the signal by, if its header has a wrong unit."""
        return likely_scale(self.typical_uv)

    def options(self) -> dict[str, Any]:
        """Return options of the data set to start from."""
        if self.use == "folder":
            return {"unit": "uV"}
        if self.use in KNOWN:
            return {}
        options: dict[str, Any] = {}
        if self.has_condition_per_file:
            options["classes_from"] = "task" if self.use == "bids" else "file"
            options["classes"] = list(self.conditions)
            options["trial_s"] = DEFAULT_TRIAL_S
        else:
            if self.tasks:
                options["task"] = self.tasks[0]
            if 1 < len(self.classes) <= MAX_FREE_EVENTS:
                options["classes"] = list(self.classes)
            options["trial_s"] = self.event_s or min(DEFAULT_TRIAL_S, round(self.gap_s, 1)) or 1.0
        if self.other_channels:
            options["channels"] = list(self.channels)
        if self.scale != 1.0:
            options["scale"] = self.scale
        rate_hz = self.rate_hz
        while rate_hz > MAX_RATE_HZ:
            rate_hz /= 2
        if rate_hz != self.rate_hz:
            options["resample_hz"] = rate_hz
        options["band_hz"] = [0.3, min(50.0, round(0.45 * rate_hz, 1))]
        return options


def survey_folder(root: Path) -> Survey:
    """Look at a folder without writing anything.

    Raises:
        DataError: The folder does not exist or has no file that a data set here reads.
    """
    if not root.is_dir():
        raise DataError(f"There is no folder {root}. Name the folder of your recordings.")
    for name in KNOWN:
        dataset = get_dataset(name)
        if subjects := dataset.find(root, dataset.parse({})):
            note = f"recognised: {dataset.info.title}; cite {dataset.info.citation}"
            return Survey(str(root), name, dict.fromkeys(subjects, 0), notes=(note,))
    if (root / "dataset_description.json").is_file() or any(root.glob("sub-*/**/eeg")):
        return _survey_bids(root)
    if recordings.DATASET.find(root, recordings.ContinuousSettings()):
        files = [file for of_one in recordings.list_files(root).values() for file in of_one]
        return _look_at(Survey(str(root), "recordings", _counts(files)), files)
    folder = get_dataset("folder")
    if subjects := folder.find(root, folder.parse({})):
        return Survey(str(root), "folder", dict.fromkeys(subjects, 1))
    raise DataError(
        f"{root}: nothing that can be read. Accepted: a BIDS folder, recordings "
        f"({', '.join(SUFFIXES)}), or {folder.info.layout}."
    )


def try_proposal(
    survey: Survey, cache_dir: Path | None = None, progress: OnSubject | None = None
) -> tuple[WindowSource | None, str]:
    """Read the folder as proposed; return its windows and why it cannot be planned.

    The windows are None where subjects cannot be read or differ in shape.
    """
    try:
        selection = select_subjects(survey.use, survey.root, survey.options(), None, (), cache_dir)
        prepared = prepare_all(selection, progress)
        try:
            check_together(survey.use, prepared)
        except LeakageError as error:
            return windows_of(selection, prepared), str(error)
        source = windows_of(selection, prepared)
        make_splits(survey.use, source.subjects, folds=folds_of(survey))
    except AforError as error:
        return None, str(error)
    if source.n_classes < 2:
        return None, f"all trials are of one class, {source.class_names[0]}."
    return source, ""


def folds_of(survey: Survey) -> int | None:
    """Return the number of folds to propose: a tenth of many subjects at a time."""
    return 10 if len(survey.subjects) > MAX_FREE_EVENTS else None


def _survey_bids(root: Path) -> Survey:
    bids.all_files.cache_clear()
    files = bids.all_files(root)
    if not files:
        raise DataError(f"{root}: a BIDS folder without an EEG recording ({', '.join(SUFFIXES)}).")
    tasks = tuple(sorted({file.label for file in files if file.label}))
    sessions = {file.bids_path.session for file in files} - {None}
    survey = Survey(
        str(root), "bids", _counts(files), tasks=tasks, sessions=tuple(sorted(sessions))
    )
    return _look_at(survey, sorted(files, key=lambda file: (file.subject, str(file.path))))


def _counts(files: Sequence[RawFile]) -> dict[str, int]:
    return dict(sorted(Counter(file.subject for file in files).items()))


def _look_at(survey: Survey, files: Sequence[RawFile]) -> Survey:
    """Add what the recordings hold: events of all, signal of the first."""
    events: list[Event] = []
    gaps: list[float] = []
    notes = list(_similar_names(survey.subjects))
    sources: Counter[str] = Counter()
    of_subjects: dict[str, set[str]] = {}
    first: dict[str, Any] = {}
    for file in files:
        raw, remarks = file.read(str(file.path), preload=False)
        found, source = _events(raw, file)
        if not first:
            first = _signal_facts(raw, file.path, survey.root)
            notes += remarks
        sources[source] += 1
        events += found
        onsets = sorted(event.onset_s for event in found)
        gaps += [later - earlier for earlier, later in pairwise(onsets) if later > earlier]
        of_subjects.setdefault(file.label, set()).add(file.subject)
    usual = [e.duration_s for e in events if e.duration_s >= MIN_TRIAL_S]
    return replace(
        survey,
        **first,
        events_from=", ".join(sources),
        events=dict(sorted(Counter(event.label for event in events).items())),
        event_s=min(usual, default=0.0),
        gap_s=statistics.median(gaps) if gaps else 0.0,
        conditions={name: len(subjects) for name, subjects in sorted(of_subjects.items())},
        notes=tuple(notes),
    )


def _events(raw: Any, file: RawFile) -> tuple[list[Event], str]:
    """Return the events of a recording, and where they come from."""
    table = file.events_table()
    if table is not None:
        header = table.read_text("utf-8-sig", "replace").partition("\n")[0].strip()
        if "trial_type" not in header.split("\t" if table.suffix == ".tsv" else ","):
            return [], f"{table.name}, which has no column trial_type: name another (events_column)"
    return events_of(raw, file.path, table)


def _signal_facts(raw: Any, path: Path, root: str) -> dict[str, Any]:
    eeg = tuple(name for name in channels_of_type(raw, "eeg") if is_eeg_name(name))
    rate_hz = float(raw.info["sfreq"])
    last = min(raw.n_times, round(MAX_SECONDS_LOOKED_AT * rate_hz))
    spread = raw.get_data(picks=list(eeg), stop=last).std(axis=1) if eeg else np.zeros(1)
    return {
        "first": str(path.relative_to(root)),
        "channels": eeg,
        "other_channels": tuple(name for name in raw.ch_names if name not in eeg),
        "rate_hz": rate_hz,
        "seconds": float(raw.n_times / rate_hz),
        "typical_uv": float(np.median(spread)) * MICROVOLTS_PER_VOLT,
    }


def _similar_names(subjects: Mapping[str, int]) -> list[str]:
    """Warn of subjects whose names differ in their last letter: sessions of one person?"""
    groups: dict[str, list[str]] = {}
    for name in subjects:
        if re.search(r"\d[A-Za-z]$", name):
            groups.setdefault(name[:-1], []).append(name)
    return [
        f"one person? {', '.join(names)} differ in one letter. If so, put their files into one "
        f"folder, {stem}/: one person must not be on both sides of a split"
        for stem, names in groups.items()
        if len(names) > 1
    ]
