"""One call that compares dtypes, shapes and strides of many tensors with what they were.

torch's compiler has such a guard in C++. Where a version of torch does not offer it, a guard that
never agrees takes its place, and the caller compares attribute by attribute.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class LayoutGuard(Protocol):
    """Remembers the layout of tensors."""

    def check(self, *tensors: Tensor) -> bool:
        """Return True only if dtype, device, shape, strides and pending negations are the same."""


class _NeverAgrees:
    def check(self, *tensors: Tensor) -> bool:  # noqa: ARG002
        return False


def layout_guard(tensors: Sequence[Tensor]) -> LayoutGuard:
    """Return a guard that agrees as long as the tensors have the layout they have now."""
    if _tensor_guards is None:
        return _NeverAgrees()
    guard: LayoutGuard = _tensor_guards(
        *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
    )
    return guard


_dynamo = getattr(torch._C, "_dynamo", None)
_tensor_guards: Callable[..., Any] | None = getattr(
    getattr(_dynamo, "guards", None), "TensorGuards", None
)
