"""Who is timed: each contender builds an optimizer over a model, or says why it cannot.

All share the learning rate and the weight decay, and otherwise take the settings this project uses
them with.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

LR = 1e-3
WEIGHT_DECAY = 1e-4
YARDSTICK = "adamw-fused"  # measured beside everything; ratios are against it

StepOf = Callable[[nn.Module, Tensor | None], "Stepper"]


class NotAvailableError(Exception):
    """A contender cannot run here; the message says why."""


@dataclass(frozen=True)
class Stepper:
    """An optimizer and what the training loop calls once a batch."""

    optimizer: Optimizer
    step: Callable[[], Any]
    period: int = 1  # steps after which its work repeats: Sophia does more in one of ten


@dataclass(frozen=True)
class Contender:
    """A row of the tables."""

    name: str
    label: str
    build: StepOf
    passes: int | None = None  # streams of float32 over memory per step, where it is known
    profiled: bool = False  # whether its steps are taken under torch.profiler


def _plain(cls: Callable[..., Optimizer], **options: Any) -> StepOf:
    def build(model: nn.Module, _: Tensor | None) -> Stepper:
        optimizer = cls(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY, **options)
        return Stepper(optimizer, optimizer.step)

    return build


def _from_project(name: str) -> StepOf:
    """Build an optimizer as the EEG benchmark does; what it does after a step is part of it."""

    def build(model: nn.Module, inputs: Tensor | None) -> Stepper:
        try:
            module = importlib.import_module("afor.bench.optimizers.build")
        except ImportError as error:
            raise NotAvailableError(f"afor.bench.optimizers: {error}") from error
        optimizer = module.build_optimizer(name, model, LR, WEIGHT_DECAY)
        after = getattr(optimizer, "after_step", None)
        if after is None or inputs is None:
            return Stepper(optimizer, optimizer.step)

        def step() -> None:
            optimizer.step()
            after(model, inputs)

        return Stepper(optimizer, step, optimizer.param_groups[0].get("interval", 1))

    return build


def _released(model: nn.Module, _: Tensor | None) -> Stepper:
    try:
        released = importlib.import_module("AFOR").afor
    except (ImportError, AttributeError) as error:
        raise NotAvailableError("pip install afor-optimizer==0.1.0") from error
    optimizer = released(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
    return Stepper(optimizer, optimizer.step)


def _afor(**options: Any) -> StepOf:
    def build(model: nn.Module, _: Tensor | None) -> Stepper:
        from afor import AFOR
        from afor.native.binding import unavailable_reason

        reason = unavailable_reason() if options.get("fused") else None
        if reason is not None:
            raise NotAvailableError(reason)
        optimizer = AFOR(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY, **options)
        return Stepper(optimizer, optimizer.step)

    return build


def _with_frozen(model: nn.Module, _: Tensor | None) -> Stepper:
    """One tensor is frozen, another has had a gradient and has none any more."""
    frozen, *_others = model.parameters()
    frozen.requires_grad_(requires_grad=False)
    unused = nn.Parameter(torch.zeros(8))
    unused.grad = torch.zeros(8)
    stepper = _afor_on([*model.parameters(), unused])
    stepper.step()
    unused.grad = None
    return stepper


def _with_bfloat16(model: nn.Module, _: Tensor | None) -> Stepper:
    half = nn.Parameter(torch.zeros(8, dtype=torch.bfloat16))
    half.grad = torch.ones_like(half)
    return _afor_on([*model.parameters(), half])


def _from_checkpoint(model: nn.Module, _: Tensor | None) -> Stepper:
    """Train a network in channels_last from the checkpoint of a contiguous one."""
    contiguous = [nn.Parameter(p.detach().clone()) for p in model.parameters()]
    for p in contiguous:
        p.grad = torch.ones_like(p)
    source = _afor_on(contiguous)
    source.step()
    for p in model.parameters():
        if p.ndim == 4:
            p.data = p.data.to(memory_format=torch.channels_last)
    stepper = _afor_on(list(model.parameters()))
    stepper.optimizer.load_state_dict(source.optimizer.state_dict())
    return stepper


def _afor_on(params: list[nn.Parameter]) -> Stepper:
    from afor import AFOR

    optimizer = AFOR(params, lr=LR, weight_decay=WEIGHT_DECAY)
    return Stepper(optimizer, optimizer.step)


def _sharded(cls: Callable[..., Optimizer], **options: Any) -> StepOf:
    """Step parameters as FSDP2 shards them, DTensors over a process group of this process alone."""

    def build(model: nn.Module, _: Tensor | None) -> Stepper:
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        if not dist.is_available() or not dist.is_gloo_available():
            raise NotAvailableError("torch.distributed with gloo is not in this torch")
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        mesh = init_device_mesh("cpu", (1,))
        params = [
            nn.Parameter(distribute_tensor(p.detach().clone(), mesh, [Shard(0)]))
            for p in model.parameters()
        ]
        for p in params:
            p.grad = 0.1 * p.detach()
        optimizer = cls(params, lr=LR, weight_decay=WEIGHT_DECAY, **options)
        return Stepper(optimizer, optimizer.step)

    return build


def _afor_sharded(model: nn.Module, inputs: Tensor | None) -> Stepper:
    from afor import AFOR

    return _sharded(AFOR)(model, inputs)


def _compiled(model: nn.Module, _: Tensor | None) -> Stepper:
    optimizer = _afor(foreach=True)(model, None).optimizer
    compiled = torch.compile(optimizer.step)

    def step() -> None:
        try:
            compiled()
        except torch._dynamo.exc.TorchDynamoException as error:
            raise NotAvailableError(f"torch.compile: {str(error).splitlines()[0]}") from error

    return Stepper(optimizer, step)


_ADAM, _ADAMW = torch.optim.Adam, torch.optim.AdamW
CONTENDERS = {
    c.name: c
    for c in (
        Contender("adam", "torch Adam", _plain(_ADAM)),
        Contender("adam-foreach", "torch Adam foreach", _plain(_ADAM, foreach=True)),
        Contender("adam-fused", "torch Adam fused", _plain(_ADAM, fused=True), 7),
        Contender("adamw", "torch AdamW", _plain(_ADAMW)),
        Contender("adamw-foreach", "torch AdamW foreach", _plain(_ADAMW, foreach=True)),
        Contender("adamw-fused", "torch AdamW fused", _plain(_ADAMW, fused=True), 7),
        Contender("adamw-sharded", "torch AdamW foreach, sharded", _sharded(_ADAMW, foreach=True)),
        Contender("radam", "torch RAdam", _plain(torch.optim.RAdam)),
        Contender("adamp", "AdamP", _from_project("adamp")),
        Contender("sophia", "Sophia", _from_project("sophia")),
        Contender("mars", "MARS", _from_project("mars")),
        Contender("released", "afor-optimizer 0.1.0", _released),
        Contender("afor-loop", "AFOR for-loop", _afor(foreach=False, fused=False)),
        Contender("afor-foreach", "AFOR foreach", _afor(foreach=True)),
        Contender("afor-compiled", "AFOR compiled", _compiled),
        Contender("afor-fused", "AFOR fused", _afor(fused=True), 9),
        Contender("afor-constant", "AFOR, constant β₂", _afor(fused=True, beta2_min=0.999), 7),
        Contender("afor-frozen", "AFOR, frozen and unused tensors", _with_frozen),
        Contender("afor-bfloat16", "AFOR, one tensor in bfloat16", _with_bfloat16),
        Contender("afor-checkpoint", "AFOR, channels_last from a checkpoint", _from_checkpoint),
        Contender("afor-sharded", "AFOR, sharded (FSDP2)", _afor_sharded),
        Contender("afor-profiled", "AFOR under torch.profiler", _afor(fused=True), profiled=True),
    )
}


def state_bytes(optimizer: Optimizer) -> int:
    """Return the bytes of all tensors the optimizer keeps, a Python number counting eight."""
    total = 0
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                total += value.numel() * value.element_size()
            elif isinstance(value, int | float):
                total += 8
    return total
