"""Count processors, select the device of a run, and make computations repeatable bit for bit."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from afor.bench.common.errors import ConfigError

if TYPE_CHECKING:
    import torch

DEVICE_TYPES = ("cuda", "mps", "cpu")  # in order of preference for "auto"


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pick_device(name: str) -> "torch.device":
    """Return a torch device by its name in a study.

    Args:
        name: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` (or another index) or ``mps``.

    Raises:
        ConfigError: The device is not available.
    """
    import torch

    available = [device_type for device_type in DEVICE_TYPES if _is_available(device_type)]
    if name == "auto":
        return torch.device(available[0])
    device_type, _, index = name.partition(":")
    valid_index = not index or (
        device_type == "cuda" and index in map(str, range(torch.cuda.device_count()))
    )
    if device_type not in available or not valid_index:
        raise ConfigError(
            f'device "{name}" is not available on this machine. '
            f"Accepted here: auto, {', '.join(available)}."
        )
    return torch.device(name)


def _is_available(device_type: str) -> bool:
    import torch

    if device_type == "cuda":
        return torch.cuda.is_available()
    return device_type == "cpu" or torch.backends.mps.is_available()


@contextmanager
def repeatable(threads: int) -> Iterator[None]:
    """Set the number of torch threads and deterministic cuDNN algorithms inside the block."""
    import torch

    before = torch.get_num_threads()
    cudnn = torch.backends.cudnn
    flags = cudnn.deterministic, cudnn.benchmark
    torch.set_num_threads(threads)
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.set_num_threads(before)
        cudnn.deterministic, cudnn.benchmark = flags
