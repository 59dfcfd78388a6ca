"""Disable autocast for arithmetic that needs more than half precision."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def without_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Return a context that disables autocast on the tensor's device."""
    device = tensor.device.type
    if torch.amp.is_autocast_available(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def autocast_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype of matrix products under autocast, or the tensor's dtype without it."""
    device = tensor.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return tensor.dtype


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype for sums over many products.

    >>> at_least_float32(torch.bfloat16), at_least_float32(torch.float64)
    (torch.float32, torch.float64)
    """
    return torch.promote_types(dtype, torch.float32)
