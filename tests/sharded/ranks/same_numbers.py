"""Scenarios in which several ranks must find the numbers of one."""

import math
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from training import CollectiveCount, differences, network, optimizer_of, share, train

from afor import AFOR
from afor.native.binding import unavailable_reason

STEPS = range(16)  # past the warm-up; a sharded step of torch takes milliseconds


def compared(model: nn.Module, alone: nn.Module, dtype: torch.dtype, part: slice) -> dict[str, Any]:
    """Train both, the sharded one on its part of each batch, and compare them."""
    for module in model.modules():
        if isinstance(module, FSDPModule):  # gloo of torch 2.8 adds gradients, asked for their mean
            module.set_force_sum_reduction_for_comms(True)
    optimizer, other = optimizer_of(model), optimizer_of(alone)
    counts = train(model, optimizer, dtype, STEPS, part)
    train(alone, other, dtype, STEPS)
    row = differences(model, optimizer, alone, other)
    smallest = min(p.to_local().numel() for p in model.parameters() if isinstance(p, DTensor))
    return {**row, "counts": sorted(set(counts)), "smallest_shard": smallest}


def fsdp(rank: int, world: int, _: Path) -> Any:
    """FSDP2, every rank on its part of the batch."""
    results = {}
    for dtype in (torch.float64, torch.float32):
        alone, model = network(dtype), network(dtype)
        if dtype == torch.float64:
            fully_shard(model[0])
        fully_shard(model)
        results[str(dtype)] = compared(model, alone, dtype, share(rank, world))
    return results


def hybrid(rank: int, world: int, _: Path) -> Any:
    """FSDP2 on a replicated x sharded mesh."""
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    results = {}
    for dtype in (torch.float64, torch.float32):
        alone, model = network(dtype), network(dtype)
        for layer in (model[0], model[4]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        results[str(dtype)] = compared(model, alone, dtype, share(rank, world))
    return results


def tensor_parallel(rank: int, world: int, _: Path) -> Any:
    """A tensor-parallel plan on all ranks, each with the whole batch."""
    mesh = init_device_mesh("cpu", (world,))
    results = {}
    for dtype in (torch.float64, torch.float32):
        alone, model = planned(mesh, dtype)
        results[str(dtype)] = compared(model, alone, dtype, slice(None))
    return results


def tensor_parallel_within_fsdp(rank: int, world: int, _: Path) -> Any:
    """A tensor-parallel plan on half of the ranks, FSDP2 over the other dimension."""
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("data", "model"))
    alone, model = planned(mesh["model"], torch.float64)
    fully_shard(model, mesh=mesh["data"])
    return compared(model, alone, torch.float64, share(rank // (world // 2), 2))


def planned(mesh: DeviceMesh, dtype: torch.dtype) -> tuple[nn.Module, nn.Module]:
    """Return a network and the same under a tensor-parallel plan."""
    # An even width: the plans of torch take no other.
    alone, model = network(dtype, width=8), network(dtype, width=8)
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return alone, model


def replicas(rank: int, world: int, _: Path) -> Any:
    """DDP on two or, of four ranks, three: every rank ends with the same bits."""
    members = min(world, 3)
    group = dist.new_group(list(range(members)))
    if rank >= members:
        return None
    dtype = torch.float32
    model = DistributedDataParallel(network(dtype), process_group=group)
    optimizer = optimizer_of(model)
    counts = train(model, optimizer, dtype, STEPS, share(rank, members))
    mine = [*model.parameters(), *(s["control"] for s in optimizer.state.values())]
    flat = torch.cat([t.detach().flatten() for t in mine])
    everyone = [torch.empty_like(flat) for _ in range(members)]
    dist.all_gather(everyone, flat, group=group)
    return {"same": all(torch.equal(flat, x) for x in everyone), "counts": sorted(set(counts))}


def zero_redundancy(rank: int, world: int, _: Path) -> Any:
    """ZeRO stage 1: each rank steps some of the tensors, whole."""
    dtype = torch.float32
    alone, model = network(dtype), network(dtype)
    other = AFOR(alone.parameters(), lr=1e-2)
    optimizer: Any = ZeroRedundancyOptimizer(model.parameters(), AFOR, lr=1e-2)
    train(alone, other, dtype, steps=range(10))
    train(model, optimizer, dtype, steps=range(10))
    pairs = zip(model.parameters(), alone.parameters(), strict=True)
    return {"same": all(torch.equal(p, q) for p, q in pairs)}


def distributed_tensors(rank: int, world: int, _: Path) -> Any:
    """Parameters cut along any dimension or not at all, beside plain ones."""
    mesh = init_device_mesh("cpu", (world,))
    shapes = [(3, 5), (5, 4), (2, 3, 3), (4,), (1, 6), (3,)]
    placements = [Shard(1), Shard(0), Shard(2), Replicate(), Shard(0), None]
    torch.manual_seed(2)
    start = [torch.randn(shape, dtype=torch.float64) for shape in shapes]

    def cut(x: Tensor, i: int) -> Tensor:
        placement = placements[i]
        x = x.clone()  # a replicated DTensor would share its memory
        if placement is None:
            return x
        return distribute_tensor(x, mesh, [placement], src_data_rank=None)  # all ranks have it

    lr = torch.tensor(1e-2, dtype=torch.float64)
    options: dict[str, Any] = {"lr": lr, "maximize": True, "warmup_steps": 10}
    theirs = [nn.Parameter(x.clone()) for x in start]
    other = AFOR(theirs, foreach=False, **options)
    kinds = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    if unavailable_reason() is not None:
        del kinds["fused"]
    ours = {kind: [nn.Parameter(cut(x, i)) for i, x in enumerate(start)] for kind in kinds}
    optimizers = {kind: AFOR(ours[kind], **kinds[kind], **options) for kind in kinds}
    sizes = set()
    for step in range(40):
        for i, q in enumerate(theirs):
            q.grad = torch.randn_like(q) + 0.5 * i * math.sin(step / 9)
        other.step()
        for kind in kinds:
            for i, (p, q) in enumerate(zip(ours[kind], theirs, strict=True)):
                assert q.grad is not None
                p.grad = cut(q.grad, i)
            with CollectiveCount() as count:
                optimizers[kind].step()
            sizes.add(tuple(count.sizes))
    results: dict[str, Any] = {"sizes": [list(s) for s in sizes]}
    for kind in kinds:
        models = nn.ParameterList(ours[kind]), nn.ParameterList(theirs)
        results[kind] = differences(models[0], optimizers[kind], models[1], other)
    return results


def partial_gradient(rank: int, world: int, _: Path) -> Any:
    """A gradient that is still to be added up, as tensor-parallel layers may leave it."""
    mesh = init_device_mesh("cpu", (world,))
    p = nn.Parameter(distribute_tensor(torch.ones(4, dtype=torch.float64), mesh, [Replicate()]))
    q = nn.Parameter(torch.ones(4, dtype=torch.float64))
    optimizer, other = AFOR([p]), AFOR([q])
    for step in range(5):
        g = torch.arange(4, dtype=torch.float64) + step
        p.grad = DTensor.from_local(g / world, mesh, [Partial()], run_check=False)
        q.grad = g
        optimizer.step()
        other.step()
    return differences(nn.ParameterList([p]), optimizer, nn.ParameterList([q]), other)


def scaled(rank: int, world: int, _: Path) -> Any:
    """GradScaler hands its scale to a fused step, and skips one with an infinite gradient."""
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(4)
    start = [torch.randn(5, 3), torch.randn(4).bfloat16()]  # the kernel takes the first one

    def optimizer_of(params: list[nn.Parameter]) -> AFOR:
        return AFOR(params, lr=1e-2, fused=True, warmup_steps=3, half_moments="parameter")

    ours = [nn.Parameter(distribute_tensor(x.clone(), mesh, [Shard(0)])) for x in start]
    theirs = [nn.Parameter(x.clone()) for x in start]
    optimizer, other = optimizer_of(ours), optimizer_of(theirs)
    scalers = [torch.amp.GradScaler("cpu", init_scale=256.0) for _ in range(2)]
    collectives = []
    for step in range(8):
        grads = [torch.randn_like(x) for x in start]
        if step == 5:
            grads[0][-1] = math.inf  # on the last rank
        for p, q, grad in zip(ours, theirs, grads, strict=True):
            # The scale of the loss reaches the gradients by the backward pass.
            q.grad = scalers[1].scale(grad)
            p.grad = distribute_tensor(scalers[0].scale(grad), mesh, [Shard(0)])
        with CollectiveCount() as count:
            scalers[0].step(optimizer)
        collectives.append(count.sizes.count(len(start) * 6))
        scalers[1].step(other)
        for scaler in scalers:
            scaler.update()
    found = differences(nn.ParameterList(ours), optimizer, nn.ParameterList(theirs), other)
    steps = [optimizer.state[p]["step"].item() for p in ours]
    return {**found, "steps": steps, "messages": collectives}


def non_finite(rank: int, world: int, _: Path) -> Any:
    """A gradient that is not finite on one rank leaves the control alone on all of them."""
    mesh = init_device_mesh("cpu", (world,))
    p = nn.Parameter(distribute_tensor(torch.ones(6), mesh, [Shard(0)]))
    optimizer = AFOR([p])
    p.grad = distribute_tensor(torch.arange(6.0), mesh, [Shard(0)])
    optimizer.step()
    before = optimizer.state[p]["control"].clone()
    p.grad = distribute_tensor(torch.tensor([1.0, 2, 3, 4, 5, float("nan")]), mesh, [Shard(0)])
    optimizer.step()
    after = optimizer.state[p]["control"]
    return {
        "held": torch.equal(before[:7], after[:7]),
        "finite": bool(after.isfinite().all()),
        "local_finite": bool(p.to_local().isfinite().all()),
    }
