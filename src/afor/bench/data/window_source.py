"""All windows of a data set: `WindowSource` from the cache, `ArrayWindows` from memory.

`ExpectedWindows` are those of a data set whose files are not there, for plans.
"""

import hashlib
import json
import mmap
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from afor.bench.common.errors import ConfigError, DataError
from afor.bench.data.dataset import DataKind, DataSettings
from afor.bench.data.prepared import PreparedSubject, map_samples
from afor.bench.data.recording import TrialShape, count_classes
from afor.bench.data.signal import window_starts

# Mapped pages count as memory of this process until they are released. A data set larger than
# KEEP_BYTES releases them each time RELEASE_AFTER_BYTES were copied; they stay in the page cache of
# the operating system. The kernel maps 64 KiB around each touched page, so a window of ISRUC
# (14 KiB) can make 384 KiB resident: hence the small number.
KEEP_BYTES = 1 << 30
RELEASE_AFTER_BYTES = 16 << 20


class WindowLayout:
    """What is known of the windows of a data set without their samples."""

    def __init__(
        self, dataset: str, subjects: Sequence[str], settings: DataSettings, trial: TrialShape
    ) -> None:
        self.dataset = dataset
        self.subjects = tuple(subjects)
        self.settings = settings
        self.channel_names = trial.channel_names
        self.class_names = trial.class_names
        self.n_classes = len(trial.class_names)
        self.rate_hz = trial.rate_hz
        self.window_samples = settings.window_samples or trial.samples
        self.stride_samples = settings.stride_samples or self.window_samples
        starts = window_starts(trial.samples, self.window_samples, self.stride_samples)
        self._starts = np.array(starts)
        self.windows_per_trial = len(starts)


class WindowSource(WindowLayout):
    """All windows of a data set, cut from memory-mapped trials and numbered from 0.

    Windows are ordered by subject, trial and start. ``kind`` says whether they are recorded, a
    stand-in or synthetic. The object can be pickled; the other process opens the files itself.
    """

    def __init__(
        self,
        dataset: str,
        folder: Path,
        prepared: Sequence[PreparedSubject],
        settings: DataSettings,
        *,
        kind: DataKind = "recorded",
        fingerprint_samples: bool = False,
    ) -> None:
        first = prepared[0]
        trials, _, samples = first.shape
        shape = TrialShape(first.channel_names, first.rate_hz, first.class_names, trials, samples)
        super().__init__(dataset, [subject.subject for subject in prepared], settings, shape)
        self.folder = folder
        self.kind = kind
        self.prepared = tuple(prepared)
        self._first_trial = np.cumsum([0, *(subject.shape[0] for subject in prepared)])
        self._fingerprint_samples = fingerprint_samples
        self._is_large = sum(4 * int(np.prod(s.shape)) for s in prepared) > KEEP_BYTES
        self._maps: dict[int, tuple[NDArray[np.float32], mmap.mmap]] = {}
        self._touched: set[int] = set()
        self._copied_bytes = 0

    def recut(self, **options: int) -> "WindowSource":
        """Return other windows of the same trials.

        Args:
            **options: ``window_samples`` and ``stride_samples``; the others stay.
        """
        if not options:
            return self
        return WindowSource(
            self.dataset,
            self.folder,
            self.prepared,
            self.settings.model_copy(update=options),
            kind=self.kind,
            fingerprint_samples=self._fingerprint_samples,
        )

    def __len__(self) -> int:
        return int(self._first_trial[-1]) * self.windows_per_trial

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}, "_touched": set(), "_copied_bytes": 0}

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Return the class of each window."""
        per_trial = np.concatenate([np.array(s.labels, dtype=np.int64) for s in self.prepared])
        return np.repeat(per_trial, self.windows_per_trial)

    @cached_property
    def trial_ids(self) -> NDArray[np.int64]:
        """Return the trial of each window, numbered through the whole data set."""
        return np.repeat(np.arange(self._first_trial[-1]), self.windows_per_trial)

    @cached_property
    def subject_codes(self) -> NDArray[np.int64]:
        """Return the subject of each window as a position in ``subjects``."""
        windows = np.diff(self._first_trial) * self.windows_per_trial
        return np.repeat(np.arange(len(self.subjects)), windows)

    @cached_property
    def subject_ids(self) -> NDArray[np.str_]:
        """Return the subject of each window by name."""
        return np.array(self.subjects)[self.subject_codes]

    @cached_property
    def fingerprint(self) -> str:
        """Return the SHA-256 of all that determines the windows: sources, settings, reader."""
        content = {
            "subjects": [
                [s.subject, s.key, s.data_sha256 if self._fingerprint_samples else ""]
                for s in self.prepared
            ],
            "window": [self.window_samples, self.stride_samples],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def count_windows(self, subjects: Iterable[str]) -> int:
        """Return the number of windows of these subjects."""
        wanted = set(subjects)
        trials = sum(p.shape[0] for p in self.prepared if p.subject in wanted)
        return trials * self.windows_per_trial

    def indices_of(self, subjects: Iterable[str]) -> NDArray[np.int64]:
        """Return the indices of the windows of these subjects, in order."""
        wanted = set(subjects)
        if unknown := wanted.difference(self.subjects):
            raise ConfigError(
                f"{self.dataset} has no subject {', '.join(sorted(unknown))}; "
                f"it has {', '.join(self.subjects)}."
            )
        return np.flatnonzero(np.isin(self.subjects, list(wanted))[self.subject_codes])

    def channel_statistics(
        self, subjects: Iterable[str]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return each channel's mean and standard deviation over the trials of these subjects."""
        wanted = set(subjects)
        selected = [s for s in self.prepared if s.subject in wanted]
        if len(selected) != len(wanted) or not selected:
            raise ConfigError(f"{self.dataset}: statistics need known subjects, found {wanted}.")
        n = sum(s.shape[0] * s.shape[2] for s in selected)
        mean = np.sum([s.channel_sum for s in selected], axis=0) / n
        square = np.sum([s.channel_square_sum for s in selected], axis=0) / n
        return mean, np.sqrt(np.maximum(square - mean**2, 0.0))

    def gather(self, indices: NDArray[np.integer[Any]] | Sequence[int]) -> NDArray[np.float32]:
        """Return windows as float32, (n, channels, samples), in the order of ``indices``."""
        index = np.asarray(indices, dtype=np.int64)
        if index.size and (index.min() < 0 or index.max() >= len(self)):
            raise IndexError(f"window numbers go from 0 to {len(self) - 1}")
        trial, start = np.divmod(index, self.windows_per_trial)
        start = self._starts[start]
        owner = np.searchsorted(self._first_trial, trial, side="right") - 1
        out = np.empty((index.size, len(self.channel_names), self.window_samples), dtype=np.float32)
        for code in np.unique(owner):
            of_subject = np.flatnonzero(owner == code)
            windows = sliding_window_view(self.trials_of(int(code)), self.window_samples, axis=2)
            trial_of_subject = trial[of_subject] - self._first_trial[code]
            out[of_subject] = windows[trial_of_subject, :, start[of_subject]]
        self._release_pages(out.nbytes)
        return out

    def trials_of(self, code: int) -> NDArray[np.float32]:
        """Return the trials of a subject by its position, (trials, channels, samples)."""
        if code not in self._maps:
            self._maps[code] = map_samples(self.folder, self.prepared[code])
        self._touched.add(code)
        return self._maps[code][0]

    def _release_pages(self, copied_bytes: int) -> None:
        self._copied_bytes += copied_bytes
        if not self._is_large or self._copied_bytes < RELEASE_AFTER_BYTES:
            return
        if hasattr(mmap, "MADV_DONTNEED"):  # Windows releases pages by itself
            for code in self._touched:
                self._maps[code][1].madvise(mmap.MADV_DONTNEED)
        self._touched.clear()
        self._copied_bytes = 0


class ExpectedWindows(WindowLayout):
    """The windows of a complete copy: everything that `WindowSource` knows but the samples.

    The number of trials is the average over subjects, and there is no fingerprint: runs that are
    planned with it have no valid key and cannot be trained.
    """

    fingerprint = ""
    kind: DataKind = "recorded"  # a complete copy of the data set itself

    def __init__(
        self, dataset: str, subjects: Sequence[str], settings: DataSettings, trial: TrialShape
    ) -> None:
        super().__init__(dataset, subjects, settings, trial)
        self._trial = trial
        self.windows_per_subject = trial.trials * self.windows_per_trial
        subject_bytes = trial.trials * len(trial.channel_names) * trial.samples * 4
        self.prepared_bytes = len(self.subjects) * subject_bytes  # of the trials on disk

    def recut(self, **options: int) -> "ExpectedWindows":
        """Return other windows of the same trials; see `WindowSource.recut`."""
        settings = self.settings.model_copy(update=options)
        return ExpectedWindows(self.dataset, self.subjects, settings, self._trial)

    def count_windows(self, subjects: Iterable[str]) -> int:
        """Return the number of windows of these subjects."""
        return self.windows_per_subject * len(set(subjects))

    def __len__(self) -> int:
        return self.windows_per_subject * len(self.subjects)


class ArrayWindows:
    """Windows from arrays in memory, with the interface that training needs of a `WindowSource`.

    Args:
        windows: Array of shape (n, channels, samples).
        labels: Class of each window, numbered from 0.
        subjects: Name of the subject of each window.
        trials: Trial of each window; None makes each window its own trial.

    Raises:
        DataError: The shapes do not fit each other.

    Example:
        >>> import numpy as np
        >>> source = ArrayWindows(np.zeros((3, 2, 8)), labels=[0, 1, 1], subjects=["a", "a", "b"])
        >>> source.subjects, source.gather(np.array([2])).shape
        (('a', 'b'), (1, 2, 8))
    """

    fingerprint = ""  # arrays are not identified by their content

    def __init__(
        self,
        windows: ArrayLike,
        labels: ArrayLike,
        subjects: Sequence[str],
        trials: ArrayLike | None = None,
    ) -> None:
        self._windows = np.ascontiguousarray(windows, dtype=np.float32)
        self.labels: NDArray[np.int64] = np.asarray(labels, dtype=np.int64)
        names, codes = np.unique(np.asarray(subjects, dtype=str), return_inverse=True)
        self.subjects = tuple(str(name) for name in names)
        self.subject_codes: NDArray[np.int64] = codes.astype(np.int64)
        count = len(self._windows)
        self.trial_ids: NDArray[np.int64] = np.asarray(
            np.arange(count) if trials is None else trials, dtype=np.int64
        )
        lengths = {len(self.labels), len(codes), len(self.trial_ids)}
        if self._windows.ndim != 3 or lengths != {count} or count == 0:
            raise DataError(
                f"windows have shape {self._windows.shape}, with {len(self.labels)} labels, "
                f"{len(codes)} subjects and {len(self.trial_ids)} trials. Expected (n, channels, "
                f"samples) and n of each."
            )
        self.n_classes = count_classes(self.labels, "windows")

    def channel_statistics(
        self, subjects: Iterable[str]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return each channel's mean and standard deviation over the windows of some subjects.

        Args:
            subjects: Names of the subjects.
        """
        codes = [self.subjects.index(name) for name in subjects]
        selected = self._windows[np.isin(self.subject_codes, codes)]
        return (
            selected.mean(axis=(0, 2), dtype=np.float64),
            selected.std(axis=(0, 2), dtype=np.float64),
        )

    def gather(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return windows as a new array, (n, channels, samples).

        Args:
            indices: The numbers of the windows, in the order wanted.
        """
        return self._windows[indices]


Windows = WindowSource | ArrayWindows  # what a training takes
