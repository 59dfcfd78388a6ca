"""Windows with subject ids: cut on the fly from memory-mapped trials, never stored.

source = open_windows("synthetic", options={"kind": "imagery", "shift": 1.0})
x = source.gather(source.indices_of(["sub-01"]))    # float32 (windows, channels, samples)
"""

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from afor.bench.common.errors import ConfigError, DataError, LeakageError
from afor.bench.data.cache import (
    PreparedSubject,
    open_cache,
    read_subject,
    subject_key,
    write_subject,
)
from afor.bench.data.catalog import STAND_IN_MARK, STAND_IN_NOTE, Dataset, get_dataset
from afor.bench.data.checksums import Ledger
from afor.bench.data.recording import check_recording
from afor.bench.data.settings import DataSettings
from afor.bench.data.window_source import WindowSource

Progress = Callable[[int, int, str], None]
SHOWN = 20  # subjects that a message lists one by one


def open_windows(
    name: str,
    root: str | Path | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    subjects: Sequence[str] | Literal["all"] | None = None,
    exclude: Sequence[str] = (),
    cache_dir: str | Path | None = None,
    progress: Progress | None = None,
    verify: bool = False,
    accept_changed: bool = False,
) -> WindowSource:
    """Read, check and cache a data set, and return its windows.

    Args:
        name: Name of the data set, see `afor data list`; ``moabb:<Name>`` for one of MOABB.
        root: Folder of its files; None uses the default folder of the data set.
        options: Options of the data set, such as the filter band.
        subjects: Subjects to use. ``"all"`` requires a complete copy of the data set; None uses
            every subject present, except those that the data set leaves out by default.
        exclude: Subjects to leave out.
        cache_dir: Folder of the prepared data; None uses ``$AFOR_CACHE`` or the user's cache.
        progress: Called with (number of subjects done, total, subject).
        verify: Check the SHA-256 of cached samples.
        accept_changed: Accept source files that changed since they were first read.

    Returns:
        The windows with their labels and subjects.

    Raises:
        ConfigError: The name, an option or a subject is not valid.
        DataError: A file is missing, damaged or changed.
        LeakageError: Two subjects share a trial.

    Example:
        >>> import tempfile
        >>> options = {"n_subjects": 2, "trials": 8, "shift": 0.0}
        >>> source = open_windows("synthetic", options=options, cache_dir=tempfile.mkdtemp())
        >>> source.subjects, source.gather([0, 1]).shape
        (('sub-01', 'sub-02'), (2, 12, 128))

    """
    dataset = get_dataset(name)
    settings = dataset.parse(options or {})
    place = resolve_root(dataset, root)
    cache = open_cache(cache_dir)
    chosen = choose_subjects(dataset, place, settings, subjects, exclude)
    ledger = Ledger(cache, place)
    prepared = []
    try:
        for done, subject in enumerate(chosen):
            if progress:
                progress(done, len(chosen), subject)
            prepared.append(
                prepare_subject(
                    dataset,
                    place,
                    subject,
                    settings,
                    cache,
                    ledger,
                    verify=verify,
                    accept_changed=accept_changed,
                )
            )
    finally:
        ledger.save()
    if progress:
        progress(len(chosen), len(chosen), "")
    check_together(dataset.info.name, prepared)
    return WindowSource(
        dataset.info.name,
        cache / folder_name(dataset),
        prepared,
        settings,
        fingerprint_samples=dataset.hashes_data,
    )


def resolve_root(dataset: Dataset, root: str | Path | None) -> Path:
    """Return the data set's folder; DataError says where to get the data when it is not there."""
    if not dataset.needs_root:
        return Path(root) if root is not None else Path()
    info = dataset.info
    how = f"Get the data from {info.where}; expected layout: {info.layout}"
    place = Path(root) if root is not None else default_root(info.name)
    if not _is_folder(place):
        hint = " Name it with --root." if root is None else ""
        shown = str(place) if len(str(place)) <= 200 else f"{str(place)[:200]}..."
        raise DataError(f"{info.title}: there is no folder {shown}.{hint} {how}.")
    return place


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that is too long, or holds a NUL character
        return False


def default_root(name: str) -> Path:
    """Return where a data set is looked for: its folder in ``$AFOR_DATA``, else in ``data``."""
    return Path(os.environ.get("AFOR_DATA") or "data") / name


def choose_subjects(
    dataset: Dataset,
    root: Path,
    settings: DataSettings,
    subjects: Sequence[str] | Literal["all"] | None,
    exclude: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the subjects to read.

    Raises DataError for a subject that is asked for and not there, and ConfigError for one to
    exclude that does not exist.
    """
    info = dataset.info
    found = dataset.find(root, settings)
    _check_excluded(dataset, found, subjects, exclude)
    left_out = {*(dataset.excluded(settings) if dataset.excluded else ()), *exclude}
    if subjects is None:
        chosen = tuple(subject for subject in found if subject not in left_out)
        if not chosen:
            if exclude:
                raise ConfigError(
                    f"{info.name}: exclude leaves no subject of {', '.join(found) or 'none'}. "
                    f"Name fewer."
                )
            raise DataError(f"{info.title}: no subject found in {root}. Expected: {info.layout}.")
        return chosen
    if subjects == "all":
        wanted = tuple(s for s in info.subjects or found if s not in left_out)
    else:
        wanted = tuple(subjects)
    if not wanted or len(set(wanted)) != len(wanted):
        raise ConfigError(
            f"{info.name}: subjects must name at least one subject and none twice, got "
            f"{', '.join(wanted) or 'none'}."
        )
    if missing := [subject for subject in wanted if subject not in found]:
        raise DataError(
            f"{info.title}: no file of subject {', '.join(missing)} in {root}. "
            f"Found: {', '.join(found) or 'none'}. Expected: {info.layout}."
        )
    return wanted


def _check_excluded(
    dataset: Dataset,
    found: Sequence[str],
    subjects: Sequence[str] | Literal["all"] | None,
    exclude: Sequence[str],
) -> None:
    """Refuse to exclude a subject that the data set does not have, or that is asked for."""
    known = tuple(dict.fromkeys((*dataset.info.subjects, *found)))
    for subject in exclude:
        if subject not in known:
            near = difflib.get_close_matches(subject, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            names = f"{known[0]} to {known[-1]}" if len(known) > SHOWN else ", ".join(known)
            raise ConfigError(
                f"{dataset.info.name}: exclude names {subject!r}, which is no subject of this data "
                f"set.{hint} It has {names or 'none'}."
            )
        if subjects is not None and subjects != "all" and subject in subjects:
            raise ConfigError(
                f"{dataset.info.name}: {subject!r} stands in subjects and in exclude. Remove it "
                f"from one of them."
            )


def prepare_subject(
    dataset: Dataset,
    root: Path,
    subject: str,
    settings: DataSettings,
    cache_dir: Path,
    ledger: Ledger,
    *,
    verify: bool = False,
    accept_changed: bool = False,
) -> PreparedSubject:
    """Return a subject from the cache, or read, check and store it.

    ``verify`` reads every byte of the source files and of the cache again.
    """
    sources = ledger.check(
        dataset.files(root, subject, settings), accept_changed=accept_changed, rehash=verify
    )
    folder = cache_dir / folder_name(dataset)
    key = subject_key(
        dataset.info.name, dataset.version, subject, settings.trial_settings(), sources
    )
    if (known := read_subject(folder, key, verify=verify)) is not None:
        return known
    recording = dataset.load(root, subject, settings)
    if dataset.needs_root and (root / STAND_IN_MARK).exists():
        recording = replace(recording, notes=(*recording.notes, STAND_IN_NOTE))
    recording = check_recording(recording, check_unit=dataset.check_unit)
    return write_subject(folder, key, recording, sources)


def folder_name(dataset: Dataset) -> str:
    """Return the data set's folder in the cache."""
    return dataset.info.name.replace(":", "-")


def check_together(dataset: str, prepared: Sequence[PreparedSubject]) -> None:
    """Refuse subjects that do not fit each other or share trials."""
    first = prepared[0]
    for other in prepared[1:]:
        for what, one, two in (
            ("channels", first.channel_names, other.channel_names),
            ("sampling rate", first.rate_hz, other.rate_hz),
            ("samples per trial", first.shape[2], other.shape[2]),
            ("classes", first.class_names, other.class_names),
        ):
            if one != two:
                raise DataError(
                    f"{dataset} subject {other.subject}: {what} {two}, but subject {first.subject} "
                    f"has {one}. All subjects must agree; leave one out with exclude = "
                    f'["{other.subject}"] or choose common settings.'
                )
    owner: dict[str, tuple[str, int]] = {}
    for subject in prepared:
        for trial_id, digest in zip(subject.trial_ids, subject.trial_hashes, strict=True):
            if not digest:
                continue
            known, known_trial = owner.setdefault(digest, (subject.subject, trial_id))
            if known != subject.subject:
                raise LeakageError(
                    f"{dataset}: trial {trial_id} of subject {subject.subject} is trial "
                    f"{known_trial} of subject {known}, sample for sample. One person's data under "
                    "two ids would stand on both sides of a split: leave one out with exclude = "
                    f'["{subject.subject}"].'
                )
