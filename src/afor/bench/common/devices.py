"""The device a run is trained on, and what makes it repeat bit by bit there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from afor.bench.common.errors import ConfigError

if TYPE_CHECKING:
    import torch

KINDS = ("cuda", "mps", "cpu")  # in the order in which "auto" takes them


def pick_device(name: str) -> "torch.device":
    """Return the device for auto, cpu, cuda, cuda:1 or mps; raise ConfigError if it is absent."""
    import torch

    present = [kind for kind in KINDS if _is_present(kind)]
    if name == "auto":
        return torch.device(present[0])
    kind, _, number = name.partition(":")
    valid_number = not number or (
        kind == "cuda" and number in map(str, range(torch.cuda.device_count()))
    )
    if kind not in present or not valid_number:
        raise ConfigError(
            f'device "{name}" is not available on this machine. '
            f"Accepted here: auto, {', '.join(present)}."
        )
    return torch.device(name)


def _is_present(kind: str) -> bool:
    import torch

    if kind == "cuda":
        return torch.cuda.is_available()
    return kind == "cpu" or torch.backends.mps.is_available()


@contextmanager
def repeatable(threads: int) -> Iterator[None]:
    """Fix what changes the last bits of a result: the number of threads and cuDNN's choices."""
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
