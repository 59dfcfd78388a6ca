"""The message of a sharded step: one all-reduce per process group completes all sums.

The message has a row for every sharded tensor of the optimizer, in the order of its parameters,
whether or not a rank has a gradient for it. So the messages of all ranks fit together in any case,
and its last column, a count of the ranks with a gradient, shows when the ranks do not agree.
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
    """Return what to add up, in an order that is the same on every rank.

    A mesh dimension along which a tensor is replicated holds the same elements again, and adds
    nothing. A rank outside a mesh holds nothing of its tensors.
    """
    found: dict[str, Reduction] = {}
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
            found.setdefault(name, Reduction(group, mesh.device_type, [])).keys.append(id(p))
    return list(found.values())


def _process_group(mesh: "DeviceMesh", dim: int) -> "ProcessGroup":
    """Return the process group of a mesh dimension, or say that it is gone."""
    import torch.distributed as dist

    try:
        if not dist.is_initialized():
            raise RuntimeError("torch.distributed is not initialized")
        group = mesh.get_group(dim)
        dist.get_backend(group)  # raises when the group was destroyed
    except (RuntimeError, ValueError, KeyError, AssertionError) as error:
        raise RuntimeError(
            f"AFOR holds a parameter sharded over {mesh}, whose process group does "
            "not exist any more; take the last step before "
            "torch.distributed.destroy_process_group(), or make the model and optimizer anew"
        ) from error
    return group


def complete(rows: dict[int, Tensor], found: Sequence[Reduction]) -> None:
    """Add up the row of each tensor over the ranks that hold a part of it, in place."""
    import torch.distributed as dist

    for group, device, keys in found:
        matrix = torch.stack([rows[key] for key in keys])
        home = matrix.device
        # Offloaded parameters live on the CPU, the process group of their mesh may not.
        matrix = matrix if home.type == device else matrix.to(device)
        dist.all_reduce(matrix, group=group)
        rows.update(zip(keys, matrix.to(home).unbind(), strict=True))


# ------------------------------------------------------------------------------- who takes part


class Expected(NamedTuple):
    """A sharded tensor as an error message names it, and how many ranks share it."""

    name: str
    ranks: int
    here: bool  # whether this rank has a gradient


class Attendance:
    """Checks that the ranks agree on which tensors have a gradient.

    On CPU the counts are read at once, and a step that would go wrong raises before parameters
    change. Reading from an accelerator would make the host wait in every step: there the counts
    are copied while the step goes on and read in a later step, once they have arrived.
    """

    def __init__(self) -> None:
        self._pending: deque[tuple[Any, Tensor, list[Expected]]] = deque()

    def check(self, counts: Tensor, expected: list[Expected]) -> None:
        """Raise RuntimeError when some but not all ranks have a gradient for a tensor.

        ``counts`` holds, of each tensor, on how many ranks it has one.
        """
        if torch.compiler.is_compiling():  # the graph has no room for a name
            all_ranks = torch.tensor([e.ranks for e in expected], device=counts.device)
            agreed = ((counts == 0) | (counts == all_ranks)).all()
            assert_async(agreed, f"AFOR: {_PROBLEM}; {_REMEDY}")
        elif counts.device.type == "cpu":
            _judge(counts.tolist(), expected)
        elif not (counts.is_cuda and torch.cuda.is_current_stream_capturing()):
            self._pending.append((*_send_to_host(counts), expected))

    def check_arrived(self) -> None:
        """Raise RuntimeError for a disagreement in an earlier step whose counts have arrived."""
        while self._pending and self._pending[0][0].query():
            _, counts, expected = self._pending.popleft()
            _judge(counts.tolist(), expected)


_PROBLEM = "a sharded tensor has a gradient on some ranks only"
_REMEDY = (
    "every rank must use the same layers in its backward pass and clear the same gradients; a rank "
    "that did not use a layer gives its parameters zero gradients"
)


def ranks_sharing(p: Any) -> int:
    """Return over how many ranks a tensor is cut."""
    ranks = 1
    for dim, placement in enumerate(p.placements):
        if not placement.is_replicate():
            ranks *= p.device_mesh.size(dim)
    return ranks


def _send_to_host(counts: Tensor) -> tuple[Any, Tensor]:
    """Copy to the host without waiting; return what tells when it has arrived, and the copy."""
    host = torch.empty(counts.shape, dtype=counts.dtype, pin_memory=True)
    host.copy_(counts, non_blocking=True)
    event = torch.Event(counts.device)
    event.record()
    return event, host


def _judge(counts: list[float], expected: list[Expected]) -> None:
    odd = [(int(n), e) for n, e in zip(counts, expected, strict=True) if n not in (0, e.ranks)]
    if not odd:
        return
    count, first = odd[0]
    which = first.name if len(odd) == 1 else f"{first.name} and {len(odd) - 1} more"
    raise RuntimeError(
        f"AFOR: {_PROBLEM}: {which}, on {count} of {first.ranks} ranks, "
        f"{'this one included' if first.here else 'not on this one'}; {_REMEDY}"
    )
