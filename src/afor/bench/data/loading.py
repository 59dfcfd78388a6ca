"""Read, check and cache the subjects of a data set, and open its windows.

source = open_windows("synthetic", options={"kind": "imagery", "shift": 1.0})
x = source.gather(source.indices_of(["sub-01"]))    # float32 (windows, channels, samples)
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from afor.bench.common.errors import AbsentError, ConfigError, DataError, LeakageError
from afor.bench.common.files import exists
from afor.bench.common.suggest import did_you_mean
from afor.bench.common.text import shorten
from afor.bench.data.catalog import get_dataset
from afor.bench.data.dataset import STAND_IN_NOTE, Dataset, DataSettings
from afor.bench.data.prepared import (
    Checksums,
    PreparedSubject,
    open_cache,
    read_subject,
    subject_key,
    write_subject,
)
from afor.bench.data.recording import check_recording
from afor.bench.data.window_source import ExpectedWindows, WindowSource

OnSubject = Callable[[int, int, str], None]  # subjects done, total, name of the next
MAX_LISTED_SUBJECTS = 20  # more are abbreviated in messages to "first to last"


def open_windows(
    name: str,
    root: str | Path | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    subjects: Sequence[str] | Literal["all"] | None = None,
    exclude: Sequence[str] = (),
    cache_dir: str | Path | None = None,
    progress: OnSubject | None = None,
    verify: bool = False,
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

    Returns:
        The windows with their labels and subjects.

    Raises:
        ConfigError: The name, an option or a subject is not valid.
        DataError: A file is missing or damaged.
        LeakageError: Two subjects share a trial.

    Example:
        >>> import tempfile
        >>> options = {"n_subjects": 2, "trials": 8, "shift": 0.0}
        >>> source = open_windows("synthetic", options=options, cache_dir=tempfile.mkdtemp())
        >>> source.subjects, source.gather([0, 1]).shape
        (('sub-01', 'sub-02'), (2, 12, 128))
    """
    selection = select_subjects(name, root, options, subjects, exclude, cache_dir)
    prepared = prepare_all(selection, progress, verify=verify)
    check_together(selection.dataset.info.name, prepared)
    return windows_of(selection, prepared)


def windows_of(selection: "Selection", prepared: Sequence[PreparedSubject]) -> WindowSource:
    """Return the windows of prepared subjects, which `check_together` has checked."""
    dataset = selection.dataset
    return WindowSource(
        dataset.info.name,
        selection.prepared_dir,
        prepared,
        selection.settings,
        kind=dataset.kind(selection.source_dir),
        fingerprint_samples=not (dataset.needs_root or dataset.is_synthetic),
    )


def expected_windows(
    name: str,
    options: Mapping[str, Any],
    subjects: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
) -> ExpectedWindows | None:
    """Return the windows of a complete copy, or None if its size is not known without the files.

    >>> windows = expected_windows("deap", {})
    >>> len(windows.subjects), len(windows)
    (32, 76800)
    """
    dataset = get_dataset(name)
    settings = dataset.parse(options)
    if (shape := dataset.trial_shape(settings)) is None:
        return None
    left_out = {*dataset.excluded(settings), *exclude}
    wanted = subjects or [s for s in dataset.info.subjects if s not in left_out]
    return ExpectedWindows(dataset.info.name, wanted, settings, shape)


@dataclass(frozen=True)
class Selection:
    """The subjects of a data set that are read, and where their files and the cache are."""

    dataset: Dataset[Any]
    settings: DataSettings
    subjects: tuple[str, ...]
    source_dir: Path
    cache_dir: Path
    prepared_dir: Path  # in the cache, of this data set


def select_subjects(
    name: str,
    root: str | Path | None,
    options: Mapping[str, Any] | None,
    subjects: Sequence[str] | Literal["all"] | None,
    exclude: Sequence[str],
    cache_dir: str | Path | None,
) -> Selection:
    """Check the arguments of `open_windows` and find the subjects; nothing is read yet."""
    dataset = get_dataset(name)
    settings = dataset.parse(options or {})
    source = resolve_root(dataset, root, settings)
    cache = open_cache(cache_dir)
    selected = choose_subjects(dataset, source, settings, subjects, exclude)
    return Selection(
        dataset=dataset,
        settings=settings,
        subjects=selected,
        source_dir=source,
        cache_dir=cache,
        prepared_dir=cache / dataset.info.name.replace(":", "-"),
    )


def prepare_all(
    selection: Selection,
    progress: OnSubject | None = None,
    *,
    verify: bool = False,
    faults: list[str] | None = None,
) -> list[PreparedSubject]:
    """Prepare the selected subjects; errors are added to `faults`, or raised if that is None."""
    checksums = Checksums(selection.cache_dir, selection.source_dir)
    prepared, total = [], len(selection.subjects)
    try:
        for done, subject in enumerate(selection.subjects):
            if progress:
                progress(done, total, subject)
            try:
                prepared.append(prepare_subject(selection, subject, checksums, verify=verify))
            except DataError as error:
                if faults is None:
                    raise
                faults.append(str(error))
    finally:
        checksums.save()
    if progress:
        progress(total, total, "")
    return prepared


def resolve_root(dataset: Dataset[Any], root: str | Path | None, settings: DataSettings) -> Path:
    """Return the folder of a data set; raise AbsentError, with its source, if there is none."""
    if not dataset.needs_root:
        return Path(root or "")
    folder = Path(root) if root is not None else default_root(dataset.info.name)
    if not (exists(folder) and folder.is_dir()):
        hint = " Name it with --root." if root is None else ""
        raise AbsentError(
            f"{dataset.info.title}: there is no folder {shorten(folder)}.{hint} "
            f"{dataset.advice(settings)}"
        )
    return folder


def default_root(name: str) -> Path:
    """Return the default folder of a data set: ``$AFOR_DATA/<name>``, else ``data/<name>``."""
    return Path(os.environ.get("AFOR_DATA") or "data") / name


def choose_subjects(
    dataset: Dataset[Any],
    root: Path,
    settings: DataSettings,
    subjects: Sequence[str] | Literal["all"] | None,
    exclude: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the subjects to read; the arguments are those of `open_windows`.

    Raises:
        ConfigError: A subject to exclude does not exist, or no subject is left.
        DataError: A requested subject is missing.
    """
    info = dataset.info
    present = dataset.find(root, settings)
    _check_excluded(dataset, present, subjects, exclude)
    left_out = {*dataset.excluded(settings), *exclude}
    if subjects is None:
        selected = tuple(subject for subject in present if subject not in left_out)
        if not selected:
            if exclude:
                raise ConfigError(
                    f"{info.name}: exclude leaves no subject of {', '.join(present) or 'none'}. "
                    f"Name fewer."
                )
            raise AbsentError(f"{info.title}: no subject found in {root}. Expected: {info.layout}.")
        return selected
    if subjects == "all":
        wanted = tuple(s for s in info.subjects or present if s not in left_out)
    else:
        wanted = tuple(subjects)
    if not wanted or len(set(wanted)) != len(wanted):
        raise ConfigError(
            f"{info.name}: subjects must name at least one subject and none twice, found "
            f"{', '.join(wanted) or 'none'}."
        )
    if missing := [subject for subject in wanted if subject not in present]:
        raise DataError(
            f"{info.title}: no file of subject {', '.join(missing)} in {root}. "
            f"Found: {', '.join(present) or 'none'}. Expected: {info.layout}."
        )
    return wanted


def _check_excluded(
    dataset: Dataset[Any],
    present: Sequence[str],
    subjects: Sequence[str] | Literal["all"] | None,
    exclude: Sequence[str],
) -> None:
    """Raise ConfigError if an excluded subject does not exist or is also requested."""
    names = tuple(dict.fromkeys((*dataset.info.subjects, *present)))
    for subject in exclude:
        if subject not in names:
            is_long = len(names) > MAX_LISTED_SUBJECTS
            listed = f"{names[0]} to {names[-1]}" if is_long else ", ".join(names)
            raise ConfigError(
                f"{dataset.info.name}: exclude names {subject!r}, which is no subject of this data "
                f"set.{did_you_mean(subject, names)} It has {listed or 'none'}."
            )
        if subjects is not None and subjects != "all" and subject in subjects:
            raise ConfigError(
                f"{dataset.info.name}: {subject!r} stands in subjects and in exclude. Remove it "
                f"from one of them."
            )


def prepare_subject(
    selection: Selection, subject: str, checksums: Checksums, *, verify: bool
) -> PreparedSubject:
    """Return a subject from the cache, or read, check and store it.

    Raises:
        DataError: A file is missing or damaged.
    """
    dataset, root, settings = selection.dataset, selection.source_dir, selection.settings
    sources = checksums.of(dataset.source_files(root, subject, settings), rehash=verify)
    key = subject_key(
        dataset.info.name, dataset.version, subject, settings.trial_settings(), sources
    )
    if (cached := read_subject(selection.prepared_dir, key, verify=verify)) is not None:
        return cached
    recording = dataset.load(root, subject, settings)
    if dataset.kind(root) == "stand-in":
        recording = replace(recording, notes=(*recording.notes, STAND_IN_NOTE))
    recording = check_recording(recording, check_unit=dataset.check_unit)
    return write_subject(selection.prepared_dir, key, recording, sources)


def check_together(dataset: str, prepared: Sequence[PreparedSubject]) -> None:
    """Raise DataError if subjects differ in shape, LeakageError if they share trials."""
    first = prepared[0]
    for other in prepared[1:]:
        for attribute, ours, theirs in (
            ("channels", first.channel_names, other.channel_names),
            ("sampling rate", first.rate_hz, other.rate_hz),
            ("samples per trial", first.shape[2], other.shape[2]),
            ("classes", first.class_names, other.class_names),
        ):
            if ours != theirs:
                raise DataError(
                    f"{dataset} subject {other.subject}: {attribute} {theirs}, but subject "
                    f"{first.subject} has {ours}. All subjects must agree; leave one out with "
                    f'exclude = ["{other.subject}"] or choose common settings.'
                )
    owner: dict[str, tuple[str, int]] = {}
    shared: list[tuple[str, int, str, int]] = []
    for subject in prepared:
        for trial_id, digest in zip(subject.trial_ids, subject.trial_hashes, strict=True):
            if not digest:
                continue
            other_subject, other_trial = owner.setdefault(digest, (subject.subject, trial_id))
            if other_subject != subject.subject:
                shared.append((subject.subject, trial_id, other_subject, other_trial))
    if shared:
        name, trial_id, other_subject, other_trial = shared[0]
        more = f"; {len(shared)} trials in all are shared" if len(shared) > 1 else ""
        copies = ", ".join(f'"{copy}"' for copy in dict.fromkeys(copy for copy, *_ in shared))
        raise LeakageError(
            f"{dataset}: trial {trial_id} of subject {name} is trial {other_trial} of subject "
            f"{other_subject}, sample for sample{more}. One person's data under two ids would "
            f"stand on both sides of a split: leave one out with exclude = [{copies}]."
        )
