"""Your own data: one file per subject in a folder, ``<subject>-epo.fif`` or ``<subject>.npz``.

An ``.npz`` has the arrays ``data`` (trials, channels, samples), ``labels`` (numbers from 0 or
words), ``channel_names`` and ``rate_hz``, and optionally ``class_names`` and ``trial_ids``.

    np.savez("mine/anna.npz", data=x, labels=y, channel_names=["C3", "C4"], rate_hz=250)
"""

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import DataError
from afor.bench.data.dataset import BandHz, Dataset, DatasetInfo, DataSettings, Words
from afor.bench.data.datasets import recordings
from afor.bench.data.recording import Recording, channel_rows, number_labels, require_finite
from afor.bench.data.signal import filter_signal

MAX_ARRAY_BYTES = 4 << 30
SUFFIXES = ("-epo.fif", ".npz")
TO_MICROVOLTS = {"uV": 1.0, "mV": 1e3, "V": 1e6, "none": 1.0}


class FolderSettings(DataSettings):
    """Options of a folder; ``unit`` is that of .npz files, MNE files are always in volts."""

    unit: Literal["uV", "mV", "V", "none"] = "uV"
    channels: Words | None = None  # None: all
    classes: Words | None = None  # order of the classes; None sorts them by name
    band_hz: BandHz = "none"


class Folder(Dataset[FolderSettings]):
    """The reader of a folder."""

    info = DatasetInfo(
        name="folder",
        title="Your own data in a folder",
        task="whatever the labels say",
        shape="the same channels, rate and trial length in every file",
        layout="<subject>-epo.fif (MNE Epochs) or <subject>.npz, one per subject",
    )
    settings = FolderSettings
    check_unit = False

    def find(self, root: Path, settings: FolderSettings) -> tuple[str, ...]:
        """Return the subjects, from the names of the files; raise DataError for recordings."""
        names = [path.name for path in root.iterdir() if path.is_file()]
        found = {n.removesuffix(s) for n in names for s in SUFFIXES if n.endswith(s)}
        if not found and recordings.DATASET.find(root, recordings.ContinuousSettings()):
            files = recordings.list_files(root)
            count = sum(map(len, files.values()))
            one = next(iter(files.values()))[0].path.relative_to(root)
            raise DataError(
                f"{root} has no {' or '.join(f'<subject>{s}' for s in SUFFIXES)}, but {count} "
                f'recordings such as {one}. Read them with use = "recordings" (or "bids"); '
                f"`afor data import {root}` shows what is there and proposes a study."
            )
        return tuple(sorted(found))

    def files(self, root: Path, subject: str, settings: FolderSettings) -> tuple[Path, ...]:
        """Return the file of a subject; raise DataError unless there is exactly one."""
        names = [f"{subject}{suffix}" for suffix in SUFFIXES]
        files = tuple(root / name for name in names if (root / name).is_file())
        if len(files) != 1:
            raise DataError(
                f"folder subject {subject}: {len(files) or 'no'} files in {root}; expected one of "
                f"{', '.join(names)}."
            )
        return files

    def load(self, root: Path, subject: str, settings: FolderSettings) -> Recording:
        """Read one subject and filter it, if a band is set."""
        (path,) = self.files(root, subject, settings)
        recording = (_read_npz if path.suffix == ".npz" else _read_fif)(path, subject, settings)
        where = f"folder subject {subject} ({path.name})"
        if (channels := settings.channels) is not None:
            rows = channel_rows(channels, recording.channel_names, where)
            trials = np.ascontiguousarray(recording.trials[:, rows])
            recording = replace(recording, trials=trials, channel_names=channels)
        require_finite(recording.trials, where, recording.channel_names)
        filtered = filter_signal(recording.trials, recording.rate_hz, settings.band_hz)
        return replace(recording, trials=filtered.astype(np.float32, copy=False))


DATASET = Folder()


def _read_npz(path: Path, subject: str, settings: FolderSettings) -> Recording:
    where = f"folder subject {subject} ({path.name})"
    arrays = _load_arrays(path, where)
    if missing := {"data", "labels", "channel_names", "rate_hz"}.difference(arrays):
        raise DataError(
            f"{where}: no array {', '.join(sorted(missing))}. An .npz needs data, labels, "
            "channel_names and rate_hz."
        )
    data, labels = arrays["data"], arrays["labels"].reshape(-1)
    names = tuple(map(str, arrays["channel_names"].reshape(-1)))
    if data.ndim != 3 or data.dtype.kind not in "fiu":
        raise DataError(
            f"{where}: data is {data.dtype} of shape {data.shape}, expected numbers of shape "
            "(trials, channels, samples)."
        )
    if data.shape[1] != len(names):
        swapped = " The axes seem to be swapped." if data.shape[2] == len(names) else ""
        raise DataError(
            f"{where}: {len(names)} channel names for data of shape {data.shape}; expected "
            f"(trials, channels, samples).{swapped}"
        )
    rate = arrays["rate_hz"].reshape(-1)
    if rate.size != 1 or rate.dtype.kind not in "fiu":
        raise DataError(f"{where}: rate_hz must be one number.")
    stored = tuple(map(str, arrays["class_names"].reshape(-1))) if "class_names" in arrays else None
    numbers, class_names = number_labels(labels, settings.classes or stored, where)
    ids = arrays.get("trial_ids", np.arange(len(data))).reshape(-1)
    if ids.dtype.kind not in "iu":
        raise DataError(f"{where}: trial_ids must be whole numbers.")
    return Recording.of_trials(
        subject=subject,
        trials=data * TO_MICROVOLTS[settings.unit],
        labels=numbers,
        channel_names=names,
        rate_hz=float(rate[0]),
        class_names=class_names,
        trial_ids=ids.astype(np.int64),
        dataset="folder",
    )


def _load_arrays(path: Path, where: str) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MAX_ARRAY_BYTES:
                raise DataError(f"{where}: unpacks to more than {MAX_ARRAY_BYTES} bytes.")
        with np.load(path, allow_pickle=False) as archive_arrays:
            return {name: archive_arrays[name] for name in archive_arrays.files}
    except (OSError, ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile) as e:
        raise DataError(f"{where}: cannot be read as .npz without objects in it ({e}).") from None
    except Exception as error:  # noqa: BLE001  zlib and tokenizer errors of damaged archives
        raise DataError(f"{where}: a damaged .npz ({type(error).__name__}: {error}).") from None


def _read_fif(path: Path, subject: str, settings: FolderSettings) -> Recording:
    import mne

    where = f"folder subject {subject} ({path.name})"
    try:
        epochs = mne.read_epochs(path, preload=True, verbose="error").pick("eeg", verbose="error")
        signal = epochs.get_data(copy=False) * TO_MICROVOLTS["V"]
    except Exception as error:  # noqa: BLE001  a damaged FIF file can raise any error
        raise DataError(
            f"{where}: MNE cannot read EEG epochs from it ({type(error).__name__}: {error})."
        ) from None
    words = {number: name for name, number in epochs.event_id.items()}
    labels = np.array([words[code] for code in epochs.events[:, 2]])
    numbers, names = number_labels(labels, settings.classes or tuple(sorted(words.values())), where)
    return Recording.of_trials(
        subject=subject,
        trials=signal,
        labels=numbers,
        channel_names=epochs.ch_names,
        rate_hz=epochs.info["sfreq"],
        class_names=names,
        trial_ids=epochs.selection,
        dataset="folder",
    )
