"""`Recording`, the labelled trials of one subject, which every loader returns.

``check_recording`` checks what holds for all data sets; a loader checks its own format.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.common.suggest import did_you_mean

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]

# Scalp EEG has a standard deviation of a few to a few hundred microvolts. Volts read as microvolts
# give about 1e-5, millivolts about 1e-2, raw amplifier counts tens of thousands.
PLAUSIBLE_SD_UV = (0.05, 20_000.0)
MAX_ABS_UV = 1e10
MAX_RATE_HZ = 1e6
MAX_CLASSES = 1000
FLAT_BELOW = 1e-6  # of the median channel's standard deviation


@dataclass(frozen=True)
class TrialShape:
    """The trials of one subject of a data set without their samples."""

    channel_names: tuple[str, ...]
    rate_hz: float
    class_names: tuple[str, ...]
    trials: int  # of one subject, on average
    samples: int  # of one trial


@dataclass(frozen=True, eq=False)
class Recording:
    """The trials of one subject.

    Attributes:
        dataset: Name of the data set.
        subject: Name of the subject.
        trials: The samples as float32 of shape (trials, channels, samples), in microvolts.
        labels: The class of each trial, an index of ``class_names``.
        trial_ids: Unique numbers of the trials in the source.
        channel_names: Names of the channels.
        rate_hz: Sampling rate in hertz.
        class_names: Names of the classes.
        notes: What is unusual, such as a substituted channel or a dropped epoch.

    Example:
        >>> recording = Recording.of_trials("anna", np.zeros((2, 1, 8)), ["b", "a"], ["Cz"], 100)
        >>> recording.class_names, recording.class_counts()
        (('a', 'b'), (1, 1))
    """

    dataset: str
    subject: str
    trials: FloatArray
    labels: IntArray
    trial_ids: IntArray
    channel_names: tuple[str, ...]
    rate_hz: float
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of_trials(
        cls,
        subject: str,
        trials: ArrayLike,
        labels: ArrayLike,
        channel_names: Sequence[str],
        rate_hz: float,
        *,
        class_names: Sequence[str] | None = None,
        trial_ids: ArrayLike | None = None,
        dataset: str = "own",
        notes: Sequence[str] = (),
    ) -> "Recording":
        """Return a recording of arrays.

        Args:
            subject: Name of the subject.
            trials: Array of shape (trials, channels, samples), in microvolts.
            labels: Class of each trial: a word, or a number from 0.
            channel_names: Names of the channels.
            rate_hz: Sampling rate in hertz.
            class_names: Names of the classes in their order; None sorts words, and numbers classes
                from 0. Give them if a subject may lack a class.
            trial_ids: Unique numbers of the trials in the source; None counts from 0.
            dataset: Name of the data set in messages.
            notes: What is unusual about the recording.

        Raises:
            DataError: A label is not one of the classes.
        """
        where = f"{dataset} subject {subject}"
        words = np.asarray(labels).reshape(-1)
        numbers, names = number_labels(words, tuple(class_names) if class_names else None, where)
        return cls(
            dataset=dataset,
            subject=subject,
            trials=np.asarray(trials, dtype=np.float32),
            labels=numbers,
            trial_ids=np.arange(len(numbers)) if trial_ids is None else np.asarray(trial_ids),
            channel_names=tuple(channel_names),
            rate_hz=float(rate_hz),
            class_names=names,
            notes=tuple(notes),
        )

    def class_counts(self) -> tuple[int, ...]:
        """Return the number of trials of each class."""
        return tuple(np.bincount(self.labels, minlength=len(self.class_names)).tolist())


def trial_hashes(trials: FloatArray) -> tuple[str, ...]:
    """Return one hash per trial, and an empty text for a constant trial.

    Constant trials (electrodes off) are equal in all recordings, so they are no sign of a copy.
    """
    return tuple(
        ""
        if not np.ptp(trial, axis=-1).any()
        else hashlib.blake2b(np.ascontiguousarray(trial).tobytes(), digest_size=16).hexdigest()
        for trial in trials
    )


def count_classes(labels: NDArray[np.integer[Any]], where: str) -> int:
    """Return the number of classes of labels 0, 1, 2, ...; raise DataError for other labels.

    A class without trials still counts: another subject may have it.

    >>> count_classes(np.array([0, 2, 2]), "subject anna")
    3
    """
    if not labels.size:
        return 1
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= MAX_CLASSES:
        raise DataError(
            f"{where}: labels must be 0, 1, 2, ... and below {MAX_CLASSES}; the lowest is "
            f"{lowest}, the highest {highest}. Number the {np.unique(labels).size} classes that "
            "occur from 0, or use words as labels."
        )
    return highest + 1


def number_labels(
    labels: NDArray[Any], class_names: tuple[str, ...] | None, where: str
) -> tuple[IntArray, tuple[str, ...]]:
    """Return labels as numbers, and the names of the classes; words are sorted by name.

    Raises:
        DataError: A label is neither a number nor a word, or not one of the classes.
    """
    if labels.dtype.kind in "iu":
        if class_names is None:
            class_names = tuple(map(str, range(count_classes(labels, where))))
        return labels.astype(np.int64), class_names
    if labels.dtype.kind not in "U":
        raise DataError(f"{where}: labels are {labels.dtype}; expected whole numbers or words.")
    names = class_names or tuple(sorted(set(labels.tolist())))
    if unknown := sorted(set(labels.tolist()).difference(names)):
        raise DataError(
            f"{where}: label {', '.join(unknown)} is out of range; accepted: {', '.join(names)}."
        )
    return np.array([names.index(label) for label in labels.tolist()], dtype=np.int64), names


def channel_rows(wanted: Sequence[str], present: Sequence[str], where: str) -> list[int]:
    """Return the positions of channels; raise ConfigError with the nearest name of one."""
    if unknown := [name for name in wanted if name not in present]:
        raise ConfigError(
            f"{where}: no channel {', '.join(unknown)}.{did_you_mean(unknown[0], present)} "
            f"Accepted: {', '.join(present)}."
        )
    return [present.index(name) for name in wanted]


def require_finite(values: NDArray[np.floating], where: str, channels: Sequence[str]) -> None:
    """Raise DataError for NaN, infinity or absurd values; the channel axis is the last but one."""
    if np.isfinite(values).all():
        if values.size and max(values.max(), -values.min()) > MAX_ABS_UV:
            raise DataError(
                f"{where}: a sample of more than {MAX_ABS_UV:g} µV. No amplifier gives that; the "
                "file is damaged or its unit is wrong."
            )
        return
    at = np.unravel_index(np.argmin(np.isfinite(values)), values.shape)
    value = "NaN" if np.isnan(values[tuple(at)]) else "infinity"
    trial = f"trial {at[0]}, " if values.ndim == 3 else ""
    raise DataError(
        f"{where}: {value} in {trial}channel {channels[int(at[-2])]}, sample {at[-1]}. "
        "Samples must be finite numbers; fetch the file again or drop the trial."
    )


def check_recording(recording: Recording, *, check_unit: bool = True) -> Recording:
    """Check a recording and return it with notes added.

    ``check_unit`` checks that the amplitudes are plausible for microvolts.

    Raises:
        DataError: The recording is not valid; the message names data set, subject and fault.
    """
    where = f"{recording.dataset} subject {recording.subject}"
    _check_shapes(recording, where)
    require_finite(recording.trials, where, recording.channel_names)
    notes = [*recording.notes, *_check_amplitudes(recording, where, check_unit)]
    _check_duplicates(recording, where)
    counts = zip(recording.class_names, recording.class_counts(), strict=True)
    if missing := [name for name, count in counts if count == 0]:
        notes.append(f"no trial of class {', '.join(missing)}")
    return replace(recording, notes=tuple(notes))


def _check_shapes(recording: Recording, where: str) -> None:
    trials, labels, names = recording.trials, recording.labels, recording.channel_names
    if trials.ndim != 3 or trials.dtype != np.float32:
        raise DataError(
            f"{where}: expected float32 trials of shape (trials, channels, samples), "
            f"found {trials.dtype} {trials.shape}."
        )
    if 0 in trials.shape:
        raise DataError(f"{where}: no data, the trials have the shape {trials.shape}.")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{where}: channel {', '.join(twice)} occurs twice. Names must be unique.")
    if len(names) != trials.shape[1]:
        raise DataError(
            f"{where}: {len(names)} channel names for data of shape {trials.shape}; "
            "the axes must be (trials, channels, samples)."
        )
    if labels.shape != (len(trials),) or recording.trial_ids.shape != labels.shape:
        raise DataError(f"{where}: {len(trials)} trials but {labels.size} labels.")
    if np.unique(recording.trial_ids).size != labels.size:
        raise DataError(f"{where}: trial ids are not unique.")
    classes = recording.class_names
    if (outside := labels[(labels < 0) | (labels >= len(classes))]).size:
        raise DataError(
            f"{where}: label {outside[0]} is out of range; accepted are 0 to {len(classes) - 1} "
            f"({', '.join(classes)})."
        )
    if not 0 < recording.rate_hz <= MAX_RATE_HZ:
        raise DataError(f"{where}: a sampling rate of {recording.rate_hz} Hz is not possible.")


def _check_amplitudes(recording: Recording, where: str, check_unit: bool) -> list[str]:
    names, trials = recording.channel_names, recording.trials
    per_trial = trials.std(axis=2, dtype=np.float64)
    spread = per_trial.mean(axis=0)
    typical = float(np.median(spread))
    flat = [name for name, s in zip(names, spread, strict=True) if s <= FLAT_BELOW * typical]
    if flat:
        raise DataError(
            f"{where}: channel {', '.join(flat)} is flat in all {len(trials)} trials. "
            "Exclude the subject, or choose channels without it."
        )
    low, high = PLAUSIBLE_SD_UV
    if check_unit and (factor := likely_scale(typical)) != 1.0:
        guess = "volts or millivolts" if factor > 1.0 else "raw amplifier counts"
        raise DataError(
            f"{where}: the channels' typical standard deviation is {typical:.2g}; EEG in "
            f"microvolts lies between {low:g} and {high:g}. The data seem to be {guess}. "
            f"Convert them to microvolts, or multiply recordings by the option scale = {factor:g}."
        )
    silent = int((per_trial <= FLAT_BELOW * typical).any(axis=1).sum())
    return [f"{silent} trials with a flat channel"] if silent else []


def likely_scale(typical_uv: float) -> float:
    """Return the power of 1000 that makes a standard deviation plausible for EEG in microvolts.

    >>> likely_scale(0.0054), likely_scale(12.0), likely_scale(2e-5)
    (1000.0, 1.0, 1000000.0)
    """
    low, high = PLAUSIBLE_SD_UV
    if typical_uv == 0 or low <= typical_uv <= high:
        return 1.0
    factors = (1e3, 1e6, 1e-3, 1e-6)
    return min(factors, key=lambda factor: abs(np.log10(max(typical_uv, 1e-30) * factor) - 1.0))


def _check_duplicates(recording: Recording, where: str) -> None:
    first_seen: dict[str, int] = {}
    for trial_id, digest in zip(recording.trial_ids, trial_hashes(recording.trials), strict=True):
        if digest and digest in first_seen:
            raise DataError(
                f"{where}: trial {trial_id} is a copy of trial {first_seen[digest]}, sample for "
                "sample. A trial must not count twice; fetch the file again or remove the copy."
            )
        first_seen[digest] = int(trial_id)
