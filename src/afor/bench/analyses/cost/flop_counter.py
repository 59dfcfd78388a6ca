"""Count the floating-point operations of a step while it runs, operator by operator.

One addition, subtraction, multiplication, division, comparison, square root or call of an
elementary function on one element is one operation; a sum over n elements is n - 1. Moving,
converting and viewing are none. torch's own FlopCounterMode counts matrix products and
convolutions alone, so it sees a network but no optimizer.
"""

from collections import Counter
from typing import Any

from torch import Tensor

from afor.torch_private import DispatchMode

# Operations per element of the result. A factor (alpha, value) other than 1 or -1 is one more.
PER_ELEMENT = {
    "abs": 1, "add": 1, "addcdiv": 2, "addcmul": 2, "ceil": 1, "clamp_max": 1, "clamp_min": 1,
    "div": 1, "eq": 1, "exp": 1, "expm1": 1, "ge": 1, "gt": 1, "isfinite": 1, "le": 1, "lerp": 3,
    "log": 1, "log1p": 1, "lt": 1, "maximum": 1, "minimum": 1, "mul": 1, "ne": 1, "neg": 1,
    "pow": 1, "reciprocal": 1, "rsqrt": 1, "rsub": 1, "sigmoid": 1, "sign": 1, "sqrt": 1, "sub": 1,
    "tanh": 1,
}  # fmt: skip
FACTORS = ("alpha", "value")
# A reduction of n elements to m takes a·n - b·m operations: (a, b).
REDUCTIONS = {
    "amax": (1, 1),
    "dot": (2, 1),
    "linalg_vector_norm": (2, 0),  # n squares, n - m additions, m roots
    "max": (1, 1),
    "mean": (1, 0),
    "min": (1, 1),
    "sum": (1, 1),
}
MOVES = {
    "_local_scalar_dense", "_reshape_alias", "_to_copy", "_unsafe_view", "alias", "as_strided",
    "cat", "clone", "copy", "detach", "empty", "empty_like", "expand", "fill", "full", "full_like",
    "item", "lift_fresh", "new_empty", "new_zeros", "ones", "ones_like", "permute", "reshape",
    "scalar_tensor", "select", "slice", "split", "squeeze", "stack", "t", "transpose", "unbind",
    "unsqueeze", "view", "where", "zero", "zeros", "zeros_like",
}  # fmt: skip


class FlopCounter(DispatchMode):  # type: ignore[misc]
    """Add up the operations of everything that torch does inside the block.

    >>> import torch
    >>> x = torch.ones(10)
    >>> with FlopCounter() as counter:
    ...     total = (2 * x).sum()
    >>> counter.total, dict(counter.by_operator)
    (19, {'mul': 10, 'sum': 9})

    `unknown` holds the operators it has no rule for, which count as nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_operator: Counter[str] = Counter()
        self.unknown: set[str] = set()

    @property
    def total(self) -> int:
        """Return the operations so far."""
        return sum(self.by_operator.values())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator and count it."""
        options = kwargs or {}
        result = func(*args, **options)
        name = func.overloadpacket.__name__
        plain = name.removeprefix("_foreach_").removesuffix("_")
        if plain in PER_ELEMENT:
            rate = PER_ELEMENT[plain] + _has_factor(options)
            # Only the in-place operators on lists return nothing.
            self.by_operator[plain] += rate * _elements(args[0] if result is None else result)
        elif plain == "clamp":
            bounds = [*args[1:], options.get("min"), options.get("max")]
            self.by_operator[plain] += sum(b is not None for b in bounds) * _elements(result)
        elif plain in REDUCTIONS:
            values = result[0] if isinstance(result, tuple) else result
            per_input, per_output = REDUCTIONS[plain]
            count = per_input * _elements(args[0]) - per_output * _elements(values)
            self.by_operator[plain] += count
        elif plain not in MOVES:
            self.unknown.add(name)
        return result


def _has_factor(options: dict[str, Any]) -> int:
    return int(any(abs(options.get(name, 1)) != 1 for name in FACTORS))


def _elements(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel()
    return sum(map(_elements, value)) if isinstance(value, list | tuple) else 0
