"""The step on sharded parameters (DTensor): one small all-reduce per step completes the sums.

Each rank reduces its shard of every tensor to the five sums, one all-reduce per process group
completes those of all tensors and parameter groups at once (`completion.py`), and the controller
runs on the completed sums on every rank. So a tensor has the same beta2 however it is sharded.
"""

import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor

from afor.control import Sums
from afor.native.binding import PlanCache
from afor.sharded.completion import (
    WIDTH,
    Attendance,
    Reduction,
    ShardedTensor,
    complete,
    ranks_sharing,
    reductions,
)
from afor.tensors import PLAIN, Implementation, StepOptions, StepTensors, is_inside_storage
from afor.update import choose, implementations, on_device, sum_dtype


class ShardedStep(NamedTuple):
    """The sharded parameters of one parameter group and how to step them.

    ``members`` are all of them and their names, with or without a gradient; ``tensors`` those with
    one.
    """

    members: list[tuple[str, Tensor]]
    tensors: StepTensors
    options: StepOptions
    foreach: bool | None
    fused: bool | None
    cache: PlanCache


def is_sharded(x: Any) -> bool:
    """Return True if a tensor is a DTensor."""
    if type(x) in PLAIN:
        return False
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)


def sharded_members(group: dict[str, Any], index: int) -> list[tuple[str, Tensor]]:
    """Return the sharded parameters of the parameter group with this index, and their names."""
    params = group["params"]
    if not any(is_sharded(p) for p in params):
        return []
    names = group.get("param_names") or [
        f"parameter {i} of group {index}" for i in range(len(params))
    ]
    return [(name, p) for name, p in zip(names, params, strict=True) if is_sharded(p)]


def split_sharded(tensors: StepTensors) -> tuple[StepTensors, StepTensors]:
    """Split the tensors of a step into those of plain and of sharded parameters."""
    sharded = [is_sharded(p) for p in tensors.params]
    return tensors.select([not s for s in sharded]), tensors.select(sharded)


def check_sharded(group: dict[str, Any]) -> None:
    """Raise RuntimeError if an option of a group does not support sharded parameters."""
    if group["differentiable"]:
        raise RuntimeError(
            "differentiable=True cannot be used with sharded parameters (DTensor), whose sums are "
            "completed across ranks within the step; leave differentiable unset"
        )


def gathered(x: Any) -> Tensor:
    """Return the full tensor; a plain tensor is returned as it is."""
    whole: Tensor = x.full_tensor() if is_sharded(x) else x
    return whole


def cut_like(param: Any, x: Any) -> Tensor:
    """Return a tensor of a parameter's shape, full or sharded, sharded like the parameter.

    A full tensor must be the same on every rank: each takes its part without communication.
    """
    if not is_sharded(param):
        return gathered(x)
    if is_sharded(x) and x.device_mesh == param.device_mesh:
        cut: Tensor = x.redistribute(placements=param.placements)
        return cut
    from torch.distributed.tensor import DTensor, Replicate

    mesh = param.device_mesh
    placements = [Replicate()] * mesh.ndim
    value = gathered(x).to(mesh.device_type)
    replicated = DTensor.from_local(value, mesh, placements, run_check=False)
    return replicated.redistribute(placements=param.placements)


# ---------------------------------------------------------------------------------- the step


# The first half of a step: an implementation, the DTensors whose shards it works on, and the rows
# of the message with its sums.
_Begun = list[tuple[Implementation, list[Tensor], Tensor]]


def step_sharded(steps: list[ShardedStep], attendance: Attendance) -> None:
    """Take one step on the sharded parameters of all parameter groups, in place."""
    attendance.check_arrived()
    members = [member for step in steps for member in step.members]
    message = reductions([p for _, p in members])
    if torch.compiler.is_compiling():
        begun, failure = _begin(steps), None
    else:
        begun, failure = _begin_or_fail(steps)
    rows = {id(p): row for _, whole, sums in begun for p, row in zip(whole, sums, strict=True)}
    with_grad = set(rows)
    for _, p in members:
        if id(p) not in with_grad:  # zero gradient, not counted as one
            rows[id(p)] = torch.zeros(WIDTH, dtype=sum_dtype(p.device), device=p.device)
    complete(rows, message)
    if failure is not None:
        raise failure
    _check_agreement(rows, with_grad, members, message, attendance)
    for implementation, whole, _ in begun:
        completed = torch.stack([rows[id(p)] for p in whole], dim=1)
        implementation.finish(Sums(*completed[: len(Sums._fields)].unbind()))


def _begin(steps: list[ShardedStep]) -> _Begun:
    """Take the first half of a step."""
    local = [_local_tensors(step.tensors) for step in steps]  # all checked before any is written to
    begun = []
    for step, tensors in zip(steps, local, strict=True):
        whole_of = dict(zip(map(id, tensors.params), step.tensors.params, strict=True))
        for implementation in _implementations(step, tensors):
            shards = implementation.tensors.params
            whole = [whole_of[id(p)] for p in shards]
            begun.append((implementation, whole, _share(implementation.sums(), shards, whole)))
    return begun


def _begin_or_fail(steps: list[ShardedStep]) -> tuple[_Begun, Exception | None]:
    """Return what `_begin` does, or nothing and why: the other ranks wait for the message."""
    try:
        return _begin(steps), None
    except Exception as error:  # noqa: BLE001 - raised again when the message is sent
        return [], error


def _implementations(step: ShardedStep, tensors: StepTensors) -> list[Implementation]:
    """Return what takes a step on the local tensors, or nothing if GradScaler skips it.

    The message is sent all the same, so that no rank waits for another; in it a skipped step counts
    as one without gradients, so that the ranks notice if some skip and others do not.
    """
    if not tensors.params:
        return []
    name = choose(tensors.params, foreach=step.foreach, fused=step.fused, differentiable=False)
    if step.fused and step.options.found_inf is not None and torch.compiler.is_compiling():
        raise RuntimeError(
            "a compiled step of sharded parameters (DTensor) with fused=True does not take "
            "the scale of GradScaler; leave fused unset, or do not compile the step"
        )
    if name == "fused" and torch.compiler.is_compiling():
        name = "for-loop"  # the compiler makes kernels
    if name != "fused":  # the kernels check by themselves
        _check_storages(tensors)
    return implementations(name, tensors, step.options, step.cache)


def _check_storages(tensors: StepTensors) -> None:
    """Raise RuntimeError if a local tensor is larger than its storage."""
    if torch.compiler.is_compiling():
        return
    if not all(is_inside_storage(t) for column in tensors for t in column):
        raise RuntimeError(
            "AFOR cannot step: a shard, its gradient or its state is larger than its storage, "
            "which was freed or cut"
        )


def _check_agreement(
    rows: dict[int, Tensor],
    with_grad: set[int],
    members: list[tuple[str, Tensor]],
    message: list[Reduction],
    attendance: Attendance,
) -> None:
    """Raise RuntimeError if a sharded tensor has a gradient on some ranks only."""
    reduced = {key for reduction in message for key in reduction.keys}
    expected: dict[torch.device, list[ShardedTensor]] = {}
    counts: dict[torch.device, list[Tensor]] = {}
    for name, p in members:
        if id(p) in reduced:
            row = rows[id(p)]
            tensor = ShardedTensor(name, ranks_sharing(p), here=id(p) in with_grad)
            expected.setdefault(row.device, []).append(tensor)
            counts.setdefault(row.device, []).append(row[-1])
    for device, numbers in counts.items():
        attendance.check(torch.stack(numbers), expected[device])


def _local_tensors(tensors: StepTensors) -> StepTensors:
    """Return this rank's shards instead of DTensors."""
    return tensors._replace(
        params=list(map(_local, tensors.params)),
        grads=list(map(_local_grad, tensors.params, tensors.grads)),
        exp_avgs=list(map(_local, tensors.exp_avgs)),
        exp_avg_sqs=list(map(_local, tensors.exp_avg_sqs)),
    )


def _local(x: Any) -> Tensor:
    """Return this rank's shard, which shares memory with the DTensor."""
    if is_sharded(x):
        local: Tensor = x.to_local()
        return local
    raise RuntimeError(
        f"the moments of a sharded parameter (DTensor) must be sharded like it, found a plain "
        f"tensor of shape {tuple(x.shape)}; load the state with AFOR.load_state_dict"
    )


def _local_grad(param: Any, grad: Any) -> Tensor:
    """Return this rank's shard of the gradient, sharded like the parameter."""
    if not is_sharded(grad):
        raise RuntimeError(
            "the gradient of a sharded parameter (DTensor) must be a DTensor on the same mesh, "
            f"found a plain tensor of shape {tuple(grad.shape)}; make it one with "
            "torch.distributed.tensor.distribute_tensor"
        )
    # Tensor-parallel layers may leave a gradient with partial sums.
    if grad.placements != param.placements:
        grad = grad.redistribute(placements=param.placements)
    local = _local(grad)
    if type(local) not in PLAIN and hasattr(local, "wait"):
        local = local.wait()  # what is still on its way has no memory that a kernel can read
    return local


def _share(sums: Sums, local: list[Tensor], params: list[Tensor]) -> Tensor:
    """Return the rows of the message; means are weighted by the share of local elements."""
    rows = torch.stack((*sums, torch.ones_like(sums.residual)), dim=1)
    held = on_device([x.numel() for x in local], rows.device)
    whole = on_device([max(p.numel(), 1) for p in params], rows.device)
    rows[:, :2] *= (held.to(rows.dtype) / whole.to(rows.dtype))[:, None]
    return rows
