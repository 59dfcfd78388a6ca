"""The message of a sharded step: one all-reduce per process group completes all sums.

The message has a row for every sharded tensor of the optimizer, in the order of its parameters,
whether or not a rank has a gradient for it. So the messages of all ranks have the same shape, and
the last column, the number of ranks with a gradient, shows if the ranks disagree.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from afor.torch_private import assert_async

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

WIDTH = 6  # of a row: the five sums, and the number of ranks with a gradient


class Reduction(NamedTuple):
    """One all-reduce: a process group, its device, and the parameters that are cut along it."""

    group: "ProcessGroup"
    device: str
    keys: list[int]  # their ids


def reductions(params: Sequence[Any]) -> list[Reduction]:
    """Return the all-reduces of a step, in an order that is the same on every rank.

    A mesh dimension along which a tensor is replicated needs none, and a rank outside a mesh holds
    no part of its tensors.
    """
    by_group: dict[str, Reduction] = {}
    for p in params:
        mesh = p.device_mesh
        outside = mesh.get_coordinate() is None
        for dim, placement in enumerate(p.placements):
            if placement.is_partial():
                raise RuntimeError(
                    f"AFOR cannot update a parameter with placements {p.placements}: each rank "
                    "holds a part of every sum; make it Shard or Replicate"
                )
            if outside or placement.is_replicate() or mesh.size(dim) == 1:
                continue
            group = _process_group(mesh, dim)
            name = group.group_name
            by_group.setdefault(name, Reduction(group, mesh.device_type, [])).keys.append(id(p))
    return list(by_group.values())


def _process_group(mesh: "DeviceMesh", dim: int) -> "ProcessGroup":
    """Return the process group of a mesh dimension; raise RuntimeError if it was destroyed."""
    import torch.distributed as dist

    try:
        if not dist.is_initialized():
            raise RuntimeError("torch.distributed is not initialized")
        group = mesh.get_group(dim)
        if not torch.compiler.is_compiling():  # dynamo of torch 2.8 cannot trace the next line
            dist.get_backend(group)  # raises when the group was destroyed
    except (RuntimeError, ValueError, KeyError, AssertionError) as error:
        raise RuntimeError(
            f"AFOR holds a parameter sharded over {mesh}, whose process group does "
            "not exist any more; take the last step before "
            "torch.distributed.destroy_process_group(), or make the model and optimizer anew"
        ) from error
    return group


def complete(rows: dict[int, Tensor], message: Sequence[Reduction]) -> None:
    """Sum the row of each tensor over the ranks that hold a part of it; update ``rows``."""
    import torch.distributed as dist

    for group, device, keys in message:
        matrix = torch.stack([rows[key] for key in keys])
        home = matrix.device
        # Offloaded parameters live on the CPU, the process group of their mesh may not.
        matrix = matrix if home.type == device else matrix.to(device)
        dist.all_reduce(matrix, group=group)
        rows.update(zip(keys, matrix.to(home).unbind(), strict=True))


# ---------------------------------------------------------------------- agreement of the ranks


class ShardedTensor(NamedTuple):
    """The name of a sharded tensor in messages, and the number of ranks that share it."""

    name: str
    ranks: int
    here: bool  # whether this rank has a gradient


class Attendance:
    """Check that the ranks agree on which tensors have a gradient.

    On CPU the counts are read immediately, and a disagreement raises before parameters change. On
    an accelerator that would need a host sync in every step: the counts are copied asynchronously
    and checked in a later step.
    """

    def __init__(self) -> None:
        self._pending: deque[tuple[Any, Tensor, list[ShardedTensor]]] = deque()

    def check(self, counts: Tensor, expected: list[ShardedTensor]) -> None:
        """Raise RuntimeError if some but not all ranks have a gradient for a tensor.

        Args:
            counts: Number of ranks with a gradient, for each tensor.
            expected: The tensors, in the same order.
        """
        if torch.compiler.is_compiling():  # a compiled assertion cannot name the tensor
            all_ranks = torch.tensor([e.ranks for e in expected], device=counts.device)
            agreed = ((counts == 0) | (counts == all_ranks)).all()
            assert_async(agreed, f"AFOR: {_PROBLEM}; {_REMEDY}")
        elif counts.device.type == "cpu":
            _check_counts(counts.tolist(), expected)
        elif not (counts.is_cuda and torch.cuda.is_current_stream_capturing()):
            self._pending.append((*_send_to_host(counts), expected))

    def check_arrived(self) -> None:
        """Raise RuntimeError for a disagreement in earlier steps whose counts have arrived."""
        while self._pending and self._pending[0][0].query():
            _, counts, expected = self._pending.popleft()
            _check_counts(counts.tolist(), expected)


_PROBLEM = "a sharded tensor has a gradient on some ranks only"
_REMEDY = (
    "every rank must use the same layers in its backward pass and clear the same gradients; a rank "
    "that did not use a layer gives its parameters zero gradients (a rank that raised another "
    "error or whose GradScaler skips the step counts as one without gradients)"
)


def ranks_sharing(p: Any) -> int:
    """Return the number of ranks over which a tensor is sharded."""
    ranks = 1
    for dim, placement in enumerate(p.placements):
        if not placement.is_replicate():
            ranks *= p.device_mesh.size(dim)
    return ranks


def _send_to_host(counts: Tensor) -> tuple[Any, Tensor]:
    """Start a copy to the host; return an event that signals its completion, and the copy."""
    host = torch.empty(counts.shape, dtype=counts.dtype, pin_memory=True)
    host.copy_(counts, non_blocking=True)
    event = torch.Event(counts.device)
    event.record()
    return event, host


def _check_counts(counts: list[float], expected: list[ShardedTensor]) -> None:
    """Raise RuntimeError for the first tensor with a gradient on some ranks only."""
    disagreeing = [
        (int(n), e) for n, e in zip(counts, expected, strict=True) if n not in (0, e.ranks)
    ]
    if not disagreeing:
        return
    count, first = disagreeing[0]
    which = first.name if len(disagreeing) == 1 else f"{first.name} and {len(disagreeing) - 1} more"
    raise RuntimeError(
        f"AFOR: {_PROBLEM}: {which}, on {count} of {first.ranks} ranks, "
        f"{'this one included' if first.here else 'not on this one'}; {_REMEDY}"
    )
