"""Exact gradients for a batch norm whose scale and shift the next batch norm removes.

Between EEGNet's first two batch norms every map is a weighted sum of the channels of one filter. So
the second norm subtracts what the shift adds and divides by what the scale multiplies, except for
its epsilon: of a map z with the variance V, scaled by γ, it makes z/sqrt(V + eps), which γ changes
by the share eps/(V + eps) alone. Computed through both norms, the gradients of scale and shift are
differences of large numbers, mostly rounding, and optimizers that divide a gradient by its size
turn rounding into steps. Here the shift has the gradient 0, and the scale acts through that share.
"""

import torch
from torch import Tensor

from afor.bench.models.layers.precision import at_least_float32


def held_affine(scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Return scale and shift as the maps before the next norm take them: without a gradient.

    A scale of 0 keeps its gradient: it is no rounding there, and `next_scale` cannot know it.
    """
    return torch.where(scale == 0, scale, scale.detach()), shift.detach()


def next_scale(after: Tensor, scale: Tensor, shift: Tensor, maps: Tensor, eps: float) -> Tensor:
    """Return the scale of the next norm, with the gradients of the scale and shift before it.

    Args:
        after: Scale of the next norm, one per map.
        scale: Scale before it, one per filter; filter f feeds maps f·D … f·D + D − 1.
        shift: Shift before it.
        maps: Input of the next norm, (batch, maps, 1, time) or (1, maps, batch, time), made with
            `held_affine`.
        eps: Epsilon of the next norm.

    Returns:
        The values of ``after``. Derivatives of any order are those of the two norms.
    """
    depth = len(after) // len(scale)
    variance = maps.to(at_least_float32(maps.dtype)).var((0, 2, 3), correction=0)
    nonzero = torch.where(scale == 0, 1, scale)
    # 1/γ², relative to the γ in the maps, less 1: zero, but for its derivatives.
    excess = ((nonzero.detach() / nonzero).square() - 1).repeat_interleave(depth)
    factor = (1 + eps / (variance + eps) * excess).sqrt().reciprocal()
    factor = factor + 0 * shift.repeat_interleave(depth)
    return after * factor.to(after.dtype)
