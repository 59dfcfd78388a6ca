"""The base of our optimizers: checks of arguments, and a step that takes one tensor at a time."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer


def require_at_least(name: str, value: float, low: float) -> None:
    """Raise ValueError if `value` is below `low` or NaN."""
    if not value >= low:
        raise ValueError(f"{name} must be at least {low:g}, got {value}")


def require_betas(name: str, betas: tuple[float, float]) -> None:
    """Raise ValueError unless both decay rates are in [0, 1)."""
    if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
        raise ValueError(f"{name} must be two numbers in [0, 1), got {betas}")


class StepwiseOptimizer(Optimizer):
    """An optimizer of dense, real tensors that updates one after the other.

    A subclass keeps more than Adam's moments of a tensor by `new_state`, and steps by `update`.

    Args:
        params: Tensors or parameter groups.
        defaults: The options of a group; `betas` and those that every optimizer has are checked.
    """

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        for name in ("lr", "eps", "weight_decay"):
            require_at_least(name, defaults.get(name, 0.0), 0.0)
        require_betas("betas", defaults["betas"])
        super().__init__(params, defaults)

    def new_state(self, param: torch.Tensor, group: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return the state of a tensor before its first step."""
        return {
            "step": 0,
            "exp_avg": torch.zeros_like(param),
            "exp_avg_sq": torch.zeros_like(param),
        }

    @abstractmethod
    def update(
        self, param: torch.Tensor, grad: torch.Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
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
