"""`ExpectedWindows`, the windows of a data set whose files are not there, for plans."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from afor.bench.data.catalog import get_dataset
from afor.bench.data.dataset import TrialShape
from afor.bench.data.preparation.preprocessing import window_starts
from afor.bench.data.settings import DataSettings


class ExpectedWindows:
    """The windows of a complete copy: everything that `WindowSource` knows but the samples.

    The number of trials is the average over subjects, and there is no fingerprint: runs that are
    planned with it have no valid key and cannot be trained.
    """

    fingerprint = ""

    def __init__(
        self, dataset: str, subjects: Sequence[str], settings: DataSettings, trial: TrialShape
    ) -> None:
        self.dataset = dataset
        self.subjects = tuple(subjects)
        self.settings = settings
        self.trial = trial
        self.channel_names = trial.channel_names
        self.class_names = trial.class_names
        self.n_classes = len(trial.class_names)
        self.rate_hz = trial.rate_hz
        self.window_samples = settings.window_samples or trial.samples
        self.stride_samples = settings.stride_samples or self.window_samples

    @cached_property
    def windows_per_subject(self) -> int:
        """Return the number of windows of one subject."""
        starts = window_starts(self.trial.samples, self.window_samples, self.stride_samples)
        return self.trial.trials * len(starts)

    def count_windows(self, subjects: Iterable[str]) -> int:
        """Return the number of windows of these subjects."""
        return self.windows_per_subject * len(set(subjects))

    def __len__(self) -> int:
        return self.windows_per_subject * len(self.subjects)

    @property
    def prepared_bytes(self) -> int:
        """Return the size of the prepared trials on disk."""
        trial = len(self.channel_names) * self.trial.samples * 4
        return len(self.subjects) * self.trial.trials * trial


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
    if dataset.trial_shape is None:
        return None
    left_out = {*dataset.excluded(settings), *exclude}
    wanted = subjects or [s for s in dataset.info.subjects if s not in left_out]
    return ExpectedWindows(dataset.info.name, wanted, settings, dataset.trial_shape(settings))
