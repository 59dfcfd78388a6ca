"""AFOR with steps as small as those of *w/o EC*, for the study `step-size`."""

import math
from collections.abc import Callable
from typing import Any

from afor import AFOR
from afor.control import FIELDS

CORRECTION = FIELDS.index("correction")  # 1 - C


class SmallerSteps(AFOR):
    """AFOR whose learning rate is divided by what *w/o EC* divides its steps by.

    Without the cumulative-product correction the second moment is divided by 1 - beta2_init^t
    instead of 1 - C_t, which makes a step smaller by sqrt((1 - C_t) / (1 - beta2_init^t)). Here the
    correction is right and the learning rate of each step is divided by that factor, mean of the
    tensors, as of the step before.
    """

    def step(self, closure: Callable[[], float] | None = None) -> Any:  # type: ignore[override]
        """Take one step with the smaller learning rate."""
        rates = [group["lr"] for group in self.param_groups]
        for group in self.param_groups:
            group["lr"] /= self._divisor(group)
        try:
            return super().step(closure)  # type: ignore[arg-type]
        finally:
            for group, rate in zip(self.param_groups, rates, strict=True):
                group["lr"] = rate

    def _divisor(self, group: dict[str, Any]) -> float:
        states = [self.state[p] for p in group["params"] if "control" in self.state.get(p, {})]
        if not states:
            return 1.0
        steps = float(states[0]["step"])
        cumulative = sum(float(state["control"][CORRECTION]) for state in states) / len(states)
        fixed = -math.expm1(steps * math.log(group["betas"][1]))
        return math.sqrt(cumulative / fixed)
