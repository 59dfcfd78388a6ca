"""Batches of windows for one side of a split; the subjects of every batch are checked."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError, DataError, LeakageError
from afor.bench.training.placement import make_loader, read_ahead, to_device
from afor.bench.training.run_spec import Normalization, Order

Normalize = Callable[[torch.Tensor], torch.Tensor]

# Channels with a smaller standard deviation are only centred; EEG in volts is far above it.
MIN_DEVIATION = 1e-12


class Windows(Protocol):
    """The interface that training needs of the windows of a data set."""

    @property
    def subjects(self) -> Sequence[str]:
        """Return the names of the subjects."""

    @property
    def subject_codes(self) -> NDArray[np.int64]:
        """Return the subject of each window as a position in `subjects`."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """Return the class of each window."""

    @property
    def trial_ids(self) -> NDArray[np.int64]:
        """Return the trial of each window, numbered through the whole dataset."""

    @property
    def n_classes(self) -> int:
        """Return the number of classes."""

    def channel_statistics(
        self, subjects: Iterable[str]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return each channel's mean and standard deviation over these subjects."""

    def gather(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return windows as (n, channels, samples), a new array in the order asked for."""


@dataclass(frozen=True)
class Batch:
    """Windows with their labels and subjects."""

    inputs: torch.Tensor  # float32 (n, channels, samples)
    labels: torch.Tensor  # int64 (n,)
    subjects: NDArray[np.int64]  # (n,) positions in the source's subjects


class Side:
    """The windows of one side of a split; any other window raises LeakageError."""

    def __init__(
        self,
        role: str,
        source: Windows,
        names: Sequence[str],
        normalize: Normalize,
        device: torch.device,
    ) -> None:
        unknown = sorted(set(names) - set(source.subjects))
        if unknown:
            raise DataError(
                f"{role}: the data has no subject {', '.join(unknown)}. "
                f"It has {', '.join(source.subjects)}; make the splits again from these."
            )
        self.role = role
        self._source = source
        self._allowed = np.array([name in set(names) for name in source.subjects])
        self._labels = torch.tensor(source.labels)
        self._normalize = normalize
        self._device = device
        self._loader = make_loader(source, device)
        self.indices = np.flatnonzero(self._allowed[source.subject_codes])
        if self.indices.size == 0:
            raise DataError(f"{role}: subjects {', '.join(names)} have no windows.")

    def load(self, indices: NDArray[np.int64]) -> Batch:
        """Return these windows, normalised and on the device."""
        codes = self._source.subject_codes[indices]
        if not self._allowed[codes].all():
            intruder = self._source.subjects[int(codes[~self._allowed[codes]][0])]
            raise LeakageError(
                f"a {self.role} batch holds a window of subject {intruder}, who is not one of "
                f"the {self.role} subjects. This is a fault in the order of the batches."
            )
        inputs = self._loader.inputs(indices)
        labels = to_device(self._labels[torch.from_numpy(indices)], self._device)
        return Batch(self._normalize(inputs), labels, codes)

    def batches(self, order: Sequence[NDArray[np.int64]]) -> Iterator[Batch]:
        """Yield a batch for each list of indices; on an accelerator the next are read ahead."""
        return read_ahead(self.load, order) if self._loader.reads_ahead else map(self.load, order)

    def part(self, indices: NDArray[np.int64]) -> "Side":
        """Return a side that holds only these of its windows."""
        part = copy.copy(self)
        part.indices = indices
        return part

    def by_subject(self) -> "dict[str, Side]":
        """Return the part of each subject of this side, in the order of the source."""
        codes = self.subject_codes
        return {
            self._source.subjects[code]: self.part(self.indices[codes == code])
            for code in np.unique(codes)
        }

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """Yield all windows of this side, in the order of the source."""
        starts = range(0, len(self.indices), batch_size)
        return self.batches([self.indices[start : start + batch_size] for start in starts])

    @property
    def labels(self) -> NDArray[np.int64]:
        """Return the class of each window of this side."""
        return self._source.labels[self.indices]

    @property
    def trial_ids(self) -> NDArray[np.int64]:
        """Return the trial of each window of this side."""
        return self._source.trial_ids[self.indices]

    @property
    def subject_codes(self) -> NDArray[np.int64]:
        """Return the subject of each window of this side."""
        return self._source.subject_codes[self.indices]


def make_normalize(
    normalization: Normalization,
    source: Windows,
    train: Sequence[str],
    device: torch.device,
) -> Normalize:
    """Return a function that normalises a batch in place.

    Args:
        normalization: ``"zscore"`` per channel over the training subjects, ``"window"`` per channel
            and window, or ``"none"``.
        source: The windows.
        train: Training subjects; statistics use no other data.
        device: Device of the batches.

    Raises:
        ConfigError: ``normalization`` is none of these.
    """
    if normalization == "none":
        return lambda inputs: inputs
    if normalization == "window":
        return _normalize_window
    if normalization != "zscore":
        raise ConfigError(
            f'normalization "{normalization}" is not known. Accepted: zscore, window, none.'
        )
    mean, deviation = source.channel_statistics(train)
    scale = np.where(deviation > MIN_DEVIATION, 1.0 / np.maximum(deviation, MIN_DEVIATION), 1.0)
    shift_t, scale_t = (
        torch.tensor(values, dtype=torch.float32, device=device)[:, None]
        for values in (mean, scale)
    )
    return lambda inputs: inputs.sub_(shift_t).mul_(scale_t)


def _normalize_window(inputs: torch.Tensor) -> torch.Tensor:
    deviation, mean = torch.std_mean(inputs, dim=-1, keepdim=True, correction=0)
    return inputs.sub_(mean).div_(torch.where(deviation > MIN_DEVIATION, deviation, 1.0))


def epoch_batches(
    side: Side,
    batch_size: int,
    seed: int,
    subjects_per_batch: int | None = None,
    order: Order = "shuffled",
) -> list[NDArray[np.int64]]:
    """Shuffle the windows of a side into the batches of one epoch.

    Every window occurs once; a last batch of a single window is dropped, because batch norm cannot
    train on it. Within a batch, windows are in the order of the source, which makes reading faster.

    Args:
        side: The windows.
        batch_size: Number of windows of a batch.
        seed: Seed of the order.
        subjects_per_batch: Group the subjects at random, this many at a time, and never mix groups
            in a batch; None mixes all subjects.
        order: ``"blocks"`` trains on the subjects one after the other, in a random order.
    """
    rng = np.random.default_rng(seed)
    if order == "blocks":
        subjects_per_batch = 1
    if subjects_per_batch is None:
        groups = [side.indices]
    else:
        codes = rng.permutation(np.unique(side.subject_codes))
        groups = [
            side.indices[np.isin(side.subject_codes, codes[i : i + subjects_per_batch])]
            for i in range(0, len(codes), subjects_per_batch)
        ]
    batches = [batch for group in groups for batch in _cut(rng, group, batch_size)]
    if subjects_per_batch is not None and order != "blocks":
        batches = [batches[i] for i in rng.permutation(len(batches))]
    return batches


def _cut(
    rng: np.random.Generator, indices: NDArray[np.int64], batch_size: int
) -> list[NDArray[Any]]:
    order = rng.permutation(indices)
    batches = [np.sort(order[i : i + batch_size]) for i in range(0, len(order), batch_size)]
    return batches[:-1] if len(batches[-1]) == 1 and len(order) > 1 else batches


def split_trials(side: Side, share: float) -> tuple[Side, Side]:
    """Divide the trials of a side: the first of each class, in the order of the source, the rest.

    Args:
        side: Windows of one subject.
        share: Share of the trials of each class in the first part; both parts have at least one.

    Raises:
        DataError: A class has a single trial, which cannot be in both parts.
    """
    trials, first_window = np.unique(side.trial_ids, return_index=True)
    labels = side.labels[first_window]
    firsts = []
    for label in np.unique(labels):
        of_class = trials[labels == label]
        if len(of_class) < 2:
            raise DataError(
                f"{side.role}: class {label} has a single trial of a subject, which cannot be both "
                f"adapted to and tested. Use shorter trials, or leave the subject out."
            )
        count = min(max(1, round(share * len(of_class))), len(of_class) - 1)
        firsts.append(of_class[:count])
    is_first = np.isin(side.trial_ids, np.concatenate(firsts))
    return side.part(side.indices[is_first]), side.part(side.indices[~is_first])
