"""Time steps relative to Adam: optimizers take turns, ratios are computed within rounds."""

import copy
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from afor.bench.analyses.cost.timing import Effort, Racer, race
from afor.bench.common.errors import ConfigError
from afor.bench.common.seeding import isolated
from afor.bench.optimizers.build import AfterStep, BeforeStep, build_optimizer

LR = 1e-3  # Table II, DEAP; it does not change the cost
GROWTH_TENSORS = 12  # as many as EEGNet has
BLOCK_S = 0.004  # seconds of steps whose median is one sample


@dataclass(frozen=True)
class Entrant:
    """An optimizer by its name in the table, with the settings that choose an implementation."""

    name: str  # of the row, "adam" or "adam fused"
    optimizer: str
    settings: Mapping[str, Any]

    def build(self, model: nn.Module, weight_decay: float) -> torch.optim.Optimizer:
        """Build it over all parameters of the model."""
        return build_optimizer(self.optimizer, model, LR, weight_decay, **self.settings)


@dataclass(frozen=True)
class Latency:
    """Time of a step, and relative to Adam's of the same round: median and quartiles."""

    step_us: float
    extra_us: float
    ratio: float
    ratio_low: float
    ratio_high: float


def step_of(
    optimizer: torch.optim.Optimizer, model: nn.Module, inputs: torch.Tensor | None
) -> tuple[Callable[[], object], int]:
    """Return what the training loop does after a backward pass, and its period in steps."""
    if inputs is None or not isinstance(optimizer, AfterStep):
        return optimizer.step, 1
    after = optimizer.after_step
    before = optimizer.before_step if isinstance(optimizer, BeforeStep) else None

    def step() -> None:
        if before is not None:
            before(model, inputs)
        optimizer.step()
        after(model, inputs)

    return step, int(optimizer.param_groups[0].get("interval", 1))


def copy_with_gradients(model: nn.Module) -> nn.Module:
    """Return a copy of a model with copies of its gradients."""
    model_copy = copy.deepcopy(model)
    for p, original in zip(model_copy.parameters(), model.parameters(), strict=True):
        p.grad = None if original.grad is None else original.grad.clone()
    return model_copy


def measure_latency(
    entrants: Sequence[Entrant],
    model: nn.Module,
    inputs: torch.Tensor | None,
    *,
    weight_decay: float,
    rounds: int,
    threads: int = 1,
) -> dict[str, Latency]:
    """Time the steps of all entrants, Adam in its default form among them, on copies of one model.

    As in the paper (Sec. V-D): the same weights, the same gradients at every step, after a warm-up.
    With a batch as `inputs`, an optimizer's additional passes count, spread over its period.
    """
    baseline = next((e.name for e in entrants if e.optimizer == "adam" and not e.settings), None)
    if baseline is None:
        raise ConfigError("Ratios are to Adam, so it must be measured: add --optimizer adam.")
    # Processor time ignores other programs, but adds up over threads: with several, wall time.
    clock = time.process_time_ns if threads == 1 else time.perf_counter_ns
    racers = []
    with one_thread_count(threads), isolated(0, torch.device("cpu")):
        for entrant in entrants:
            model_copy = copy_with_gradients(model)
            optimizer = entrant.build(model_copy, weight_decay)
            step, period = step_of(optimizer, model_copy, inputs)
            for _ in range(2 * period):
                step()
            racers.append(Racer(entrant.name, lambda: None, step, period, clock))
        race(racers, Effort(BLOCK_S, rounds, 0.0, rounds))
    reference = next(racer for racer in racers if racer.name == baseline).samples_us
    return {racer.name: _latency(racer.samples_us, reference) for racer in racers}


def growth(
    entrants: Sequence[Entrant], sizes: Sequence[int], *, rounds: int, threads: int = 1
) -> dict[int, dict[str, Latency]]:
    """Time the steps on twelve nearly square tensors, by the number of their elements."""
    generator = torch.Generator().manual_seed(0)
    latencies = {}
    for size in sizes:
        side = max(1, round((size / GROWTH_TENSORS) ** 0.5))
        shape = (side, max(1, round(size / GROWTH_TENSORS / side)))
        tensors = nn.ParameterList(
            torch.randn(shape, generator=generator) for _ in range(GROWTH_TENSORS)
        )
        for tensor in tensors:
            tensor.grad = torch.randn(tensor.shape, generator=generator)
        latencies[sum(tensor.numel() for tensor in tensors)] = measure_latency(
            entrants, tensors, None, weight_decay=1e-4, rounds=rounds, threads=threads
        )
    return latencies


@contextmanager
def one_thread_count(threads: int) -> Iterator[None]:
    """Set the number of torch threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _latency(samples: Sequence[float], reference: Sequence[float]) -> Latency:
    ratios = [a / b for a, b in zip(samples, reference, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    extra = statistics.median(a - b for a, b in zip(samples, reference, strict=True))
    return Latency(statistics.median(samples), extra, middle, low, high)
