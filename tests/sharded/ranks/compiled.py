"""Scenarios in which the step itself is compiled."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from training import differences

from afor import AFOR


def compiled_step(rank: int, world: int, _: Path, backend: str = "aot_eager") -> Any:
    """A compiled step: the numbers of one that is not, and the same refusal of odd gradients."""
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(3)
    start = [torch.randn(shape, dtype=torch.float64) for shape in ((5, 4), (3,))]
    ours = [nn.Parameter(distribute_tensor(x.clone(), mesh, [Shard(0)])) for x in start]
    theirs = [nn.Parameter(x.clone()) for x in start]
    optimizer = AFOR(ours, lr=1e-2, warmup_steps=3)
    other = AFOR(theirs, lr=1e-2, warmup_steps=3)
    step = torch.compile(optimizer.step, backend=backend, fullgraph=True)
    for _step in range(8):
        for p, q in zip(ours, theirs, strict=True):
            q.grad = torch.randn_like(q)
            p.grad = distribute_tensor(q.grad.clone(), mesh, [Shard(0)])
        step()
        other.step()
    found = differences(nn.ParameterList(ours), optimizer, nn.ParameterList(theirs), other)
    if rank == world - 1:
        ours[0].grad = None
    try:
        step()
    except RuntimeError as error:
        found["message"] = str(error)
    return found


def compiled_step_by_inductor(rank: int, world: int, folder: Path) -> Any:
    return compiled_step(rank, world, folder, backend="inductor")
