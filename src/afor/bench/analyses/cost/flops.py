"""The operations of one step of the paper's seven optimizers, line by line.

Each line describes the code that a study runs: torch's for-loops for Adam, AdamW and RAdam, this
package's for the others (AFOR's native kernel does the same arithmetic in fewer passes over
memory). A test counts the operations of real steps and compares them with these numbers.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

# When a line applies: with weight decay, on tensors of two or more dimensions, or where AdamP
# projects.
Case = Literal["", "decay", "matrix", "projected"]


@dataclass(frozen=True)
class Operation:
    """One line of a step and its operations per element, per row and per tensor."""

    text: str
    element: int = 0
    row: int = 0
    tensor: int = 0
    host: int = 0  # on Python numbers, per tensor
    when: Case = ""


_COUNT = Operation("t ← t + 1", tensor=1)
_FIRST = Operation("m ← m + (1−β₁)(g − m)", element=3, host=1)
_SECOND = Operation("v ← β₂v + (1−β₂)g·g", element=4, host=1)
_COUPLED = Operation("g ← g + λθ", element=2, when="decay")
_DECOUPLED = Operation("θ ← (1−ηλ)θ", element=1, host=2, when="decay")
_ALWAYS_DECAY = Operation("θ ← (1−ηλ)θ", element=1, host=2)
_CORRECTIONS = Operation("1−β₁ᵗ, √(1−β₂ᵗ), η/(1−β₁ᵗ)", host=6)
_DENOMINATOR = Operation("s ← √v/√(1−β₂ᵗ) + ε", element=3)
_UPDATE = Operation("θ ← θ − η/(1−β₁ᵗ)·m/s", element=3)

OPERATIONS: Mapping[str, tuple[Operation, ...]] = {
    "adam": (_COUNT, _COUPLED, _FIRST, _SECOND, _CORRECTIONS, _DENOMINATOR, _UPDATE),
    "adamw": (_COUNT, _DECOUPLED, _FIRST, _SECOND, _CORRECTIONS, _DENOMINATOR, _UPDATE),
    "radam": (
        _COUNT,
        _COUPLED,
        _FIRST,
        _SECOND,
        Operation("1−β₁ᵗ, √(1−β₂ᵗ) and the rectification", host=23),
        Operation("m/(1−β₁ᵗ)", element=1),
        Operation("that times η, √(1−β₂ᵗ)/(√v + ε) and the rectification", element=7),
        Operation("θ minus that", element=1),
    ),
    "adamp": (
        Operation("t ← t + 1", host=1),
        _FIRST,
        _SECOND,
        Operation("1−β₁ᵗ, √(1−β₂ᵗ)", host=5),
        Operation("u ← m/(√v/√(1−β₂ᵗ) + ε)", element=4),
        Operation("cosine of g and θ, each row, and its test", 8, row=3, when="matrix"),
        Operation("the same for the whole tensor", 8, tensor=3, when="matrix"),
        Operation("u without its part along θ", 7, when="projected"),
        _ALWAYS_DECAY,
        Operation("θ ← θ − η/(1−β₁ᵗ)·u", element=2, host=1),
    ),
    "sophia": (
        Operation("t ← t + 1", host=1),
        _FIRST,
        Operation("|m|/(ρh + tiny)", element=4),
        _ALWAYS_DECAY,
        Operation("θ ← θ − η·sign(m)·min(that, 1)", element=5),
    ),
    "mars": (
        Operation("t ← t + 1", host=1),
        Operation("c ← g + γβ₁/(1−β₁)(g − g′)", element=3, host=3),
        Operation("c ← c/max(‖c‖, 1)", element=3, tensor=1),
        _FIRST,
        _SECOND,
        _CORRECTIONS,
        _DENOMINATOR,
        _ALWAYS_DECAY,
        _UPDATE,
    ),
    "afor": (
        _COUNT,
        Operation("mean |g − m|", element=3),
        Operation("‖g‖², ‖m‖², ⟨g, m⟩", element=6, tensor=-3),
        _FIRST,
        Operation("mean |m|", element=2),
        Operation("two noise averages, the larger", tensor=7),
        Operation("cosine, its average, ratio, score", tensor=11),
        Operation("mean and variance of the score", tensor=8),
        Operation("standardised score, cut", tensor=5),
        Operation("is the gradient finite?", tensor=2),
        Operation("gate, sigmoid, β₂, 1 − C", tensor=9),
        Operation("1−β₁ᵗ, factors of the denominator", tensor=6),
        Operation("v ← v + (1−β₂)(g·g − v), v kept finite", element=5),
        Operation("s ← √v·factor + ε(1−β₁ᵗ)", element=3),
        _DECOUPLED,
        Operation("θ ← θ − η·m/s", element=3),
    ),
}
# Sophia renews its curvature once in `interval` steps: h ← β₂h + (1−β₂)B·g², besides the pass.
SOPHIA_CURVATURE = 4


@dataclass(frozen=True)
class Formula:
    """Operations of a step: per element, per row of a matrix and per tensor."""

    element: int
    row: int
    tensor: int
    host: int  # on Python numbers, per tensor

    def of(self, shapes: Iterable[Sequence[int]]) -> int:
        """Return the operations on tensors of these shapes, without those on Python numbers."""
        total = 0
        for shape in shapes:
            rows = shape[0] if len(shape) > 1 else 0
            total += self.element * math.prod(shape) + self.row * rows + self.tensor
        return total

    def __str__(self) -> str:
        """Write it with n elements and k tensors."""
        terms = [(self.element, "n"), (self.row, "r"), (self.tensor + self.host, "k")]
        return "+".join(f"{number}{letter}" for number, letter in terms if number)


def formula(name: str, cases: Iterable[Case] = ("decay",)) -> Formula | None:
    """Sum the lines of an optimizer that apply in these cases; None for an unknown optimizer.

    >>> str(formula("adam", cases=()))
    '13n+9k'
    """
    lines = OPERATIONS.get(name)
    if lines is None:
        return None
    counted = [line for line in lines if not line.when or line.when in tuple(cases)]
    parts = ("element", "row", "tensor", "host")
    return Formula(*(sum(getattr(line, part) for line in counted) for part in parts))
