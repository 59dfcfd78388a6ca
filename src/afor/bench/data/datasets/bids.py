"""A BIDS folder of EEG recordings, read through mne-bids (extra ``afor[bids]``)."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.data.dataset import DatasetInfo, Words
from afor.bench.data.datasets.recordings import (
    SUFFIXES,
    ContinuousDataset,
    ContinuousSettings,
    RawFile,
    mne_errors,
)


class BidsSettings(ContinuousSettings):
    """Options of a BIDS folder, besides those of continuous recordings."""

    task: str = ""  # needed where there are several
    sessions: Words | None = None  # None: all, together on one side of a split


@dataclass(frozen=True)
class BidsFile(RawFile):
    """A recording of a BIDS folder."""

    bids_path: Any

    def read(self, where: str, *, preload: bool = True) -> tuple[Any, list[str]]:
        """Read it with the types of its channels; return it with what MNE warned about."""
        with mne_errors(where) as remarks:
            raw = _import_mne_bids().read_raw_bids(self.bids_path, verbose="error")
            raw = raw.load_data(verbose="error") if preload else raw
        return raw, remarks

    def events_table(self) -> Path | None:
        """Return the table of events of the recording, or None."""
        return self._table("events")

    def files(self) -> list[Path]:
        """Return the recording, the files that belong to it and its tables."""
        channels = self._table("channels")
        return [*super().files(), *((channels,) if channels else ())]

    def _table(self, suffix: str) -> Path | None:
        table: Path = self.bids_path.copy().update(suffix=suffix, extension=".tsv").fpath
        return table if table.is_file() else None


@lru_cache(maxsize=8)
def all_files(root: Path) -> list[BidsFile]:
    """Return all EEG recordings of a BIDS folder, sorted."""
    paths = _import_mne_bids().find_matching_paths(
        root, datatypes="eeg", suffixes="eeg", extensions=list(SUFFIXES), check=True
    )
    files = [BidsFile(path.fpath, f"sub-{path.subject}", path.task or "", path) for path in paths]
    return sorted(files, key=lambda file: str(file.path))


def _import_mne_bids() -> ModuleType:
    try:
        import mne_bids
    except ImportError as error:
        raise ConfigError(
            f"A BIDS folder needs mne-bids ({error}). Install it: pip install 'afor[bids]'."
        ) from None
    module: ModuleType = mne_bids
    return module


class Bids(ContinuousDataset[BidsSettings]):
    """The reader of a BIDS folder."""

    info = DatasetInfo(
        name="bids",
        title="A BIDS folder of EEG recordings",
        task="the option task; classes are the values of the option events_column",
        licence="that of the data set: see its dataset_description.json",
        where="your own disk, or https://openneuro.org",
        citation="the data set's own, and mne-bids: Appelhoff et al., JOSS 4(44), 2019",
        shape="the same channels, rate and trial length for every subject",
        layout="sub-<subject>/[ses-<session>/]eeg/sub-…_task-…_eeg.<suffix>, as BIDS says",
    )
    settings = BidsSettings

    def find(self, root: Path, settings: BidsSettings) -> tuple[str, ...]:
        """Return the subjects; this lists the folder anew, once for all that is read after it."""
        all_files.cache_clear()
        return tuple(self.files_by_subject(root, settings))

    def files_by_subject(self, root: Path, settings: BidsSettings) -> dict[str, list[BidsFile]]:
        """Return the recordings of the task by subject.

        Raises:
            ConfigError: mne-bids is not installed, there are several tasks and none is named, or
                the task or a session does not exist.
        """
        files = all_files(root)
        for option, wanted, present in (
            ("task", {settings.task} - {""}, {file.bids_path.task for file in files}),
            ("sessions", set(settings.sessions or ()), {file.bids_path.session for file in files}),
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
                    f"bids: {root} has the tasks {', '.join(names)}. Choose one with the option "
                    'task, or set classes_from = "task" if each task is a class.'
                )
        by_subject: dict[str, list[BidsFile]] = {}
        for file in files:
            session = file.bids_path.session
            is_of_session = settings.sessions is None or session in settings.sessions
            if is_of_session and settings.task in ("", file.label):
                by_subject.setdefault(file.subject, []).append(file)
        return dict(sorted(by_subject.items()))


DATASET = Bids()
