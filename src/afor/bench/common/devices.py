"""Count processors, select the device of a run, make computations repeatable, describe it."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from afor.bench.common.errors import ConfigError

if TYPE_CHECKING:
    import torch

DEVICE_TYPES = ("cuda", "mps", "cpu")  # in order of preference for "auto"
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"

# How numbers are held while a network trains; weights are float32 in each case.
Precision = Literal["float32", "tf32", "bfloat16", "float16"]


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Options of glibc's mallopt: what is freed above the first is returned to the system, and
# allocations above the second always are; 32 MiB is the most that it takes.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES, LARGEST_KEPT = 512 << 20, 32 << 20


def keep_freed_memory() -> None:
    """Keep freed memory in this process, where the C library is glibc; changes no number.

    By default glibc returns the memory of large tensors to the system, which clears it page by page
    for the next operation: a third of the time of a step of the authors' ACRNN on imagery.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
            library.mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)


def pick_device(name: str) -> "torch.device":
    """Return a torch device by its name in a study.

    Args:
        name: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` (or another index) or ``mps``.

    Raises:
        ConfigError: The device is not available.
    """
    import torch

    available = [device_type for device_type in DEVICE_TYPES if is_available(device_type)]
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


def synchronize(device: "torch.device") -> None:
    """Wait until an accelerator has finished its work; no effect on the CPU."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def is_available(device_type: str) -> bool:
    """Tell whether this machine has a kind of device: ``cpu``, ``cuda`` or ``mps``."""
    import torch

    if device_type == "cuda":
        return torch.cuda.is_available()
    return device_type == "cpu" or torch.backends.mps.is_available()


def gpus_for(name: str) -> tuple[str, ...]:
    """Return the GPUs that the workers of a study share, as ``CUDA_VISIBLE_DEVICES`` names them.

    Args:
        name: The device of a study. ``cuda`` stands for all GPUs, ``cuda:1`` for one.

    Returns:
        The names; empty if the study does not run on CUDA.

    Raises:
        ConfigError: The device is not available.
    """
    import torch

    device = pick_device(name)
    if device.type != "cuda":
        return ()
    listed = os.environ.get(VISIBLE_GPUS)
    names = listed.split(",") if listed else list(map(str, range(torch.cuda.device_count())))
    return tuple(names) if device.index is None else (names[device.index],)


@contextmanager
def repeatable(threads: int, precision: Precision = "float32") -> Iterator[None]:
    """Make torch repeatable inside the block, as far as the device allows.

    It sets the number of threads, deterministic algorithms on CUDA where torch has them, and turns
    TF32 off unless `precision` asks for it.
    """
    import torch

    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    threads_before = torch.get_num_threads()
    flags = cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(threads)
    cudnn.deterministic, cudnn.benchmark = True, False
    cudnn.allow_tf32 = matmul.allow_tf32 = precision == "tf32"
    if torch.cuda.is_available():
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = flags
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


def describe_device(device: "torch.device", precision: str = "float32") -> dict[str, str]:
    """Return what may change the last bits of a result on an accelerator; empty for the CPU."""
    import torch

    if device.type != "cuda":
        return {}
    properties = torch.cuda.get_device_properties(device)
    return {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
        "driver": _driver_version(),
        "tf32": "on" if precision == "tf32" else "off",
    }


def _driver_version() -> str:
    """Return the version of NVIDIA's driver, as Linux tells it; empty elsewhere."""
    try:
        return Path("/sys/module/nvidia/version").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
