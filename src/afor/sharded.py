"""The step on sharded parameters (DTensor): shards add up their sums, one small message a step.

Each rank reduces its shard of every tensor to the five sums, one all-reduce per process group
completes those of all tensors and parameter groups at once, and the controller runs on the
completed sums on every rank. So beta2 of a tensor is that of the whole tensor, however it is cut.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from afor.control import ControlSettings, Sums
from afor.functional import (
    begin_multi_tensor,
    begin_single_tensor,
    by_device_and_dtype,
    default_implementation,
    on_device,
)

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

_PLAIN = (Tensor, torch.nn.Parameter)


class ShardedStep(NamedTuple):
    """The sharded parameters of one parameter group and how to step them.

    ``lists`` are parallel: params, grads, exp_avgs, exp_avg_sqs, controls, state_steps.
    """

    lists: list[list[Tensor]]
    settings: ControlSettings
    lr: float | Tensor
    weight_decay: float
    maximize: bool
    foreach: bool | None


def is_sharded(x: Any) -> bool:
    """Tell whether a tensor is a DTensor, without importing what takes a second to import."""
    if type(x) in _PLAIN:
        return False
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)


def split_sharded(lists: Sequence[list[Tensor]]) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
    """Split parallel lists, parameters first, into those of plain and of sharded parameters."""
    sharded = [is_sharded(p) for p in lists[0]]
    if not any(sharded):
        return list(lists), [[] for _ in lists]
    plain = [[t for t, s in zip(column, sharded, strict=True) if not s] for column in lists]
    return plain, [[t for t, s in zip(column, sharded, strict=True) if s] for column in lists]


def check_sharded(group: dict[str, Any]) -> None:
    """Raise RuntimeError when the options of a group do not go with sharded parameters."""
    for name, refused in (("fused", True), ("differentiable", True), ("variant", "released")):
        if group[name] == refused:
            raise RuntimeError(
                f"{name}={refused!r} cannot be used with sharded parameters (DTensor), whose sums "
                f"are completed across ranks within the step; leave {name} unset"
            )


def gathered(x: Any) -> Tensor:
    """Return a tensor whole, as every rank holds it."""
    whole: Tensor = x.full_tensor() if is_sharded(x) else x
    return whole


def cut_like(param: Any, x: Any) -> Tensor:
    """Return a tensor of a parameter's shape, whole or cut, cut as the parameter is.

    A whole tensor must be the same on every rank: each takes its part without a message.
    """
    if not is_sharded(param):
        return gathered(x)
    if is_sharded(x) and x.device_mesh == param.device_mesh:
        cut: Tensor = x.redistribute(placements=param.placements)
        return cut
    from torch.distributed.tensor import DTensor, Replicate

    mesh = param.device_mesh
    everywhere = [Replicate()] * mesh.ndim
    value = gathered(x).to(mesh.device_type)
    same = DTensor.from_local(value, mesh, everywhere, run_check=False)
    return same.redistribute(placements=param.placements)


# ---------------------------------------------------------------------------------- the step


def sharded_afor(steps: list[ShardedStep]) -> None:
    """Take one step on the sharded parameters of all parameter groups, in place."""
    reductions = _reductions([p for step in steps for p in step.lists[0]])
    local = [_local_lists(step.lists) for step in steps]  # all checked before any is written to
    begun = []
    for step, columns in zip(steps, local, strict=True):
        foreach = step.foreach
        if foreach is None:
            foreach = default_implementation(columns[0], differentiable=False)[1]
        begin = begin_multi_tensor if foreach else begin_single_tensor
        for *part, whole in by_device_and_dtype([*columns, step.lists[0]]):
            sums, finish = begin(
                *part,
                settings=step.settings,
                lr=step.lr.reshape(()) if isinstance(step.lr, Tensor) else step.lr,
                weight_decay=step.weight_decay,
                maximize=step.maximize,
                differentiable=False,
            )
            begun.append((whole, _share(sums, part[0], whole), finish))

    rows = {id(p): row for whole, sums, _ in begun for p, row in zip(whole, sums, strict=True)}
    _complete(rows, reductions)
    for whole, _, finish in begun:
        finish(Sums(*torch.stack([rows[id(p)] for p in whole], dim=1).unbind()))


def _local_lists(lists: list[list[Tensor]]) -> list[list[Tensor]]:
    """Return the lists with this rank's shards in the place of sharded tensors."""
    params, grads, exp_avgs, exp_avg_sqs, controls, state_steps = lists
    return [
        list(map(_local, params)),
        list(map(_local_grad, params, grads)),
        list(map(_local, exp_avgs)),
        list(map(_local, exp_avg_sqs)),
        controls,
        state_steps,
    ]


def _local(x: Any) -> Tensor:
    """Return this rank's shard, to be written to."""
    if is_sharded(x):
        local: Tensor = x.to_local()
        return local
    raise RuntimeError(
        f"the moments of a sharded parameter (DTensor) must be sharded like it, found a plain "
        f"tensor of shape {tuple(x.shape)}; load the state with AFOR.load_state_dict"
    )


def _local_grad(param: Any, grad: Any) -> Tensor:
    """Return this rank's shard of the gradient, cut as the parameter is."""
    if not is_sharded(grad):
        raise RuntimeError(
            "the gradient of a sharded parameter (DTensor) must be a DTensor on the same mesh, "
            f"found a plain tensor of shape {tuple(grad.shape)}; make it one with "
            "torch.distributed.tensor.distribute_tensor"
        )
    # Tensor-parallel layers may leave a gradient that is still to be added up.
    if grad.placements != param.placements:
        grad = grad.redistribute(placements=param.placements)
    return _local(grad)


def _share(sums: Sums, local: list[Tensor], params: list[Tensor]) -> Tensor:
    """Return the sums as rows, (tensors, 5), the means as shares of those of whole tensors."""
    rows = torch.stack(sums, dim=1)
    held = on_device([x.numel() for x in local], rows.device)
    whole = on_device([max(p.numel(), 1) for p in params], rows.device)
    rows[:, :2] *= (held.to(rows.dtype) / whole.to(rows.dtype))[:, None]
    return rows


# ------------------------------------------------------------------------------- the message


class _Reduction(NamedTuple):
    """One all-reduce: a process group, its device, and the parameters that are cut along it."""

    group: "ProcessGroup"
    device: str
    keys: list[int]


def _reductions(params: Sequence[Any]) -> list[_Reduction]:
    """Return what to add up, in an order that is the same on every rank.

    A mesh dimension along which a tensor is replicated holds the same elements again, and adds
    nothing. A rank outside a mesh holds nothing of its tensors.
    """
    found: dict[str, _Reduction] = {}
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
            found.setdefault(name, _Reduction(group, mesh.device_type, [])).keys.append(id(p))
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


def _complete(rows: dict[int, Tensor], reductions: list[_Reduction]) -> None:
    """Add up the row of each tensor over the ranks that hold a part of it, in place."""
    import torch.distributed as dist

    for group, device, keys in reductions:
        matrix = torch.stack([rows[key] for key in keys])
        home = matrix.device
        # Offloaded parameters live on the CPU, the process group of their mesh may not.
        matrix = matrix if home.type == device else matrix.to(device)
        dist.all_reduce(matrix, group=group)
        rows.update(zip(keys, matrix.to(home).unbind(), strict=True))
