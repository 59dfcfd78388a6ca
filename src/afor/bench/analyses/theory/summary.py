"""The statements of Theorem 1 about a toy problem or a run, as plain values and sentences."""

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
    Constants,
    derive_constants,
    finite_bound,
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
    assumptions: Assumptions,
    lr: float,
    beta2: Mapping[str, NDArray[np.float64]],
    measured: float,
    *,
    title: str,
    sources: Mapping[str, str],
) -> dict[str, Any]:
    """Evaluate Sec. VI on one problem.

    Args:
        assumptions: What the theorem assumes about the problem.
        lr: The learning rate used.
        beta2: Trace of beta2 of each tensor.
        measured: Mean squared gradient of the training.
        title: Name of the problem, for the table.
        sources: Where each value comes from, by its name.

    Returns:
        All values by name, ready for JSON and for `theory_table`.
    """
    constants = derive_constants(assumptions)
    needed = steps_to_inform(assumptions, constants)
    at_largest = finite_bound(assumptions, constants, constants.largest_lr)
    lengths = {name: float(memory_length(trace)[-1]) for name, trace in beta2.items()}
    reach = max(float(direction_bound(t, assumptions.beta1).max()) for t in beta2.values())
    values = {
        "title": title,
        "sources": dict(sources),
        **_named(assumptions, "smoothness", "gradient_bound", "noise_sq"),
        "drift_sq": float(assumptions.drift_sq.max()),
        **_named(assumptions, "gap", "parameters", "eps", "weight_decay", "beta1"),
        "lr": lr,
        "steps": len(assumptions.drift_sq),
        **_named(constants, "alpha", "largest_factor"),
        "tracking_sq": float(constants.tracking_sq.max()),
        **_named(constants, "descent", "growth", "decay_norm", "largest_lr"),
        "lr_factor": lr / constants.largest_lr,
        "condition_holds": lr <= constants.largest_lr and lr * assumptions.weight_decay <= 1.0,
        "bound_at_largest_lr": _terms(at_largest),
        "bound_at_lr": _terms(finite_bound(assumptions, constants, lr)),
        "trivial_bound": assumptions.trivial_bound,
        "orders": math.log10(at_largest.total / assumptions.trivial_bound),
        "steps_to_inform": needed if math.isfinite(needed) else None,
        "measured": measured,
        "update_bound_paper": assumptions.gradient_bound / assumptions.eps,
        "update_bound_weights": reach,
        "memory_length": lengths,
    }
    return {**values, "verdict": verdict(values)}


def verdict(values: Mapping[str, Any]) -> list[str]:
    """Return sentences: whether the theorem applies, and whether its bound is informative."""
    holds, factor = values["condition_holds"], values["lr_factor"]
    sentences = [
        f"The learning rate {values['lr']:.3g} satisfies the step-size condition "
        f"(largest: {values['largest_lr']:.3g})."
        if holds
        else f"The learning rate {values['lr']:.3g} is {factor:.2g} times the largest that the "
        f"theorem permits, {values['largest_lr']:.2g}: it says nothing about this training."
    ]
    total, trivial = values["bound_at_largest_lr"]["total"], values["trivial_bound"]
    steps = values["steps"]
    if values["orders"] > 0:
        sentences.append(
            f"At that largest learning rate the bound after {steps:,} steps is {total:.2g}. That "
            f"no element of a gradient exceeds G gives {trivial:.3g} without a theorem: vacuous "
            f"by {values['orders']:.1f} orders of magnitude."
        )
        needed = values["steps_to_inform"]
        sentences.append(
            f"It would say something after {needed:.2g} steps."
            if needed is not None
            else "No number of steps would change that."
        )
    else:
        sentences.append(
            f"At that largest learning rate the bound after {steps:,} steps is {total:.3g}, below "
            f"the {trivial:.3g} that holds without a theorem: it says something."
        )
    if values["weight_decay"] > 0:
        sentences.append(
            "With weight decay it cannot say anything, on any problem: its term 2(χ/a₀)² is at "
            "least 8(1 + G/ε)² times the trivial bound."
        )
    return sentences


def _named(values: Assumptions | Constants, *names: str) -> dict[str, float]:
    return {name: getattr(values, name) for name in names}


def _terms(bound: Bound) -> dict[str, float]:
    return {**asdict(bound), "total": bound.total}
