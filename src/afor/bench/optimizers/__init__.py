"""Optimizers by name: the paper's seven, its ablations, controls, and any class a user brings."""

from afor.bench.optimizers.build import (
    AfterStep,
    BeforeStep,
    TwoModes,
    accepted_settings,
    build_optimizer,
    check_optimizer,
    find_entry,
    full_settings,
)
from afor.bench.optimizers.registry import (
    HEADINGS,
    OPTIMIZERS,
    PAPER_OPTIMIZERS,
    OptimizerEntry,
)

__all__ = [
    "HEADINGS",
    "OPTIMIZERS",
    "PAPER_OPTIMIZERS",
    "AfterStep",
    "BeforeStep",
    "OptimizerEntry",
    "TwoModes",
    "accepted_settings",
    "build_optimizer",
    "check_optimizer",
    "find_entry",
    "full_settings",
]
