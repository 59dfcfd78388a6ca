"""What Theorem 1 says about a toy problem or a run, gathered in plain values and sentences."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.analyses.theory.memory_weights import direction_bound, memory_length
from afor.bench.analyses.theory.theorem import (
    Assumptions,
    Bound,
    constants,
    finite_bound,
    orders_of_magnitude,
    steps_to_inform,
)

TOY_SOURCES = {
    "smoothness": "known: largest eigenvalue of X'X/4n",
    "gradient_bound": "known: largest feature",
    "noise_sq": "known: mean |x|² / batch",
    "drift_sq": "measured on true gradients",
    "gap": "known: log 2 minus at least 0",
    "measured": "true gradients, mean over steps",
}
RUN_SOURCES = {
    "smoothness": "lower estimate: power iteration on secants",
    "gradient_bound": "lower estimate: largest gradient seen",
    "noise_sq": "estimate: spread of batches at one point",
    "drift_sq": "left out, which favours the bound",
    "gap": "lower estimate: first loss minus lowest",
    "measured": "estimate: mean over the points probed",
}


def report(
    given: Assumptions,
    lr: float,
    beta2: Mapping[str, NDArray[np.float64]],
    measured: float,
    *,
    title: str,
    sources: Mapping[str, str],
) -> dict[str, Any]:
    """Evaluate everything of Sec. VI; `beta2` holds each tensor's trace."""
    found = constants(given)
    needed = steps_to_inform(given, found)
    at_largest = finite_bound(given, found, found.largest_lr)
    lengths = {name: float(memory_length(trace)[-1]) for name, trace in beta2.items()}
    reach = max(float(direction_bound(t, given.beta1).max()) for t in beta2.values())
    values = {
        "title": title,
        "sources": dict(sources),
        "smoothness": given.smoothness,
        "gradient_bound": given.gradient_bound,
        "noise_sq": given.noise_sq,
        "drift_sq": float(given.drift_sq.max()),
        "gap": given.gap,
        "parameters": given.parameters,
        "eps": given.eps,
        "weight_decay": given.weight_decay,
        "beta1": given.beta1,
        "lr": lr,
        "steps": len(given.drift_sq),
        "alpha": found.alpha,
        "largest_factor": found.largest_factor,
        "tracking_sq": float(found.tracking_sq.max()),
        "descent": found.descent,
        "growth": found.growth,
        "decay_norm": found.decay_norm,
        "largest_lr": found.largest_lr,
        "lr_factor": lr / found.largest_lr,
        "condition_holds": lr <= found.largest_lr and lr * given.weight_decay <= 1.0,
        "bound_at_largest_lr": _terms(at_largest),
        "bound_at_lr": _terms(finite_bound(given, found, lr)),
        "trivial_bound": given.trivial_bound,
        "orders": orders_of_magnitude(at_largest.total, given.trivial_bound),
        "steps_to_inform": needed if math.isfinite(needed) else None,
        "measured": measured,
        "update_bound_paper": given.gradient_bound / given.eps,
        "update_bound_weights": reach,
        "memory_length": lengths,
    }
    return {**values, "verdict": verdict(values)}


def verdict(values: Mapping[str, Any]) -> list[str]:
    """Say in sentences whether the theorem applies and whether it says anything."""
    holds, factor = values["condition_holds"], values["lr_factor"]
    said = [
        f"The learning rate {values['lr']:.3g} satisfies the step-size condition "
        f"(largest: {values['largest_lr']:.3g})."
        if holds
        else f"The learning rate {values['lr']:.3g} is {factor:.2g} times the largest that the "
        f"theorem permits, {values['largest_lr']:.2g}: it says nothing about this training."
    ]
    total, trivial = values["bound_at_largest_lr"]["total"], values["trivial_bound"]
    steps = values["steps"]
    if values["orders"] > 0:
        said.append(
            f"At that largest learning rate the bound after {steps:,} steps is {total:.2g}. That "
            f"no element of a gradient exceeds G gives {trivial:.3g} without a theorem: vacuous "
            f"by {values['orders']:.1f} orders of magnitude."
        )
        needed = values["steps_to_inform"]
        said.append(
            f"It would say something after {needed:.2g} steps."
            if needed is not None
            else "No number of steps would change that."
        )
    else:
        said.append(
            f"At that largest learning rate the bound after {steps:,} steps is {total:.3g}, below "
            f"the {trivial:.3g} that holds without a theorem: it says something."
        )
    if values["weight_decay"] > 0:
        said.append(
            "With weight decay it cannot say anything, on any problem: its term 2(χ/a₀)² is at "
            "least 8(1 + G/ε)² times the trivial bound."
        )
    return said


def _terms(bound: Bound) -> dict[str, float]:
    return {**asdict(bound), "total": bound.total}
