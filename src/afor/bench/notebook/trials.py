"""Trials in memory from arrays, MNE, torch or braindecode, and their way into a folder of files."""

import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.data.datasets.recordings import ContinuousSettings, RawPart, events_of, recording_of

MICROVOLTS_PER_VOLT = 1e6
DONE = "complete.txt"  # written last into a folder of files


# The trials, labels, channel names and sampling rate of one object.
_One = tuple[NDArray[np.float32], NDArray[Any], tuple[str, ...], float]


@dataclass(frozen=True, eq=False)
class Trials:
    """Labelled trials of several subjects."""

    trials: NDArray[np.float32]  # (trials, channels, samples), in microvolts
    labels: NDArray[Any]  # words, or numbers from 0
    subjects: NDArray[np.str_]
    channel_names: tuple[str, ...]
    rate_hz: float

    def __post_init__(self) -> None:
        count, shape = len(self.trials), self.trials.shape
        if self.trials.ndim != 3 or {len(self.labels), len(self.subjects)} != {count}:
            raise DataError(
                f"The trials have shape {shape}, with {len(self.labels)} labels and "
                f"{len(self.subjects)} subjects. Expected (trials, channels, samples), and a label "
                "and a subject for each trial."
            )
        if len(self.channel_names) != shape[1]:
            raise DataError(
                f"{len(self.channel_names)} channel names for {shape[1]} channels; the trials have "
                f"shape {shape}, which is read as (trials, channels, samples)."
            )


def as_trials(
    data: Any,
    labels: Any = None,
    subjects: Any = None,
    *,
    rate_hz: float | None = None,
    channel_names: Sequence[str] | None = None,
    trial_s: float | None = None,
) -> Trials:
    """Return the trials of an array, MNE objects, a dictionary by subject or a data set of torch.

    The arguments are those of `afor.bench.compare`. A data set has items (trial, label, ...), that
    of braindecode also parts with a ``subject`` in their descriptions.

    Raises:
        ConfigError: Something that is needed was not given.
        DataError: The shapes do not fit each other.
    """
    parts: list[tuple[str, _One]] = []
    if isinstance(data, Mapping):
        given = {} if labels is None else labels
        if not isinstance(given, Mapping):
            raise ConfigError("data is a dictionary by subject, so labels must be one too.")
        for subject, part in data.items():
            one = _of_one(part, given.get(subject), rate_hz, channel_names, trial_s, str(subject))
            parts.append((str(subject), one))
        return _joined(parts)
    if getattr(data, "datasets", None) is not None and subjects is None:  # braindecode
        for number, part in enumerate(data.datasets):
            description = getattr(part, "description", None)
            if description is None or "subject" not in description:
                raise ConfigError(
                    f"Part {number} of the data set has no subject in its description. Give "
                    "subjects, one for each trial."
                )
            one = _of_one(part, None, rate_hz, channel_names, trial_s, f"part {number}")
            parts.append((str(description["subject"]), one))
        return _joined(parts)
    trials, words, names, rate = _of_one(data, labels, rate_hz, channel_names, trial_s, "data")
    if isinstance(subjects, str):
        metadata = getattr(data, "metadata", None)
        if metadata is None or subjects not in metadata:
            raise ConfigError(f"The Epochs have no metadata column {subjects!r} with the subjects.")
        subjects = metadata[subjects]
    if subjects is None:
        raise ConfigError(
            "Give subjects, one for each trial: the protocol tests on subjects it has not trained "
            "on."
        )
    return Trials(trials, words, np.asarray([str(s) for s in subjects]), names, rate)


def _joined(parts: Sequence[tuple[str, _One]]) -> Trials:
    if not parts:
        raise ConfigError("There are no subjects in the data.")
    first, (first_trials, _, names, rate) = parts[0]
    for subject, (trials, _, other_names, other_rate) in parts:
        if (trials.shape[1:], other_names, other_rate) != (first_trials.shape[1:], names, rate):
            raise DataError(
                f"subject {subject} has {trials.shape[1]} channels, {trials.shape[2]} samples and "
                f"{other_rate:g} Hz; subject {first} differs. All subjects must agree."
            )
    return Trials(
        np.concatenate([one[0] for _, one in parts]),
        np.concatenate([one[1] for _, one in parts]),
        np.concatenate([np.full(len(one[0]), subject) for subject, one in parts]),
        names,
        rate,
    )


def _of_one(
    data: Any,
    labels: Any,
    rate_hz: float | None,
    channel_names: Sequence[str] | None,
    trial_s: float | None,
    where: str,
) -> _One:
    """Return trials, labels, names of channels and rate of one object."""
    mne = sys.modules.get("mne")  # who has Epochs has imported it
    if mne is not None and isinstance(data, mne.io.BaseRaw):
        if labels is not None:
            raise ConfigError(f"{where}: the labels of a Raw are those of its annotations.")
        part = RawPart(where, data, events_of(data, Path(), None)[0])
        recording = recording_of(where, where, [part], ContinuousSettings(trial_s=trial_s))
        words = np.array([recording.class_names[label] for label in recording.labels])
        return recording.trials, words, recording.channel_names, recording.rate_hz
    if mne is not None and isinstance(data, mne.BaseEpochs):
        epochs = data.copy().pick("eeg", verbose="error")
        if labels is None:
            words_of = {code: name for name, code in epochs.event_id.items()}
            labels = [words_of[code] for code in epochs.events[:, 2]]
        signal = epochs.get_data(copy=False) * MICROVOLTS_PER_VOLT
        rate = float(epochs.info["sfreq"])
        return signal.astype(np.float32), _as_labels(labels), tuple(epochs.ch_names), rate
    if not hasattr(data, "shape"):  # a data set of torch, skorch or braindecode
        info = _mne_info(data)
        rate_hz = rate_hz if info is None else rate_hz or float(info["sfreq"])
        channel_names = channel_names or (info["ch_names"] if info is not None else None)
        items = [data[number] for number in range(len(data))]
        if labels is None:
            labels = np.asarray([int(item[1]) for item in items])
        data = np.stack([np.asarray(item[0], dtype=np.float32) for item in items])
    array = np.asarray(data, dtype=np.float32)
    if labels is None:
        raise ConfigError(f"{where}: give labels, one for each of the {len(array)} trials.")
    if rate_hz is None:
        raise ConfigError(f"{where}: give rate_hz, the sampling rate of the array in hertz.")
    if array.ndim != 3:
        raise DataError(f"{where} has shape {array.shape}; expected (trials, channels, samples).")
    width = len(str(array.shape[1]))
    names = channel_names or [f"ch{n:0{width}d}" for n in range(1, array.shape[1] + 1)]
    return array, _as_labels(labels), tuple(map(str, names)), float(rate_hz)


def _as_labels(labels: Any) -> NDArray[Any]:
    """Return labels as an array of numbers or words, also those of pandas."""
    array = np.asarray(labels)
    return array.astype(str) if array.dtype.kind == "O" else array


def _mne_info(data: Any) -> Any:
    """Return MNE's info of a braindecode data set, or None."""
    infos = (getattr(getattr(data, name, None), "info", None) for name in ("windows", "raw"))
    return next((info for info in infos if info is not None), None)


def write_trials(trials: Trials, parent: Path) -> Path:
    """Write trials as one .npz file per subject, for the data set ``folder``; return their folder.

    It is made in ``parent`` and named after the content: the same trials are written once.

    Raises:
        ConfigError: The name of a subject cannot be the name of a file.
    """
    subjects = list(dict.fromkeys(trials.subjects.tolist()))
    for subject in subjects:
        if not re.fullmatch(r"[A-Za-z0-9][\w.@+-]{0,99}", subject):
            raise ConfigError(
                f"The subject {subject!r} cannot be the name of a file. Accepted: letters, digits "
                "and _ . @ + -, beginning with a letter or digit."
            )
    folder = parent / _content_hash(trials)
    if (folder / DONE).is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    common: dict[str, Any] = {"channel_names": trials.channel_names, "rate_hz": trials.rate_hz}
    labels = trials.labels
    if labels.dtype.kind in "iu" and np.unique(labels).tolist() != list(range(labels.max() + 1)):
        labels = labels.astype(str)  # such as 769 and 770: the classes are those that occur
    if labels.dtype.kind == "U":
        common["class_names"] = np.unique(trials.labels).astype(str)  # numbers in their order
    for subject in subjects:
        rows = trials.subjects == subject
        data = trials.trials[rows]
        np.savez(folder / f"{subject}.npz", data=data, labels=labels[rows], **common)
    (folder / DONE).write_text(f"{len(subjects)} subjects\n", "utf-8")
    return folder


def _content_hash(trials: Trials) -> str:
    parts = (
        repr((trials.trials.shape, trials.channel_names, trials.rate_hz)).encode(),
        np.ascontiguousarray(trials.trials).tobytes(),
        "\0".join(map(str, trials.labels.tolist())).encode(),
        "\0".join(trials.subjects.tolist()).encode(),
    )
    digests = b"".join(hashlib.sha256(part).digest() for part in parts)
    return hashlib.sha256(digests).hexdigest()[:24]
