"""AdamP (Heo 2021): Adam without the growth of weights that are followed by a normalisation.

Where a weight is followed by a normalisation its length has no effect on the loss, so the gradient
is orthogonal to it. AdamP recognises such a tensor by that angle and removes the part of the update
that points along the weight: only the direction is trained.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from afor.bench.optimizers.stepwise import AtLeastZero, Options, StepwiseOptimizer, moments


class AdamP(StepwiseOptimizer):
    """Adam with the radial part of the update removed, and decoupled weight decay.

    Args:
        params, lr, betas, eps, weight_decay: As for torch's AdamW.
        delta: A tensor is scale-invariant if the cosine of gradient and weight is below `delta`
            divided by the square root of its size.
        wd_ratio: Factor of the weight decay of scale-invariant tensors.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        delta: AtLeastZero = 0.1,
        wd_ratio: AtLeastZero = 0.1,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "delta": delta, "wd_ratio": wd_ratio})

    def update(self, param: Tensor, grad: Tensor, state: Options, group: Options) -> None:
        """Take one step on one tensor."""
        lr, eps = group["lr"], group["eps"]
        beta1, beta2 = group["betas"]
        first, second = moments(state, grad, beta1, beta2)
        correction1 = 1 - beta1 ** state["step"]
        correction2 = 1 - beta2 ** state["step"]
        update = first / (second.sqrt() / math.sqrt(correction2)).add_(eps)

        decay_scale: float | Tensor = 1.0
        if param.dim() > 1 and param.numel() > 0:
            # The decision would be a host sync on a GPU, as in the authors' code.
            on_host = param.device.type == "cpu"
            remove = without_radial_part if on_host else without_radial_part_on_device
            options = group["delta"], group["wd_ratio"], eps
            update, decay_scale = remove(update, param, grad, *options)
        param.mul_(1 - lr * group["weight_decay"] * decay_scale)
        param.add_(update, alpha=-lr / correction1)


def without_radial_part(
    update: Tensor, param: Tensor, grad: Tensor, delta: float, wd_ratio: float, eps: float
) -> tuple[Tensor, float]:
    """Remove the part of the update along the weight, per channel or per layer, if scale-invariant.

    Returns:
        The update and the factor of the weight decay.
    """
    for rows in (len(param), 1):  # each output channel by itself, then the tensor as a whole
        weights = param.reshape(rows, -1)
        if _is_scale_invariant(weights, grad, delta, eps):
            return _tangential(update, weights, eps), wd_ratio
    return update, 1.0


def without_radial_part_on_device(
    update: Tensor, param: Tensor, grad: Tensor, delta: float, wd_ratio: float, eps: float
) -> tuple[Tensor, Tensor]:
    """Do the same without asking the device: all updates are computed, and one is selected there.

    The arguments and results are those of `without_radial_part`.
    """
    result, decay_scale = update, torch.ones((), dtype=param.dtype, device=param.device)
    for rows in (1, len(param)):  # the channels come last: they take precedence
        weights = param.reshape(rows, -1)
        invariant = _is_scale_invariant(weights, grad, delta, eps)
        result = torch.where(invariant, _tangential(update, weights, eps), result)
        decay_scale = torch.where(invariant, wd_ratio, decay_scale)
    return result, decay_scale


def _is_scale_invariant(weights: Tensor, grad: Tensor, delta: float, eps: float) -> Tensor:
    """Return True, on the device, if the gradient is orthogonal to all rows of a weight."""
    cosine = cosine_similarity(grad.reshape(weights.shape), weights, dim=1, eps=eps).abs()
    is_small: Tensor = cosine.max() < delta / math.sqrt(weights.shape[1])
    return is_small


def _tangential(update: Tensor, weights: Tensor, eps: float) -> Tensor:
    """Return an update without its part along each row of a weight."""
    unit = weights / weights.norm(dim=1, keepdim=True).add_(eps)
    updates = update.reshape(weights.shape)
    radial = (unit * updates).sum(dim=1, keepdim=True)
    tangential: Tensor = (updates - unit * radial).reshape(update.shape)
    return tangential
