"""`ExpectedWindows`, the windows of a data set whose files are not there, for plans."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from afor.bench.data.catalog import get_dataset
from afor.bench.data.dataset import TrialShape
from afor.bench.data.preparation.preprocessing import window_starts
from afor.bench.data.settings import DataSettings


@dataclass(frozen=True)
class ExpectedWindows:
    """The windows of a complete copy: everything that `WindowSource` knows but the samples.

    The number of trials is the average over subjects, and there is no fingerprint: runs that are
    planned with it have no valid key and cannot be trained.
    """

    dataset: str
    subjects: tuple[str, ...]
    settings: DataSettings
    trial: TrialShape
    fingerprint: str = ""

    @property
    def channel_names(self) -> tuple[str, ...]:
        """Return the names of the channels."""
        return self.trial.channel_names

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the names of the classes."""
        return self.trial.class_names

    @property
    def n_classes(self) -> int:
        """Return the number of classes."""
        return len(self.trial.class_names)

    @property
    def rate_hz(self) -> float:
        """Return the sampling rate."""
        return self.trial.rate_hz

    @property
    def window_samples(self) -> int:
        """Return the samples of a window."""
        return self.settings.window_samples or self.trial.samples

    @property
    def stride_samples(self) -> int:
        """Return the samples from the start of one window to that of the next."""
        return self.settings.stride_samples or self.window_samples

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
    """Return the windows of a complete copy of a data set.

    Args:
        name: Name of the data set.
        options: Options of the data set.
        subjects: Subjects to use; None for all.
        exclude: Subjects to leave out.

    Returns:
        The windows, or None if the size of the data set is not known without its files.

    Raises:
        ConfigError: The name or an option is not valid.

    Example:
        >>> windows = expected_windows("deap", {})
        >>> len(windows.subjects), len(windows)
        (32, 76800)
    """
    dataset = get_dataset(name)
    settings = dataset.parse(options)
    if dataset.trial_shape is None:
        return None
    left_out = {*(dataset.excluded(settings) if dataset.excluded else ()), *exclude}
    wanted = subjects or [s for s in dataset.info.subjects if s not in left_out]
    return ExpectedWindows(
        dataset.info.name, tuple(wanted), settings, dataset.trial_shape(settings)
    )
