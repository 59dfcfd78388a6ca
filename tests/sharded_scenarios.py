"""What the ranks of test_sharded.py do.

Run as `python sharded_scenarios.py RANK WORLD FOLDER STEPS NAME...`. Each rank runs the named
scenarios one after another in one process group and writes what they return, or the traceback, to
FOLDER/RANK.json.
"""

import copy
import json
import math
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    get_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from afor import AFOR
from afor.control import FIELDS

STEPS = int(sys.argv[4])
SETTLED = 25  # where the checkpoint is taken
LENGTH = 35  # of the runs that are continued


class CollectiveCount(TorchDispatchMode):
    """Counts the collectives, and how many numbers they send."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in ("c10d", "_c10d_functional"):
            sent = args[0] if isinstance(args[0], Tensor) else args[0][0]
            self.sizes.append(sent.numel())
        return func(*args, **(kwargs or {}))


# --------------------------------------------------------------------------- what is trained


def network(dtype: torch.dtype, width: int = 7) -> nn.Sequential:
    """Return layers that two or four ranks cut unevenly, the last one a single row."""
    torch.manual_seed(0)
    first, second = nn.Linear(5, width), nn.Linear(width, 6)
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Linear(6, 1)).to(dtype)


def optimizer_of(model: nn.Module, **options: Any) -> AFOR:
    """Return AFOR with two groups, as everyone has: matrices decay, vectors do not."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 1e-2}, {"params": vectors, "lr": 2e-3}]
    return AFOR(groups, lr=1e-2, warmup_steps=10, **options)


def batch(step: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 + step)
    x = torch.randn(12, 5, generator=generator, dtype=dtype)
    noise = torch.randn(12, 1, generator=generator, dtype=dtype)
    return x, x[:, :1] * x[:, 1:2] + 0.1 * noise


def loss_of(model: nn.Module, step: int, dtype: torch.dtype, part: slice) -> Tensor:
    x, y = batch(step, dtype)
    loss: Tensor = (model(x[part]) - y[part]).square().mean()
    return loss


def train(
    model: nn.Module,
    optimizer: AFOR,
    dtype: torch.dtype,
    part: slice = slice(None),
    steps: range = range(STEPS),
) -> list[int]:
    """Train, and return how many collectives each call of step took."""
    counts = []
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, step, dtype, part).backward()
        with CollectiveCount() as count:
            optimizer.step()
        counts.append(len(count.sizes))
    return counts


def whole(x: Tensor) -> Tensor:
    return x.full_tensor() if isinstance(x, DTensor) else x


def differences(model: nn.Module, optimizer: AFOR, alone: nn.Module, other: AFOR) -> dict[str, Any]:
    """Compare with the run on whole tensors: the largest relative difference of each kind."""
    kinds = ("param", "exp_avg_sq", "control", "score", "forgetting")
    result: dict[str, Any] = dict.fromkeys(kinds, 0.0)

    def note(name: str, a: Tensor, b: Tensor) -> None:
        a, b = whole(a).detach().double(), whole(b).detach().double()
        assert a.shape == b.shape
        difference = (a - b).abs().max() / b.abs().max().clamp_min(1e-12)
        result[name] = max(result[name], difference.item())

    for p, q in zip(model.parameters(), alone.parameters(), strict=True):
        ours, theirs = optimizer.state[p], other.state[q]
        assert type(ours["control"]) is Tensor
        assert ours["control"].dtype == theirs["control"].dtype
        note("param", p, q)
        note("exp_avg_sq", ours["exp_avg_sq"], theirs["exp_avg_sq"])
        note("control", ours["control"], theirs["control"])
        for name in ("score", "forgetting"):
            note(name, ours["control"][FIELDS.index(name)], theirs["control"][FIELDS.index(name)])
        assert ours["step"] == theirs["step"]
    forgetting = [
        optimizer.state[p]["control"][FIELDS.index("forgetting")].item() for p in model.parameters()
    ]
    result["spread"] = max(forgetting) - min(forgetting)  # the tensors do differ
    return result


def halves(rank: int, world: int) -> slice:
    size = 12 // world
    return slice(rank * size, (rank + 1) * size)


# ---------------------------------------------------------------------------------- scenarios


def fsdp(rank: int, world: int, _: Path) -> Any:
    """FSDP2, every rank on its part of the batch."""
    results = {}
    for dtype in (torch.float64, torch.float32):
        alone, model = network(dtype), network(dtype)
        if dtype == torch.float64:
            fully_shard(model[0])
        fully_shard(model)
        optimizer, other = optimizer_of(model), optimizer_of(alone)
        counts = train(model, optimizer, dtype, halves(rank, world))
        train(alone, other, dtype)
        row = differences(model, optimizer, alone, other)
        row["counts"] = sorted(set(counts))
        row["smallest_shard"] = min(p.to_local().numel() for p in model.parameters())
        results[str(dtype)] = row
    return results


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
        return x if placement is None else distribute_tensor(x, mesh, [placement])

    lr = torch.tensor(1e-2, dtype=torch.float64)
    options: dict[str, Any] = {"lr": lr, "maximize": True, "warmup_steps": 10}
    theirs = [nn.Parameter(x.clone()) for x in start]
    other = AFOR(theirs, foreach=False, **options)
    kinds = {"for-loop": False, "foreach": True}
    ours = {kind: [nn.Parameter(cut(x, i)) for i, x in enumerate(start)] for kind in kinds}
    optimizers = {kind: AFOR(ours[kind], foreach=kinds[kind], **options) for kind in kinds}
    sizes = set()
    for step in range(STEPS):
        for i, q in enumerate(theirs):
            q.grad = torch.randn_like(q) + 0.1 * i * math.sin(step / 9)
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


def refused(rank: int, world: int, _: Path) -> Any:
    """What cannot work says so."""
    mesh = init_device_mesh("cpu", (world,))
    messages = {}

    refused_values = {"fused": True, "differentiable": True, "variant": "released"}
    for name, value in refused_values.items():
        p = nn.Parameter(distribute_tensor(torch.ones(4), mesh, [Shard(0)]))
        try:
            AFOR([p], **{name: value})  # type: ignore[arg-type]
        except RuntimeError as error:
            messages[name] = str(error)

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


def hybrid(rank: int, world: int, _: Path) -> Any:
    """FSDP2 on a replicated x sharded mesh."""
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    dtype = torch.float64
    alone, model = network(dtype), network(dtype)
    for layer in (model[0], model[4]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer, other = optimizer_of(model), optimizer_of(alone)
    counts = train(model, optimizer, dtype, halves(rank, world))
    train(alone, other, dtype)
    return {**differences(model, optimizer, alone, other), "counts": sorted(set(counts))}


def tensor_parallel(rank: int, world: int, _: Path) -> Any:
    """A tensor-parallel plan, alone and within FSDP2."""
    results = {}
    dtype = torch.float64
    for name, shape in (("alone", (1, world)), ("with fsdp", (2, world // 2))):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "model"))
        # An even width: the plans of torch take no other.
        alone, model = network(dtype, width=8), network(dtype, width=8)
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(model, mesh["model"], plan)
        if shape[0] > 1:
            fully_shard(model, mesh=mesh["data"])
        optimizer, other = optimizer_of(model), optimizer_of(alone)
        part = halves(rank // shape[1], shape[0])
        counts = train(model, optimizer, dtype, part)
        train(alone, other, dtype)
        row = differences(model, optimizer, alone, other)
        results[name] = {**row, "counts": sorted(set(counts))}
    return results


def replicas(rank: int, world: int, _: Path) -> Any:
    """DDP on two or, of four ranks, three: every rank ends with the same bits."""
    members = min(world, 3)
    group = dist.new_group(list(range(members)))
    if rank >= members:
        return None
    dtype = torch.float32
    model = DistributedDataParallel(network(dtype), process_group=group)
    optimizer = optimizer_of(model)
    counts = train(model, optimizer, dtype, halves(rank, members))
    mine = [*model.parameters(), *(s["control"] for s in optimizer.state.values())]
    flat = torch.cat([t.detach().flatten() for t in mine])
    everyone = [torch.empty_like(flat) for _ in range(members)]
    dist.all_gather(everyone, flat, group=group)
    return {"same": all(torch.equal(flat, x) for x in everyone), "counts": sorted(set(counts))}


# --------------------------------------------------------------------------------- checkpoints


def sharded_network(dtype: torch.dtype) -> tuple[nn.Module, AFOR]:
    model = network(dtype)
    fully_shard(model)
    return model, optimizer_of(model)


def _forget(state: dict[str, Any]) -> None:
    """Overwrite every tensor, so that a load that does nothing is seen."""
    for s in state.values():
        for value in s.values():
            whole_or_local = value.to_local() if isinstance(value, DTensor) else value
            whole_or_local.fill_(7)


def save(rank: int, world: int, folder: Path) -> Any:
    """Write a checkpoint; go on; restore it in the same number of ranks and go on again."""
    dtype = torch.float32
    model, optimizer = sharded_network(dtype)
    train(model, optimizer, dtype, steps=range(SETTLED))
    names = {"model": {}, "optim": {}}
    names["model"], names["optim"] = get_state_dict(model, optimizer)
    kept = copy.deepcopy(get_optimizer_state_dict(model, optimizer))
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    full = get_optimizer_state_dict(model, optimizer, options=options)
    dcp.save(names, checkpoint_id=folder / "checkpoint")
    if rank == 0:
        torch.save(full, folder / "full.pt")
    train(model, optimizer, dtype, steps=range(SETTLED, LENGTH))
    ended = [whole(p.detach()) for p in model.parameters()]
    if rank == 0:
        torch.save(ended, folder / "ended.pt")
    second, restored = _restored(folder, dtype)
    train(second, restored, dtype, steps=range(SETTLED, LENGTH))
    again = [whole(p.detach()) for p in second.parameters()]
    set_optimizer_state_dict(second, restored, kept)
    controls = [s["control"] for s in restored.state.values()]
    saved = [s["control"] for s in kept["state"].values()]
    return {
        "same": all(torch.equal(a, b) for a, b in zip(ended, again, strict=True)),
        "set": sorted(map(torch.Tensor.tolist, controls))
        == sorted(map(torch.Tensor.tolist, saved)),
        "types": sorted({type(s["exp_avg"]).__name__ for s in restored.state.values()}),
    }


def _restored(folder: Path, dtype: torch.dtype, *, fresh: bool = False) -> tuple[nn.Module, AFOR]:
    """Load the checkpoint into an optimizer that has taken no step, or into a used one."""
    model, optimizer = sharded_network(dtype)
    if not fresh:
        train(model, optimizer, dtype, steps=range(1))
        _forget(optimizer.state)
    names = dict(zip(("model", "optim"), get_state_dict(model, optimizer), strict=True))
    dcp.load(names, checkpoint_id=folder / "checkpoint")
    set_state_dict(
        model, optimizer, model_state_dict=names["model"], optim_state_dict=names["optim"]
    )
    return model, optimizer


def load(rank: int, world: int, folder: Path) -> Any:
    """Restore the checkpoint in another number of ranks and go on."""
    dtype = torch.float32
    ended = torch.load(folder / "ended.pt")
    differences = []
    for full in (False, True):
        model, optimizer = _restored(folder, dtype, fresh=not full)
        if full:
            _forget(optimizer.state)
            options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
            state = torch.load(folder / "full.pt") if rank == 0 else {}
            set_optimizer_state_dict(model, optimizer, state, options=options)
        steps = {s["step"].item() for s in optimizer.state.values()}
        train(model, optimizer, dtype, steps=range(SETTLED, LENGTH))
        pairs = zip(model.parameters(), ended, strict=True)
        differences.append(max((whole(p.detach()) - q).abs().max().item() for p, q in pairs))
        dtypes = {str(s["control"].dtype) for s in optimizer.state.values()}
    return {"steps": sorted(steps), "differences": differences, "dtypes": sorted(dtypes)}


def plain_state(rank: int, world: int, _: Path) -> Any:
    """A state dict of whole tensors goes into sharded parameters and back, control in float32."""
    dtype = torch.bfloat16
    alone, model = network(dtype), network(dtype)
    other = optimizer_of(alone)
    train(alone, other, dtype, steps=range(5))
    fully_shard(model)
    optimizer = optimizer_of(model)
    optimizer.load_state_dict(other.state_dict())
    back = optimizer_of(copy.deepcopy(alone))
    back.load_state_dict(optimizer.state_dict())
    same = True
    for p, q, r in zip(
        optimizer.state.values(), other.state.values(), back.state.values(), strict=True
    ):
        for name in q:
            same &= torch.equal(whole(p[name]), q[name]) and torch.equal(r[name], q[name])
            same &= p[name].dtype == q[name].dtype == torch.float32
        same &= type(p["exp_avg"]) is DTensor and type(r["exp_avg"]) is Tensor
    train(model, optimizer, dtype, steps=range(5, 7))
    return {"same": same}


def destroyed(rank: int, world: int, _: Path) -> Any:
    """Steps after the process group has gone; the last scenario of all."""
    messages = {}
    mesh = init_device_mesh("cpu", (world,))
    alone = [dist.new_group([r]) for r in range(world)][rank]
    group = dist.new_group(list(range(world)))
    square = DeviceMesh.from_group(
        [alone, group], "cpu", mesh=[list(range(world))], mesh_dim_names=("one", "all")
    )
    for name, used in (("group", square), ("everything", mesh)):
        placements = [Replicate()] * (used.ndim - 1) + [Shard(0)]
        p = nn.Parameter(distribute_tensor(torch.ones(4), used, placements))
        p.grad = torch.ones_like(p)
        optimizer = AFOR([p])
        optimizer.step()
        before = optimizer.state[p]["exp_avg"].to_local().clone()
        dist.barrier()
        dist.destroy_process_group(group if name == "group" else None)
        try:
            optimizer.step()
        except RuntimeError as error:
            messages[name] = str(error)
        assert torch.equal(before, optimizer.state[p]["exp_avg"].to_local())
    return messages


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world
    )
    results = {}
    for name in sys.argv[5:]:
        began = time.perf_counter()
        try:
            results[name] = {"value": globals()[name](rank, world, folder.parent)}
        except Exception:  # noqa: BLE001 - the test shows it, and the other scenarios go on
            results[name] = {"error": traceback.format_exc()}
        if rank == 0:
            found = results[name].get("value", "failed")
            print(f"{name}, {time.perf_counter() - began:.1f} s: {found}")
    (folder / f"{rank}.json").write_text(json.dumps(results))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
