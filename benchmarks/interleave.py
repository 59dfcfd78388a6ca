"""Time alternatives turn by turn in one process, so that a busy machine slows all of them alike.

Processor time, not wall time: what other programs do meanwhile does not count.
"""

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional as F

from afor.bench.analyses.cost.timing import Effort, Racer, race
from afor.bench.models.input_shape import InputShape


def medians_ms(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return each run's median processor time over ``rounds`` rounds, after two to warm up."""
    racers = [
        Racer(name, lambda: None, run, clock=time.process_time_ns) for name, run in runs.items()
    ]
    race(racers, Effort(block_s=0.0, rounds=rounds, budget_s=0.0, max_rounds=rounds))
    return {racer.name: statistics.median(racer.samples_us) / 1e3 for racer in racers}


def training_step(model: nn.Module, shape: InputShape, batch: int) -> Callable[[], None]:
    """Return a forward and backward pass under cross-entropy on random windows."""
    generator = torch.Generator().manual_seed(0)
    signal = torch.randn(batch, shape.channels, shape.samples, generator=generator)
    labels = torch.randint(shape.classes, (batch,), generator=generator)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(signal), labels).backward()

    return step


def evaluation(model: nn.Module, shape: InputShape, batch: int) -> Callable[[], None]:
    """Return a forward pass in evaluation mode on random windows."""
    signal = torch.randn(batch, shape.channels, shape.samples)

    @torch.no_grad()
    def forward() -> None:
        model.eval()(signal)

    return forward


def table(rows: list[dict[str, str]]) -> str:
    """Return rows as aligned columns under their keys."""
    widths = {key: max(len(key), *(len(row[key]) for row in rows)) for key in rows[0]}
    lines = ["  ".join(key.rjust(width) for key, width in widths.items())]
    lines += ["  ".join(row[key].rjust(width) for key, width in widths.items()) for row in rows]
    return "\n".join(lines)
