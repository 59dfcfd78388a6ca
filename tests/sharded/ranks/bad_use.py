"""Scenarios in which AFOR must say what is wrong, on every rank."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from training import CollectiveCount

from afor import AFOR


def refused(rank: int, world: int, _: Path) -> Any:
    """What cannot work says so."""
    mesh = init_device_mesh("cpu", (world,))
    messages = {}

    p = nn.Parameter(distribute_tensor(torch.ones(4), mesh, [Shard(0)]))
    try:
        AFOR([p], differentiable=True)
    except RuntimeError as error:
        messages["differentiable"] = str(error)

    whole_moment = nn.Parameter(distribute_tensor(torch.ones(4), mesh, [Shard(0)]))
    parts = nn.Parameter(DTensor.from_local(torch.ones(4), mesh, [Partial()], run_check=False))
    for name, p in (("moment", whole_moment), ("partial", parts)):
        p.grad = torch.ones_like(p)
        optimizer = AFOR([p])
        try:
            if name == "moment":
                optimizer.step()
                optimizer.state[p]["exp_avg"] = torch.zeros(4)
            optimizer.step()
        except RuntimeError as error:
            messages[name] = str(error)
    try:
        whole_moment.grad = torch.ones(4)
        AFOR([whole_moment]).step()
    except (RuntimeError, TypeError) as error:
        messages["gradient"] = str(error)
    return messages


def missing_gradient(rank: int, world: int, _: Path) -> Any:
    """Gradients that some ranks have and others do not; on four ranks of tensors cut twice."""
    shape = (2, world // 2) if world > 2 else (world,)
    mesh = init_device_mesh("cpu", shape)
    placements = [Shard(dim) for dim in range(len(shape))]

    names = ("first", "second", "third")
    ones = torch.ones(4, 6, dtype=torch.float64)
    params = [nn.Parameter(distribute_tensor(ones, mesh, placements)) for _ in names]
    beside = nn.Parameter(torch.ones(3))  # plain
    named = [*zip(names, params, strict=True), ("beside", beside)]
    optimizer = AFOR(named, lr=1e-2)

    def give(*given: int) -> None:
        for i, p in enumerate(params):
            p.grad = torch.full_like(p, 1.0 + i) if i in given else None
        beside.grad = torch.ones(3)

    def attempt() -> dict[str, Any]:
        before = [p.detach().clone() for p in (*params, beside)]
        message = ""
        with CollectiveCount() as count:
            try:
                optimizer.step()
            except RuntimeError as error:
                message = str(error)
        after = [p.detach() for p in (*params, beside)]
        kept = [_same(a, b) for a, b in zip(before, after, strict=True)]
        return {"message": message, "kept": kept, "sizes": count.sizes}

    odd = rank == world - 1
    found = {}
    give(0, 1)
    found["agreed"] = attempt()  # on all ranks two of three
    give(*((1,) if odd else (0, 1)))
    found["one"] = attempt()
    give(*(() if odd else (0, 1)))
    found["all"] = attempt()
    give()
    found["none"] = attempt()
    give(0, 1)
    if odd:  # what the message advises
        params[0].grad = torch.zeros_like(params[0])
    found["zeros"] = attempt()
    found["untouched"] = not optimizer.state[params[2]]
    return found


def _same(a: Tensor, b: Tensor) -> bool:
    if isinstance(a, DTensor) and isinstance(b, DTensor):
        return torch.equal(a.to_local(), b.to_local())
    return torch.equal(a, b)


def destroyed(rank: int, world: int, _: Path) -> Any:
    """Steps after the process group has gone; the last scenario of all."""
    results = {}
    mesh = init_device_mesh("cpu", (world,))
    alone = [dist.new_group([r]) for r in range(world)][rank]
    group = dist.new_group(list(range(world)))
    square = DeviceMesh.from_group(
        [alone, group], "cpu", mesh=[list(range(world))], mesh_dim_names=("one", "all")
    )
    for name, used in (("group", square), ("everything", mesh)):
        placements = [Replicate()] * (used.ndim - 1) + [Shard(0)]
        p = nn.Parameter(distribute_tensor(torch.ones(4), used, placements))
        plain = nn.Parameter(torch.ones(4))
        optimizer = AFOR([{"params": [plain]}, {"params": [p]}])
        for x in (p, plain):
            x.grad = torch.ones_like(x)
        optimizer.step()
        states = [optimizer.state[plain], optimizer.state[p]]
        held = [plain, p, *(value for state in states for value in state.values())]
        before = [x.detach().clone() for x in held]
        dist.barrier()
        dist.destroy_process_group(group if name == "group" else None)
        try:
            optimizer.step()
        except RuntimeError as error:
            same = all(_same(x.detach(), y) for x, y in zip(held, before, strict=True))
            results[name] = {"message": str(error), "unchanged": same}
    return results


def lone_failure(rank: int, world: int, _: Path) -> Any:
    """The last rank fails, or skips the step, and the others do not."""
    mesh = init_device_mesh("cpu", (world,))
    found = {}
    for what in ("resized", "skipped"):
        p = nn.Parameter(distribute_tensor(torch.ones(6), mesh, [Shard(0)]))
        optimizer = AFOR([p], fused=True)
        p.grad = torch.ones_like(p)
        optimizer.step()
        odd = rank == world - 1
        if what == "resized" and odd:
            p.grad.to_local().untyped_storage().resize_(0)
        if what == "skipped":
            optimizer.grad_scale, optimizer.found_inf = torch.ones(()), torch.full((), float(odd))
        before, message = p.to_local().detach().clone(), ""
        try:
            optimizer.step()
        except RuntimeError as error:
            message = str(error)
        found[what] = {"message": message, "kept": torch.equal(before, p.to_local().detach())}
    return found
