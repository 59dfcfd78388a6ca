"""What the controller does to its numbers, for vectors and for floats.

A vector has a number for each tensor of a group. Both let NaN pass.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class OnTensors:
    """The operations on vectors: torch's own."""

    lerp = staticmethod(torch.lerp)
    addcmul = staticmethod(torch.addcmul)
    sqrt = staticmethod(torch.sqrt)
    expm1 = staticmethod(torch.expm1)
    sigmoid = staticmethod(torch.sigmoid)
    larger = staticmethod(torch.maximum)
    at_least = staticmethod(torch.clamp_min)
    at_most = staticmethod(torch.clamp_max)
    clip = staticmethod(torch.clamp)

    @staticmethod
    def choose(condition: Tensor, chosen: Sequence[Tensor], otherwise: Tensor) -> Tensor:
        """Return the rows chosen where the condition holds, the others elsewhere."""
        return torch.where(condition, torch.stack(tuple(chosen)), otherwise)


class OnFloats:
    """The same operations on floats."""

    sqrt = staticmethod(math.sqrt)
    expm1 = staticmethod(math.expm1)
    larger = staticmethod(max)

    @staticmethod
    def lerp(start: float, end: float, weight: float) -> float:
        """Move from start towards end, written from the nearer one, as torch does."""
        if weight < 0.5:
            return start + weight * (end - start)
        return end - (end - start) * (1.0 - weight)

    @staticmethod
    def addcmul(x: float, first: float, second: float, *, value: float) -> float:
        """Return ``x + value * first * second``."""
        return x + value * first * second

    @staticmethod
    def sigmoid(x: float) -> float:
        """Return ``1 / (1 + exp(-x))``, for any x."""
        if x >= 0.0:
            return 1.0 / (1.0 + math.exp(-x))
        grown = math.exp(x)
        return grown / (1.0 + grown)

    @staticmethod
    def at_least(x: float, low: float) -> float:
        """Return x, or low where x is below it."""
        return low if x < low else x

    @staticmethod
    def at_most(x: float, high: float) -> float:
        """Return x, or high where x is above it."""
        return high if x > high else x

    @staticmethod
    def clip(x: float, low: float, high: float) -> float:
        """Return x, moved into the range."""
        return min(max(x, low), high)

    @staticmethod
    def choose(condition: bool, chosen: Sequence[float], otherwise: Any) -> Sequence[float]:
        """Return the numbers chosen if the condition holds, else the others."""
        return chosen if condition else otherwise
