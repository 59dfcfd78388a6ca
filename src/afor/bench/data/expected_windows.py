"""`ExpectedWindows`, the windows of a data set whose files are not there, for plans."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from afor.bench.data.catalog import get_dataset
from afor.bench.data.dataset import DataKind, TrialShape
from afor.bench.data.settings import DataSettings
from afor.bench.data.window_source import WindowLayout


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
        self.windows_per_subject = trial.trials * self.windows_per_trial
        subject_bytes = trial.trials * len(trial.channel_names) * trial.samples * 4
        self.prepared_bytes = len(self.subjects) * subject_bytes  # of the trials on disk

    def count_windows(self, subjects: Iterable[str]) -> int:
        """Return the number of windows of these subjects."""
        return self.windows_per_subject * len(set(subjects))

    def __len__(self) -> int:
        return self.windows_per_subject * len(self.subjects)


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
