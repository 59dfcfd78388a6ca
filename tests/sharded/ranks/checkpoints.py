"""Scenarios of saving and loading, also into another number of ranks."""

import copy
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    get_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from training import network, optimizer_of, train, whole

from afor import AFOR

SETTLED = 12  # where the checkpoint is taken, past the warm-up
LENGTH = 18  # of the runs that are continued


def sharded_network(dtype: torch.dtype) -> tuple[nn.Module, AFOR]:
    model = network(dtype)
    fully_shard(model)
    model.set_force_sum_reduction_for_comms(True)  # gloo of torch 2.8 adds, asked for the mean
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
