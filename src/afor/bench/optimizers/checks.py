"""Checks of arguments and parameters that our optimizers share."""

from collections.abc import Callable, Iterable
from typing import Any

import torch


def require_at_least(name: str, value: float, low: float) -> None:
    """Raise ValueError if `value` is below `low` or NaN."""
    if not value >= low:
        raise ValueError(f"{name} must be at least {low:g}, got {value}")


def require_betas(name: str, betas: tuple[float, float]) -> None:
    """Raise ValueError unless both decay rates are in [0, 1)."""
    if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
        raise ValueError(f"{name} must be two numbers in [0, 1), got {betas}")


def call_closure(closure: Callable[[], Any] | None) -> Any:
    """Return the loss that `closure` computes, with gradients enabled; None without a closure."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def trainable(group: dict[str, Any], owner: str) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """Yield each parameter of a group that has a gradient, with the gradient."""
    for param in group["params"]:
        grad = param.grad
        if grad is None:
            continue
        if grad.is_sparse or param.is_complex():
            problem = "sparse gradients" if grad.is_sparse else "complex parameters"
            raise RuntimeError(f"{owner} takes dense, real tensors; it cannot use {problem}")
        yield param, grad
