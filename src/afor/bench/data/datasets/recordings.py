"""Your own continuous recordings: files that MNE reads, with a table of events or annotations.

Recordings in a folder per subject belong to the subject the folder is named after; others to the
part of their name before the first ``_``: ``anna_1.edf`` and ``anna_2.edf`` are both of anna.
"""

from functools import lru_cache
from pathlib import Path

from afor.bench.common.errors import DataError
from afor.bench.data.dataset import Dataset, DatasetInfo
from afor.bench.data.datasets.continuous import (
    SUFFIXES,
    ContinuousSettings,
    Part,
    events_of,
    events_table_of,
    is_recording,
    label_of_file,
    read_raw,
    recording_of,
    whole_recording,
    with_companions,
)
from afor.bench.data.recording import Recording


def find_subjects(root: Path, _settings: object = None) -> tuple[str, ...]:
    """Return the subjects; this lists the folder anew, once for all that is read after it."""
    recordings_by_subject.cache_clear()
    return tuple(recordings_by_subject(root))


@lru_cache(maxsize=8)
def recordings_by_subject(root: Path) -> dict[str, list[Path]]:
    """Return the recordings under a folder by subject, both sorted, as `find_subjects` saw them."""
    by_subject: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if is_recording(path) and path.is_file() and not any(p.startswith(".") for p in parts):
            subject = parts[0] if len(parts) > 1 else path.stem.partition("_")[0]
            by_subject.setdefault(subject, []).append(path)
    return dict(sorted(by_subject.items()))


def source_files(root: Path, subject: str, _settings: ContinuousSettings) -> tuple[Path, ...]:
    """Return the recordings of a subject with the files that belong to them."""
    paths = recordings_by_subject(root).get(subject, [])
    if not paths:
        raise DataError(f"recordings: no file of subject {subject} in {root}.")
    return tuple(dict.fromkeys(part for path in paths for part in with_companions(path)))


def load_subject(root: Path, subject: str, settings: ContinuousSettings) -> Recording:
    """Read the recordings of one subject and cut them into trials."""
    parts = []
    for path in recordings_by_subject(root).get(subject, []):
        where = f"recordings subject {subject} ({path.relative_to(root)})"
        raw, notes = read_raw(path, where)
        if settings.classes_from == "events":
            events = events_of(raw, path, events_table_of(path), settings.events_column)
        else:
            events = whole_recording(raw, label_of_file(path, subject), settings)
        parts.append(Part(where, raw, events, notes))
    return recording_of("recordings", subject, parts, settings)


DATASET = Dataset(
    info=DatasetInfo(
        name="recordings",
        title="Your own continuous recordings in a folder",
        task="whatever the events say",
        shape="the same channels, rate and trial length for every subject",
        layout=f"<subject>/<name> or <subject>_<name>, {', '.join(SUFFIXES)}; events in "
        "<name>_events.tsv, events.tsv or the file's annotations",
    ),
    settings=ContinuousSettings,
    find=find_subjects,
    files=source_files,
    load=load_subject,
)
