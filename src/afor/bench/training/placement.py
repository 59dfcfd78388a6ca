"""Where the windows are while a network trains: on the device if they fit, else one batch ahead.

On the CPU the windows of a small data set are kept in memory, and those of a large one are read
when they are needed. On an accelerator all windows of a data set are copied to the device once, if
they take less than half of its free memory; otherwise a thread reads the next batch into pinned
memory while the device works on the present one.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from afor.bench.training.batches import Batch, Windows

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


class Loader(Protocol):
    """Brings windows to the device."""

    reads_ahead: bool

    def inputs(self, indices: Indices) -> torch.Tensor:
        """Return windows as a new tensor, float32 (n, channels, samples), on the device."""


class FromHost:
    """Reads windows when they are needed; into pinned memory for CUDA."""

    def __init__(self, source: "Windows", device: torch.device) -> None:
        self._source = source
        self._device = device
        self.reads_ahead = device.type != "cpu"

    def inputs(self, indices: Indices) -> torch.Tensor:
        """Read windows and copy them to the device without waiting for the copy."""
        return to_device(torch.from_numpy(self._source.gather(indices)), self._device)


class OnDevice:
    """Keeps all windows of a data set on the device."""

    reads_ahead = False

    def __init__(self, source: "Windows", device: torch.device) -> None:
        self._source = source  # alive as long as its windows are kept, so that no other has its id
        count = len(source.labels)
        parts = [
            torch.from_numpy(source.gather(np.arange(start, min(start + COPIED_AT_ONCE, count))))
            for start in range(0, count, COPIED_AT_ONCE)
        ]
        shape, dtype = (count, *parts[0].shape[1:]), parts[0].dtype
        self._windows = torch.empty(shape, dtype=dtype, device=device)
        for number, part in enumerate(parts):
            start = number * COPIED_AT_ONCE
            self._windows[start : start + len(part)] = part.to(device)

    def inputs(self, indices: Indices) -> torch.Tensor:
        """Return a copy of these windows."""
        positions = to_device(torch.from_numpy(indices), self._windows.device)
        return self._windows.index_select(0, positions)


def make_loader(source: "Windows", device: torch.device) -> Loader:
    """Return the loader for a device.

    Args:
        source: The windows.
        device: The device of the network.

    Returns:
        Windows on the device if they fit; else read ahead, on the CPU when they are needed.
    """
    fingerprint = getattr(source, "fingerprint", "")
    if device.type == "cpu" and not fingerprint:
        return FromHost(source, device)  # arrays, which are in memory already
    key = (fingerprint or id(source), device)
    if key in _kept:
        return _kept[key]
    _kept.clear()  # runs of another data set follow: make room
    if device.type == "cpu":
        is_kept = all_bytes(source) <= KEPT_BYTES_ON_CPU
    else:
        is_kept = fits(source, free_bytes(device))
    if not is_kept:
        return FromHost(source, device)
    _kept[key] = OnDevice(source, device)
    return _kept[key]


# The windows on the device, which the next run of a worker uses again.
_kept: dict[tuple[object, torch.device], OnDevice] = {}


def fits(source: "Windows", free: int) -> bool:
    """Tell whether all windows of a data set fit into the share of the free memory."""
    return all_bytes(source) <= MEMORY_SHARE * free


def all_bytes(source: "Windows") -> int:
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
    remaining = iter(order)
    with ThreadPoolExecutor(1, thread_name_prefix="afor-windows") as thread:
        waiting: list[Future[Batch]] = [
            thread.submit(load, indices) for indices in islice(remaining, READ_AHEAD)
        ]
        try:
            while waiting:
                batch = waiting.pop(0).result()
                waiting.extend(thread.submit(load, indices) for indices in islice(remaining, 1))
                yield batch
        finally:
            for future in waiting:
                future.cancel()
