"""A BIDS folder of EEG recordings, read through mne-bids (extra ``afor[bids]``)."""

from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.data.dataset import Dataset, DatasetInfo
from afor.bench.data.datasets.continuous import (
    SUFFIXES,
    ContinuousSettings,
    Part,
    events_of,
    mne_errors,
    recording_of,
    whole_recording,
    with_companions,
)
from afor.bench.data.recording import Recording
from afor.bench.data.settings import Words


class BidsSettings(ContinuousSettings):
    """Options of a BIDS folder, besides those of continuous recordings."""

    task: str = ""  # needed where there are several
    sessions: Words | None = None  # None: all, together on one side of a split


def find_subjects(root: Path, settings: BidsSettings) -> tuple[str, ...]:
    """Return the subjects; this lists the folder anew, once for all that is read after it."""
    all_paths.cache_clear()
    return tuple(bids_paths(root, settings))


@lru_cache(maxsize=8)
def all_paths(root: Path) -> list[Any]:
    """Return all EEG recordings of a BIDS folder as paths of mne-bids, sorted."""
    paths = _import_mne_bids().find_matching_paths(
        root, datatypes="eeg", suffixes="eeg", extensions=list(SUFFIXES), check=True
    )
    return sorted(paths, key=lambda path: str(path.fpath))


def bids_paths(root: Path, settings: BidsSettings) -> dict[str, list[Any]]:
    """Return the recordings of the task as paths of mne-bids, by subject.

    Raises:
        ConfigError: mne-bids is not installed, there are several tasks and none is named, or the
            task or a session does not exist.
    """
    paths = all_paths(root)
    for option, wanted, present in (
        ("task", {settings.task} - {""}, {p.task for p in paths}),
        ("sessions", set(settings.sessions or ()), {p.session for p in paths}),
    ):
        names = sorted(str(name) for name in present if name)
        if missing := sorted(wanted.difference(names)):
            raise ConfigError(
                f"bids: {option} {', '.join(missing)} is not in {root}. It has "
                f"{', '.join(names) or 'none'}."
            )
        is_ambiguous = option == "task" and not wanted and settings.classes_from != "task"
        if is_ambiguous and len(names) > 1:
            raise ConfigError(
                f"bids: {root} has the tasks {', '.join(names)}. Choose one with the option task, "
                'or set classes_from = "task" if each task is a class.'
            )
    by_subject: dict[str, list[Any]] = {}
    for path in paths:
        is_of_session = settings.sessions is None or path.session in settings.sessions
        if is_of_session and settings.task in ("", path.task):
            by_subject.setdefault(f"sub-{path.subject}", []).append(path)
    return dict(sorted(by_subject.items()))


def source_files(root: Path, subject: str, settings: BidsSettings) -> tuple[Path, ...]:
    """Return the recordings of a subject, their tables of events and of channels."""
    files: list[Path] = []
    for path in bids_paths(root, settings).get(subject, []):
        channels = path.copy().update(suffix="channels", extension=".tsv").fpath
        files += [*with_companions(path.fpath), *((channels,) if channels.is_file() else ())]
    if not files:
        raise DataError(f"bids: no recording of subject {subject} in {root}.")
    return tuple(dict.fromkeys(files))


def load_subject(root: Path, subject: str, settings: BidsSettings) -> Recording:
    """Read the recordings of one subject, all sessions and runs, and cut them into trials."""
    parts = []
    for path in bids_paths(root, settings).get(subject, []):
        where = f"bids subject {subject} ({path.basename})"
        raw, notes = read_path(path, where)
        if settings.classes_from == "events":
            events = events_of(raw, path.fpath, events_table(path), settings.events_column)
        else:
            events = whole_recording(raw, path.task, settings)
        parts.append(Part(where, raw, events, notes))
    return recording_of("bids", subject, parts, settings)


def read_path(path: Any, where: str) -> tuple[Any, list[str]]:
    """Read a recording with the types of its channels; return it with what MNE warned about."""
    with mne_errors(where) as notes:
        raw = _import_mne_bids().read_raw_bids(path, verbose="error").load_data(verbose="error")
    return raw, notes


def events_table(path: Any) -> Path | None:
    """Return the table of events of a recording, or None."""
    table: Path = path.copy().update(suffix="events", extension=".tsv").fpath
    return table if table.is_file() else None


def _import_mne_bids() -> ModuleType:
    try:
        import mne_bids
    except ImportError as error:
        raise ConfigError(
            f"A BIDS folder needs mne-bids ({error}). Install it: pip install 'afor[bids]'."
        ) from None
    module: ModuleType = mne_bids
    return module


DATASET = Dataset(
    info=DatasetInfo(
        name="bids",
        title="A BIDS folder of EEG recordings",
        task="the option task; classes are the values of the option events_column",
        licence="that of the data set: see its dataset_description.json",
        where="your own disk, or https://openneuro.org",
        citation="the data set's own, and mne-bids: Appelhoff et al., JOSS 4(44), 2019",
        shape="the same channels, rate and trial length for every subject",
        layout="sub-<subject>/[ses-<session>/]eeg/sub-…_task-…_eeg.<suffix>, as BIDS says",
    ),
    settings=BidsSettings,
    find=find_subjects,
    files=source_files,
    load=load_subject,
)
