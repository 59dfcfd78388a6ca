"""What the ranks train, and how two runs are compared."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from afor import AFOR
from afor.control import FIELDS

SAMPLES = 12


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
    x = torch.randn(SAMPLES, 5, generator=generator, dtype=dtype)
    noise = torch.randn(SAMPLES, 1, generator=generator, dtype=dtype)
    return x, x[:, :1] * x[:, 1:2] + 0.1 * noise


def loss_of(model: nn.Module, step: int, dtype: torch.dtype, part: slice) -> Tensor:
    x, y = batch(step, dtype)
    loss: Tensor = (model(x[part]) - y[part]).square().mean()
    return loss


def train(
    model: nn.Module,
    optimizer: AFOR,
    dtype: torch.dtype,
    steps: range,
    part: slice = slice(None),
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


def share(rank: int, world: int) -> slice:
    """Return which samples of a batch a rank takes."""
    size = SAMPLES // world
    return slice(rank * size, (rank + 1) * size)
