"""The step on sharded parameters (DTensor): one small all-reduce per step completes the sums.

Each rank reduces its shard of every tensor to the five sums, one all-reduce per process group
completes those of all tensors and parameter groups at once (`completion.py`), and the controller
runs on the completed sums on every rank. So a tensor has the same beta2 however it is sharded.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from afor.control import Sums
from afor.native.binding import PlanCache, begin_native, split_native
from afor.sharded.completion import (
    WIDTH,
    Attendance,
    Reduction,
    ShardedTensor,
    complete,
    ranks_sharing,
    reductions,
)
from afor.state_check import is_inside_storage
from afor.sums import on_device, sum_dtype
from afor.tensor_lists import (
    Columns,
    Finish,
    StepOptions,
    by_device_and_dtype,
    gradient_factor,
    select,
)
from afor.triton.launch import begin_triton
from afor.update import begin_multi_tensor, begin_single_tensor, default_implementation

_PLAIN = (Tensor, torch.nn.Parameter)  # older versions of dynamo know no sets of types

# The first half of a step on local lists: the sums, and the second half.
Begin = Callable[..., tuple[Sums, Finish]]


class ShardedStep(NamedTuple):
    """The sharded parameters of one parameter group and how to step them.

    ``members`` are all of them and their names, with or without a gradient; ``lists`` hold those
    with one.
    """

    members: list[tuple[str, Tensor]]
    lists: Columns
    options: StepOptions
    foreach: bool | None
    fused: bool | None
    cache: PlanCache


def is_sharded(x: Any) -> bool:
    """Return True if a tensor is a DTensor."""
    if type(x) in _PLAIN:
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


def split_sharded(lists: Columns) -> tuple[Columns, Columns]:
    """Split the lists of a step into those of plain and of sharded parameters."""
    sharded = [is_sharded(p) for p in lists[0]]
    if not any(sharded):
        return list(lists), [[] for _ in lists]
    return select(lists, [not s for s in sharded]), select(lists, sharded)


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


def sharded_afor(steps: list[ShardedStep], attendance: Attendance) -> None:
    """Take one step on the sharded parameters of all parameter groups, in place."""
    attendance.check_arrived()
    members = [member for step in steps for member in step.members]
    message = reductions([p for _, p in members])
    if torch.compiler.is_compiling():
        begun, failure = _begin(steps), None
    else:
        begun, failure = _begin_or_fail(steps)
    rows = {id(p): row for whole, sums, _ in begun for p, row in zip(whole, sums, strict=True)}
    with_grad = set(rows)
    for _, p in members:
        if id(p) not in with_grad:  # zero gradient, not counted as one
            rows[id(p)] = torch.zeros(WIDTH, dtype=sum_dtype(p.device), device=p.device)
    complete(rows, message)
    if failure is not None:
        raise failure
    _check_agreement(rows, with_grad, members, message, attendance)
    for whole, _, finish in begun:
        completed = torch.stack([rows[id(p)] for p in whole], dim=1)
        finish(Sums(*completed[: len(Sums._fields)].unbind()))


def _begin(steps: list[ShardedStep]) -> list[tuple[list[Tensor], Tensor, Finish]]:
    """Return DTensors, their rows of the message and the second half, for every part of a step."""
    local = [_local_lists(step.lists) for step in steps]  # all checked before any is written to
    begun = []
    for step, columns in zip(steps, local, strict=True):
        if not columns[0] or _is_skipped(step):
            continue
        for part, whole, begin in _parts(step, columns):
            sums, finish = begin(*part)
            begun.append((whole, _share(sums, part[0], whole), finish))
    return begun


def _begin_or_fail(
    steps: list[ShardedStep],
) -> tuple[list[tuple[list[Tensor], Tensor, Finish]], Exception | None]:
    """Return what `_begin` does, or nothing and why: the other ranks wait for the message."""
    try:
        return _begin(steps), None
    except Exception as error:  # noqa: BLE001 - raised again when the message is sent
        return [], error


def _is_skipped(step: ShardedStep) -> bool:
    """Return True if GradScaler skips the step, as far as the host knows: on CUDA the device does.

    The message is sent all the same, so that no rank waits for another; in it the step counts as
    one without gradients, so that the ranks notice if some skip and others do not.
    """
    found_inf = step.options.get("found_inf")
    if not step.fused or found_inf is None or not step.lists[0]:
        return False
    return step.lists[0][0].device.type == "cpu" and found_inf.item() != 0.0


def _parts(step: ShardedStep, columns: Columns) -> Iterator[tuple[Columns, list[Tensor], Begin]]:
    """Yield the local lists of one implementation each, their DTensors, and the implementation."""
    fused, foreach = step.fused, step.foreach
    if fused is None and foreach is None:
        fused, foreach = default_implementation(columns[0], differentiable=False)
    if fused and torch.compiler.is_compiling():
        if step.options.get("found_inf") is not None:
            raise RuntimeError(
                "a compiled step of sharded parameters (DTensor) with fused=True does not take "
                "the scale of GradScaler; leave fused unset, or do not compile the step"
            )
        fused, foreach = False, columns[0][0].device.type != "cpu"  # the compiler makes kernels
    lr = step.options["lr"]
    options: StepOptions = {**step.options, "lr": lr.reshape(()) if isinstance(lr, Tensor) else lr}
    loop = begin_multi_tensor if foreach else begin_single_tensor
    everything = [*columns, step.lists[0]]
    if fused and {p.device.type for p in columns[0]} == {"cpu"}:
        yield from _native_parts(everything, options, step.cache)
        return
    for *part, whole in by_device_and_dtype(everything):
        if not fused:
            _check_storages(part)
            yield part, whole, partial(loop, **options)
        elif part[0][0].device.type == "cuda":
            yield part, whole, partial(begin_triton, **options)
        else:  # beside tensors on CUDA
            yield from _native_parts([*part, whole], options, PlanCache())


def _native_parts(
    columns: Columns, options: StepOptions, cache: PlanCache
) -> Iterator[tuple[Columns, list[Tensor], Begin]]:
    """Yield what `_parts` does, for the CPU with the native kernel; the DTensors are the last list.

    Tensors that the kernel does not support, such as complex ones, go through the for-loop.
    """
    factor = gradient_factor(options)
    (*native, whole), (*others, others_whole) = split_native(columns, factor)
    if whole:
        names = ("settings", "lr", "weight_decay")
        shared: dict[str, Any] = {name: options[name] for name in names}  # type: ignore[literal-required]
        yield native, whole, partial(begin_native, grad_factor=factor, cache=cache, **shared)
    if others_whole:
        descending: StepOptions = {**options, "maximize": False}
        for *part, part_whole in by_device_and_dtype([*others, others_whole]):
            _check_storages(part)
            yield part, part_whole, partial(begin_single_tensor, **descending)


def _check_storages(columns: Columns) -> None:
    """Raise RuntimeError if a local tensor is larger than its storage; the kernels check theirs."""
    if not torch.compiler.is_compiling() and not all(map(is_inside_storage, chain(*columns))):
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


def _local_lists(lists: list[list[Tensor]]) -> list[list[Tensor]]:
    """Return the lists with this rank's shards instead of DTensors."""
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
    if type(local) not in _PLAIN and hasattr(local, "wait"):
        local = local.wait()  # what is still on its way has no memory that a kernel can read
    return local


def _share(sums: Sums, local: list[Tensor], params: list[Tensor]) -> Tensor:
    """Return the rows of the message; means are weighted by the share of local elements."""
    rows = torch.stack((*sums, torch.ones_like(sums.residual)), dim=1)
    held = on_device([x.numel() for x in local], rows.device)
    whole = on_device([max(p.numel(), 1) for p in params], rows.device)
    rows[:, :2] *= (held.to(rows.dtype) / whole.to(rows.dtype))[:, None]
    return rows
