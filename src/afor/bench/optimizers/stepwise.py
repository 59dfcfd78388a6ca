"""The base of our optimizers: checks of arguments, and a step that takes one tensor at a time."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor
from torch.optim import Optimizer

from afor.bench.common.errors import ConfigError
from afor.bench.common.parameter_checks import check_values

Options = dict[str, Any]  # of a parameter group, or the state of a tensor

# The annotation of an argument says which values it takes, as for the settings of networks.
AtLeastZero = Annotated[float, Field(ge=0)]
DecayRate = Annotated[float, Field(ge=0, lt=1)]
Steps = Annotated[int, Field(ge=1)]


def require_at_least(name: str, value: float, low: float) -> None:
    """Raise ValueError if `value` is below `low` or NaN."""
    if not value >= low:
        raise ValueError(f"{name} must be at least {low:g}, found {value}")


def require_betas(name: str, betas: tuple[float, float]) -> None:
    """Raise ValueError unless both decay rates are in [0, 1)."""
    if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
        raise ValueError(f"{name} must be two numbers in [0, 1), found {betas}")


def adamw_update(
    param: Tensor, moments: tuple[Tensor, Tensor], corrections: tuple[float, float], group: Options
) -> None:
    """Move a tensor as AdamW does.

    ``corrections`` are what the two moments are divided by because they started at zero.
    """
    scale = (moments[1].sqrt() / math.sqrt(corrections[1])).add_(group["eps"])
    param.mul_(1 - group["lr"] * group["weight_decay"])
    param.addcdiv_(moments[0], scale, value=-group["lr"] / corrections[0])


def adamw_step(param: Tensor, grad: Tensor, state: Options, group: Options) -> None:
    """Take a step of AdamW on one tensor."""
    beta1, beta2 = group["betas"]
    corrections = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
    adamw_update(param, moments(state, grad, beta1, beta2), corrections, group)


def moments(state: Options, grad: Tensor, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
    """Return the two moments m_t and v_t of a tensor, with a gradient taken in."""
    first = state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
    second = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    return first, second


class StepwiseOptimizer(Optimizer):
    """An optimizer of dense, real tensors that updates one after the other.

    A subclass keeps more than Adam's moments of a tensor by `new_state`, and steps by `update`.

    Args:
        params: Tensors or parameter groups.
        defaults: The options of a group. They are checked against the annotations of the subclass's
            constructor, those that all optimizers share also against their range.

    Raises:
        ValueError: A value cannot be used.
    """

    def __init__(self, params: Any, defaults: Options) -> None:
        for name in ("lr", "eps", "weight_decay"):
            require_at_least(name, defaults.get(name, 0.0), 0.0)
        require_betas("betas", defaults["betas"])
        own = {name: value for name, value in defaults.items() if name != "betas"}
        try:
            check_values(type(self).__name__, type(self).__init__, own)
        except ConfigError as error:
            raise ValueError(str(error)) from None
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
