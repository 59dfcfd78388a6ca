"""A window source held in memory, for arrays a user already has and for tests."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from afor.bench.datasets.recording import count_classes
from afor.bench.errors import DataError


class ArrayWindows:
    """Windows (n, channels, samples) with the subject, class and trial of each.

    `trials` defaults to one trial per window.

    >>> import numpy as np
    >>> source = ArrayWindows(np.zeros((3, 2, 8)), labels=[0, 1, 1], subjects=["a", "a", "b"])
    >>> source.subjects, source.gather(np.array([2])).shape
    (('a', 'b'), (1, 2, 8))
    """

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
        """Return each channel's mean and standard deviation over these subjects."""
        codes = [self.subjects.index(name) for name in subjects]
        chosen = self._windows[np.isin(self.subject_codes, codes)]
        return (
            chosen.mean(axis=(0, 2), dtype=np.float64),
            chosen.std(axis=(0, 2), dtype=np.float64),
        )

    def gather(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return windows as (n, channels, samples), a new array in the order asked for."""
        return self._windows[indices]
