"""Look at a folder of EEG files: which data set reads it, its subjects, channels and events."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from afor.bench.common.errors import DataError
from afor.bench.data.catalog import get_dataset
from afor.bench.data.datasets import bids, recordings
from afor.bench.data.datasets.continuous import SUFFIXES, events_of, events_table_of, read_raw
from afor.bench.data.datasets.folder import FolderSettings, find_subjects
from afor.bench.data.montage import is_eeg_name

MAX_FREE_EVENTS = 20  # more different labels than these are no classes
IGNORED_LABELS = ("bad", "edge", "boundary", "new segment")  # of MNE, EEGLAB, BrainVision


@dataclass(frozen=True)
class Survey:
    """What a folder holds. Channels, rate and events are those of the first recording."""

    root: str
    use: str  # the data set that reads it
    subjects: Mapping[str, int]  # number of recordings of each
    first: str = ""
    channels: tuple[str, ...] = ()
    other_channels: tuple[str, ...] = ()  # that MNE does not take for EEG, or with another name
    rate_hz: float = 0.0
    seconds: float = 0.0
    events_from: str = ""
    events: Mapping[str, int] = field(default_factory=dict)
    shortest_event_s: float = 0.0
    tasks: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the labels of events that may be classes."""
        return tuple(label for label in self.events if not label.lower().startswith(IGNORED_LABELS))

    def options(self) -> dict[str, Any]:
        """Return options of the data set to start from."""
        if self.use == "folder":
            return {"unit": "uV"}
        options: dict[str, Any] = {"task": self.tasks[0]} if self.tasks else {}
        if self.other_channels:
            options["channels"] = list(self.channels)
        if 1 < len(self.classes) <= MAX_FREE_EVENTS:
            options["classes"] = list(self.classes)
        options["trial_s"] = self.shortest_event_s or 1.0
        options["band_hz"] = [0.3, min(50.0, round(0.45 * self.rate_hz, 1))]
        return options


def survey_folder(root: Path) -> Survey:
    """Look at a folder without writing anything.

    Raises:
        DataError: The folder does not exist or has no file that a data set here reads.
    """
    if not root.is_dir():
        raise DataError(f"There is no folder {root}. Name the folder of your recordings.")
    by_subject = recordings.recordings_by_subject(root)
    if (root / "dataset_description.json").is_file() or any(root.glob("sub-*/**/eeg")):
        return _survey_bids(root)
    if by_subject:
        counts = {subject: len(paths) for subject, paths in by_subject.items()}
        return _with_first(Survey(str(root), "recordings", counts), by_subject)
    if subjects := find_subjects(root, FolderSettings()):
        return Survey(str(root), "folder", dict.fromkeys(subjects, 1))
    raise DataError(
        f"{root}: nothing that can be read. Accepted: a BIDS folder, recordings "
        f"({', '.join(SUFFIXES)}), or {get_dataset('folder').info.layout}."
    )


def _survey_bids(root: Path) -> Survey:
    paths = bids.all_paths(root)
    if not paths:
        raise DataError(f"{root}: a BIDS folder without an EEG recording ({', '.join(SUFFIXES)}).")
    tasks = tuple(sorted({path.task for path in paths if path.task}))
    sessions = tuple(sorted({path.session for path in paths if path.session}))
    by_subject: dict[str, list[Path]] = {}
    for path in sorted(paths, key=lambda path: f"sub-{path.subject}"):
        if path.task == (tasks[0] if tasks else None):
            by_subject.setdefault(f"sub-{path.subject}", []).append(path.fpath)
    counts = {subject: len(files) for subject, files in by_subject.items()}
    survey = Survey(str(root), "bids", counts, tasks=tasks, sessions=sessions)
    return _with_first(survey, by_subject)


def _with_first(survey: Survey, by_subject: Mapping[str, list[Path]]) -> Survey:
    """Add what the first recording holds."""
    path = sorted(next(iter(by_subject.values())))[0]
    raw, notes = read_raw(path, str(path))
    types = zip(raw.ch_names, raw.get_channel_types(), strict=True)
    eeg = tuple(name for name, type_ in types if type_ == "eeg" and is_eeg_name(name))
    table = events_table_of(path)
    if _has_trial_type(table):
        events = events_of(raw, path, table, "trial_type")
    else:
        events = []
        notes.append(f"{table} has no column trial_type: name another with events_column")
    return replace(
        survey,
        first=str(path.relative_to(survey.root)),
        channels=eeg,
        other_channels=tuple(name for name in raw.ch_names if name not in eeg),
        rate_hz=float(raw.info["sfreq"]),
        seconds=float(raw.n_times / raw.info["sfreq"]),
        events_from=str(table.relative_to(survey.root)) if table else "its annotations",
        events=dict(sorted(Counter(event.label for event in events).items())),
        shortest_event_s=min((e.duration_s for e in events if e.duration_s > 0), default=0.0),
        notes=tuple(notes),
    )


def _has_trial_type(table: Path | None) -> bool:
    """Tell whether a table of events has the usual column; annotations need none."""
    if table is None:
        return True
    header = table.read_text("utf-8-sig", "replace").partition("\n")[0].strip()
    return "trial_type" in header.split("\t" if table.suffix == ".tsv" else ",")
