"""Open the data sets of a study; say which are absent, and describe those for a plan."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from afor.bench.common.errors import AbsentError
from afor.bench.data.catalog import get_dataset
from afor.bench.data.loading import (
    OnSubject,
    choose_subjects,
    expected_windows,
    open_windows,
    resolve_root,
)
from afor.bench.data.window_source import ExpectedWindows, WindowSource
from afor.bench.study.schema import Study


class PreparationWatcher(Protocol):
    """Observes the preparation of data."""

    def preparing(self, dataset: str) -> OnSubject:
        """Return a callback that is called with (done, total, subject) while data are read."""


def open_sources(
    study: Study, cache_dir: Path | None = None, watch: PreparationWatcher | None = None
) -> dict[str, WindowSource]:
    """Read, check and cache the data of a study.

    Args:
        study: The study.
        cache_dir: Folder of the prepared data; None uses ``$AFOR_CACHE`` or the user's cache.
        watch: Is told about progress.

    Returns:
        The windows of each data set, by its name in the study.

    Raises:
        AbsentError: Data sets are absent; the message names all of them. Nothing was read.
        DataError: A file is damaged.
    """
    absent = absent_datasets(study)
    if absent:
        raise AbsentError(_describe(study, absent))
    return {
        entry.name: open_windows(
            entry.use,
            entry.root or None,
            options=entry.options,
            subjects=entry.subjects or ("all" if entry.complete else None),
            exclude=entry.exclude,
            cache_dir=cache_dir,
            progress=watch.preparing(entry.name) if watch else None,
        )
        for entry in study.datasets
    }


def absent_datasets(study: Study) -> dict[str, AbsentError]:
    """Return the data sets of a study without any file here, each with an explanation."""
    absent = {}
    for entry in study.datasets:
        try:
            dataset = get_dataset(entry.use)
            settings = dataset.parse(entry.options)
            root = resolve_root(dataset, entry.root or None, settings)
            if dataset.needs_root:
                choose_subjects(dataset, root, settings, None)
        except AbsentError as error:
            absent[entry.name] = error
    return absent


def available_part(study: Study) -> Study:
    """Return the study without the data sets that are absent; its name stays.

    Raises:
        AbsentError: All data sets are absent.
    """
    absent = absent_datasets(study)
    entries = [entry for entry in study.datasets if entry.name not in absent]
    if not entries:
        raise AbsentError(_describe(study, absent))
    return study.model_copy(update={"datasets": entries})


def expected_sources(
    study: Study, cache_dir: Path | None = None
) -> dict[str, WindowSource | ExpectedWindows]:
    """Open the data sets that are here and describe the others, for a plan.

    Raises:
        AbsentError: The size of an absent data set is not known without its files.
        DataError: A file is damaged.
    """
    absent = absent_datasets(study)
    present = study.model_copy(
        update={"datasets": [entry for entry in study.datasets if entry.name not in absent]}
    )
    sources: dict[str, WindowSource | ExpectedWindows] = dict(open_sources(present, cache_dir))
    for entry in study.datasets:
        if entry.name in absent:
            windows = expected_windows(entry.use, entry.options, entry.subjects, entry.exclude)
            if windows is None:
                raise absent[entry.name]
            sources[entry.name] = windows
    return {entry.name: sources[entry.name] for entry in study.datasets}


def _describe(study: Study, absent: Mapping[str, AbsentError]) -> str:
    """Return a message that names all absent data sets and what else can be done."""
    first, *others = absent.values()
    if not others and len(study.datasets) == 1:
        return str(first)
    listed = "\n".join(f"  {name}: {error}" for name, error in absent.items())
    advice = ""
    if len(absent) < len(study.datasets):
        advice = "\nWith --available the study runs on the data sets that are here."
    return f"{len(absent)} of {len(study.datasets)} data sets are absent:\n{listed}{advice}"
