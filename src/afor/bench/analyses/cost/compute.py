"""Measure the cost of an optimizer's step: operations, state, time relative to Adam.

Optimizers take turns in rounds, and ratios of times are taken within rounds.
"""

import copy
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from afor.bench.analyses.cost.flop_counter import FlopCounter
from afor.bench.analyses.cost.timing import Effort, Racer, race
from afor.bench.common.devices import repeatable
from afor.bench.common.errors import ConfigError
from afor.bench.common.seeding import isolated
from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import build_backbone
from afor.bench.optimizers.build import AfterStep, BeforeStep, build_optimizer, find_entry
from afor.bench.optimizers.registry import PAPER_OPTIMIZERS
from afor.bench.stats.labels import DATASET_LABELS
from afor.control import FIELDS
from afor.native.binding import unavailable_reason

KIB = 1024
LR = 1e-3  # Table II, DEAP; it does not change the cost
WEIGHT_DECAY = 1e-4  # Sec. IV-C
BATCHES = {"deap": 256}  # Sec. IV-C
OTHER_BATCH = 64  # Sec. IV-C
FOR_LOOP = {"foreach": False, "fused": False}  # separate operators, which the counter sees
ADAM_FUSED, AFOR_LOOP = "adam fused", "afor for-loop"
# Of AFOR's nine control values, these only record the last step; later steps do not read them,
# except after a non-finite gradient, which repeats the z-score.
RECORD_ONLY = ("score", "zscore", "forgetting")
# Per parameter, once in `interval` steps: h ← β₂h + (1−β₂)B·g², besides the pass.
SOPHIA_CURVATURE = 4
BLOCK_S = 0.004  # seconds of steps whose median is one sample
CPU = torch.device("cpu")


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
class Cost:
    """The costs of several optimizers, Adam among them, on one network."""

    backbone: str
    dataset: str
    parameters: int
    tensors: int
    batch: int
    weight_decay: float
    rounds: int
    network_flops: int  # of a forward and a backward pass: matrix products and convolutions
    unknown_operators: Mapping[str, list[str]]  # by optimizer: those without a rule, not counted
    measures: Mapping[str, Mapping[str, float]]  # {measure: {optimizer: value}}


def measure_cost(
    backbone: str = "eegnet",
    dataset: str = "deap",
    optimizers: Sequence[str] = PAPER_OPTIMIZERS,
    *,
    batch: int = 0,
    weight_decay: float = WEIGHT_DECAY,
    rounds: int = 25,
) -> Cost:
    """Measure the step of several optimizers, Adam always among them, on one network.

    The data set gives the shape of the windows; a batch size of 0 uses the paper's. Raises
    ConfigError if a name is not known or a number is out of range.
    """
    shape = shape_of(dataset)
    batch = batch or BATCHES.get(dataset, OTHER_BATCH)
    if batch < 2 or rounds < 1:
        raise ConfigError("batch must be at least 2, rounds at least 1.")
    entrants = entrants_of(optimizers)
    with repeatable(1), isolated(0, CPU):
        model = build_backbone(backbone, shape)
        inputs = torch.randn(batch, shape.channels, shape.samples)
        labels = torch.randint(shape.classes, (batch,))
        with FlopCounterMode(display=False) as counted:
            cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
    latencies = measure_latency(entrants, model, inputs, weight_decay=weight_decay, rounds=rounds)
    unknown: dict[str, list[str]] = {}
    measures: dict[str, dict[str, float]] = {}
    for entrant in entrants:
        values, operators = _step_cost(entrant, model, inputs, weight_decay)
        if operators:
            unknown[entrant.name] = operators
        for key, value in {**values, **latencies[entrant.name]}.items():
            measures.setdefault(key, {})[entrant.name] = value
    adam = measures["kflops"]["adam"]
    measures["extra_kflops"] = {name: value - adam for name, value in measures["kflops"].items()}
    del measures["extra_kflops"]["adam"], measures["extra_ms"]["adam"]
    trained = [p for p in model.parameters() if p.grad is not None]
    return Cost(
        backbone=backbone,
        dataset=dataset,
        parameters=sum(p.numel() for p in trained),
        tensors=len(trained),
        batch=batch,
        weight_decay=weight_decay,
        rounds=rounds,
        network_flops=counted.get_total_flops(),
        unknown_operators=unknown,
        measures=measures,
    )


def shape_of(dataset: str) -> InputShape:
    """Return the shape of a data set's windows."""
    shapes = {name: label for name, label in DATASET_LABELS.items() if label in DATASET_SHAPES}
    if dataset not in shapes:
        accepted = ", ".join(shapes)
        raise ConfigError(f'--dataset "{dataset}" has no known shape. Accepted: {accepted}.')
    return DATASET_SHAPES[shapes[dataset]]


def entrants_of(optimizers: Sequence[str]) -> list[Entrant]:
    """Return what to measure: Adam, the optimizers, and Adam's fused and AFOR's for-loop form."""
    names = dict.fromkeys(["adam", *optimizers])
    for name in names:
        find_entry(name)  # refuse an unknown one before anything is measured
    entrants = [Entrant(name, name, {}) for name in names]
    if "afor" in names and unavailable_reason() is None:
        entrants.append(Entrant(AFOR_LOOP, "afor", FOR_LOOP))
        entrants.insert(1, Entrant(ADAM_FUSED, "adam", {"fused": True}))
    return entrants


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
) -> dict[str, dict[str, float]]:
    """Time the steps of all entrants, Adam in its default form among them, on copies of one model.

    As in the paper (Sec. V-D): the same weights, the same gradients at every step, after a warm-up.
    With a batch as `inputs`, an optimizer's additional passes count, spread over its period.

    Returns:
        For each entrant the time of a step, and of the same round its difference from Adam's and
        the ratio to it: median and quartiles.
    """
    racers = {}
    with repeatable(1), isolated(0, CPU):
        for entrant in entrants:
            model_copy = copy_with_gradients(model)
            optimizer = entrant.build(model_copy, weight_decay)
            step, period = step_of(optimizer, model_copy, inputs)
            for _ in range(2 * period):
                step()
            # Processor time of one thread ignores other programs.
            racer = Racer(entrant.name, lambda: None, step, period, time.process_time_ns)
            racers[entrant.name] = racer
        race(list(racers.values()), Effort(BLOCK_S, rounds, 0.0, rounds))
    reference = racers["adam"].samples_us
    return {name: _latency(racer.samples_us, reference) for name, racer in racers.items()}


def _latency(samples: Sequence[float], reference: Sequence[float]) -> dict[str, float]:
    ratios = [a / b for a, b in zip(samples, reference, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    extra_us = statistics.median(a - b for a, b in zip(samples, reference, strict=True))
    return {
        "step_us": statistics.median(samples),
        "latency_ratio": middle,
        "latency_ratio_low": low,
        "latency_ratio_high": high,
        "extra_ms": extra_us / 1e3,
    }


def state_bytes(optimizer: torch.optim.Optimizer) -> tuple[int, int]:
    """Return the bytes of all tensors in the state, and of those that later steps depend on.

    Python numbers (a step counter of type int) are not counted, as in the paper's table.
    """
    total = spare = 0
    for state in optimizer.state.values():
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                total += value.numel() * value.element_size()
                if key == "control" and value.numel() == len(FIELDS):
                    spare += len(RECORD_ONLY) * value.element_size()
    return total, total - spare


def _step_cost(
    entrant: Entrant, model: nn.Module, inputs: torch.Tensor, weight_decay: float
) -> tuple[dict[str, float], list[str]]:
    """Count the operations of one period of steps, after a warm-up, and the bytes of the state.

    Returns the measures, and the operators without a rule.
    """
    # The counter sees a native kernel as one operator; the for-loop does the same arithmetic.
    countable = {**entrant.settings, **(FOR_LOOP if _is_afor(entrant.optimizer) else {})}
    countable.update({"fused": False} if entrant.name == ADAM_FUSED else {})
    model_copy = copy_with_gradients(model)
    optimizer = Entrant(entrant.name, entrant.optimizer, countable).build(model_copy, weight_decay)
    step, period = step_of(optimizer, model_copy, inputs)
    with isolated(0, inputs.device):
        for _ in range(max(period, 10)):  # RAdam rectifies from its sixth step on
            step()
        with FlopCounter() as counter:
            optimizer.step()
        with FlopCounterMode(display=False) as passes:
            for _ in range(period if period > 1 else 0):
                step()
    trained = [p for p in model_copy.parameters() if p.grad is not None]
    curvature = SOPHIA_CURVATURE if entrant.optimizer == "sophia" else 0
    spread = curvature * sum(p.numel() for p in trained) / period
    all_bytes, needed_bytes = state_bytes(optimizer)
    measures = {
        "kflops": (counter.total + spread) / 1e3,
        "state_kb": all_bytes / KIB,
        "needed_state_kb": needed_bytes / KIB,
    }
    if pass_flops := passes.get_total_flops():
        measures["pass_mflops"] = pass_flops / period / 1e6
    hooks = "_record_function"
    return measures, sorted(name for name in counter.unknown if not name.startswith(hooks))


def _is_afor(name: str) -> bool:
    entry = find_entry(name)
    return (entry.target if entry else name) == "afor:AFOR"
