"""The base of our optimizers: checks of arguments, and a step that takes one tensor at a time."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

Options = dict[str, Any]  # of a parameter group, or the state of a tensor


def require_at_least(name: str, value: float, low: float) -> None:
    """Raise ValueError if `value` is below `low` or NaN."""
    if not value >= low:
        raise ValueError(f"{name} must be at least {low:g}, got {value}")


def require_betas(name: str, betas: tuple[float, float]) -> None:
    """Raise ValueError unless both decay rates are in [0, 1)."""
    if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
        raise ValueError(f"{name} must be two numbers in [0, 1), got {betas}")


def adamw_update(
    param: Tensor,
    moments: tuple[Tensor, Tensor],
    corrections: tuple[float, float],
    group: Options,
    *,
    lr: float | None = None,
    weight_decay: float | None = None,
) -> None:
    """Move a tensor as AdamW does; ``lr`` and ``weight_decay`` are those of the group if None.

    ``corrections`` are what the two moments are divided by because they started at zero.
    """
    lr = group["lr"] if lr is None else lr
    decay = group["weight_decay"] if weight_decay is None else weight_decay
    scale = (moments[1].sqrt() / math.sqrt(corrections[1])).add_(group["eps"])
    param.mul_(1 - lr * decay)
    param.addcdiv_(moments[0], scale, value=-lr / corrections[0])


class StepwiseOptimizer(Optimizer):
    """An optimizer of dense, real tensors that updates one after the other.

    A subclass keeps more than Adam's moments of a tensor by `new_state`, and steps by `update`.

    Args:
        params: Tensors or parameter groups.
        defaults: The options of a group; `betas` and those that every optimizer has are checked.
    """

    def __init__(self, params: Any, defaults: Options) -> None:
        for name in ("lr", "eps", "weight_decay"):
            require_at_least(name, defaults.get(name, 0.0), 0.0)
        require_betas("betas", defaults["betas"])
        super().__init__(params, defaults)

    def new_state(self, param: Tensor, group: Options) -> Options:  # noqa: ARG002
        """Return the state of a tensor before its first step."""
        zeros = torch.zeros_like
        return {"step": 0, "exp_avg": zeros(param), "exp_avg_sq": zeros(param)}

    @abstractmethod
    def update(self, param: Tensor, grad: Tensor, state: Options, group: Options) -> None:
        """Take one step on one tensor; `state["step"]` counts it already."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; `closure` computes the loss and its gradients first, if given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for param in group["params"]:
                if (grad := param.grad) is None:
                    continue
                if grad.is_sparse or param.is_complex():
                    problem = "sparse gradients" if grad.is_sparse else "complex parameters"
                    name = type(self).__name__
                    raise RuntimeError(f"{name} takes dense, real tensors; it cannot use {problem}")
                state = self.state[param]
                if not state:
                    state.update(self.new_state(param, group))
                state["step"] += 1
                self.update(param, grad, state, group)
        return loss
