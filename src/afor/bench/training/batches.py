"""Batches of windows for one side of a split; the subjects of every batch are checked.

On the CPU the windows of a small data set are kept in memory, and those of a large one are read
when they are needed. On an accelerator all windows of a data set are copied to the device once, if
they take less than half of its free memory; otherwise a thread reads the next batch into pinned
memory while the device works on the present one.

Training batches may be contaminated: what is contaminated depends on the seed of the run and the
number of the step, never on the optimizer or on earlier draws, so that comparisons stay paired.
Windows of validation and test subjects are never changed, nor are those that a test subject is
adapted with.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from afor.bench.common.errors import DataError, LeakageError
from afor.bench.common.seeding import derive_substep
from afor.bench.data.window_source import Windows
from afor.bench.training.run_spec import Contamination, Normalization, Order, RunSettings

MEMORY_SHARE = 0.5  # of the free memory of a device, for all windows of a data set
KEPT_BYTES_ON_CPU = 256 * 2**20  # per worker; larger data sets stay in memory-mapped files
COPIED_AT_ONCE = 4096  # windows
READ_AHEAD = 2  # batches

Indices = NDArray[np.int64]


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor of the host on the device; on CUDA without waiting for the copy.

    A copy from memory that is not pinned would wait for all work that the device has queued.
    """
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    # Apple's devices share their memory with the host, which could change it too early.
    return tensor.to(device, non_blocking=device.type != "mps")


class Loader:
    """Brings windows to a device: all of them now with `keep`, else when they are needed."""

    def __init__(self, source: Windows, device: torch.device, *, keep: bool) -> None:
        self._source = source  # alive as long as its windows are kept, so that no other has its id
        self._device = device
        self.reads_ahead = device.type != "cpu" and not keep
        self._kept: torch.Tensor | None = None
        if keep:
            count, first = len(source.labels), source.gather(np.zeros(1, dtype=np.int64))
            shape, dtype = (count, *first.shape[1:]), torch.from_numpy(first).dtype
            self._kept = torch.empty(shape, dtype=dtype, device=device)
            for start in range(0, count, COPIED_AT_ONCE):
                part = np.arange(start, min(start + COPIED_AT_ONCE, count))
                self._kept[start : start + len(part)] = self._read(part)

    def inputs(self, indices: Indices) -> torch.Tensor:
        """Return windows as a new tensor, float32 (n, channels, samples), on the device."""
        if self._kept is None:
            return self._read(indices)
        return self._kept.index_select(0, to_device(torch.from_numpy(indices), self._device))

    def _read(self, indices: Indices) -> torch.Tensor:
        return to_device(torch.from_numpy(self._source.gather(indices)), self._device)


def make_loader(source: Windows, device: torch.device) -> Loader:
    """Return the loader for a device: with windows on the device if they fit."""
    on_cpu = device.type == "cpu"
    if on_cpu and not source.fingerprint:
        return Loader(source, device, keep=False)  # arrays, which are in memory already
    key = (source.fingerprint or id(source), device)
    if key not in _kept:
        _kept.clear()  # runs of another data set follow: make room
        limit = KEPT_BYTES_ON_CPU if on_cpu else MEMORY_SHARE * free_bytes(device)
        if all_bytes(source) > limit:
            return Loader(source, device, keep=False)
        _kept[key] = Loader(source, device, keep=True)
    return _kept[key]


# The windows on the device, which the next run of a worker uses again.
_kept: dict[tuple[object, torch.device], Loader] = {}


def all_bytes(source: Windows) -> int:
    """Return the size of all windows of a data set in memory."""
    return len(source.labels) * source.gather(np.zeros(1, dtype=np.int64)).nbytes


def free_bytes(device: torch.device) -> int:
    """Return the free memory of a device; 0 if it does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        used = torch.mps.current_allocated_memory()
        return max(0, int(torch.mps.recommended_max_memory()) - used)
    return 0


def read_ahead(load: Callable[[Indices], "Batch"], order: Iterable[Indices]) -> Iterator["Batch"]:
    """Yield batches in their order while a thread loads the next ones."""
    waiting: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="afor-windows") as thread:
        for indices in order:
            waiting.append(thread.submit(load, indices))
            if len(waiting) > READ_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


Normalize = Callable[[torch.Tensor], torch.Tensor]

# Channels with a smaller standard deviation are only centred; EEG in volts is far above it.
MIN_DEVIATION = 1e-12


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

    It is ``"zscore"`` per channel over the training subjects alone, ``"window"`` per channel and
    window, or ``"none"``.
    """
    if normalization == "none":
        return lambda inputs: inputs
    if normalization == "window":
        return _normalize_window
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


class Sides:
    """The windows of a split, normalised; the test subjects are not touched before their turn."""

    def __init__(self, settings: RunSettings, source: Windows, device: torch.device) -> None:
        self._split, self._source, self._device = settings.split, source, device
        self._normalize = make_normalize(settings.normalization, source, self._split.train, device)
        self.n_classes = source.n_classes
        self.training = self._side("training", self._split.train)
        self.validation = self._side("validation", self._split.validation)

    @cached_property
    def test(self) -> Side:
        """Return the windows of the test subjects."""
        return self._side("test", self._split.test)

    def _side(self, role: str, names: Sequence[str]) -> Side:
        return Side(role, self._source, names, self._normalize, self._device)


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
    With `subjects_per_batch`, subjects are grouped at random, and a batch holds those of one group;
    the order ``"blocks"`` trains on the subjects one after the other, in a random order.
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

    The first part has this share of the trials of each class; both parts have at least one. Raises
    DataError if a class has a single trial, which cannot be in both parts.
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


def contaminate(
    batch: Batch, contamination: Contamination, seed: int, step: int, n_classes: int
) -> Batch:
    """Return the batch as the network sees it in one step of a contaminated training.

    Steps, counted from 0, are grouped into blocks of `length`; a burst is a whole block, drawn with
    probability `share`. Without bursts, each window is drawn by itself with probability `share`.
    """
    block_seed, window_seed = derive_substep(seed, 0), derive_substep(seed, 1)
    windows = np.random.default_rng(derive_substep(window_seed, step))
    if contamination.in_bursts:
        block = derive_substep(block_seed, step // (contamination.length or 1))
        is_burst = np.random.default_rng(block).random() < contamination.share
        is_contaminated = np.full(len(batch.subjects), is_burst)
    else:
        is_contaminated = windows.random(len(batch.subjects)) < contamination.share
    if not is_contaminated.any():
        return batch
    picked = to_device(torch.from_numpy(is_contaminated), batch.labels.device)
    if contamination.gain is not None:
        larger = batch.inputs * contamination.gain
        return replace(batch, inputs=torch.where(picked[:, None, None], larger, batch.inputs))
    drawn = windows.integers(1, n_classes, len(is_contaminated))
    offsets = to_device(torch.from_numpy(drawn), picked.device)
    return replace(
        batch, labels=torch.where(picked, (batch.labels + offsets) % n_classes, batch.labels)
    )
