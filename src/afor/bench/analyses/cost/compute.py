"""Measure the cost of an optimizer's step: operations, state, time relative to Adam."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from afor.bench.analyses.cost.flop_counter import FlopCounter
from afor.bench.analyses.cost.latency import (
    Entrant,
    Latency,
    copy_with_gradients,
    growth,
    measure_latency,
    one_thread_count,
    step_of,
)
from afor.bench.common.errors import ConfigError
from afor.bench.common.seeding import isolated
from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import build_backbone
from afor.bench.optimizers.build import find_entry
from afor.bench.optimizers.registry import PAPER_OPTIMIZERS
from afor.bench.stats.labels import DATASET_LABELS
from afor.control import FIELDS
from afor.native.binding import unavailable_reason

KIB = 1024
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
GROWTH_SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)


@dataclass(frozen=True)
class StepCost:
    """One optimizer's column of the table."""

    name: str
    optimizer: str
    flops: float  # of a step on tensors, counted while it ran
    pass_flops: float  # per step, of the optimizer's additional passes through the network
    unknown_operators: tuple[str, ...]  # operators without a rule, which are not counted
    state_bytes: int  # of all tensors in the optimizer's state
    needed_bytes: int  # of these, what a later step depends on
    latency: Latency


@dataclass(frozen=True)
class Cost:
    """The costs of several optimizers on one network."""

    backbone: str
    dataset: str
    parameters: int
    tensors: int
    batch: int
    weight_decay: float
    threads: int
    rounds: int
    network_flops: int  # of a forward and a backward pass: matrix products and convolutions
    steps: tuple[StepCost, ...]

    def measures(self) -> dict[str, dict[str, float]]:
        """Return {measure: {optimizer: value}}, the form that `afor table cost` reads."""
        adam = next((s for s in self.steps if s.name == "adam"), None)
        measures: dict[str, dict[str, float]] = {
            "kflops": {s.name: s.flops / 1e3 for s in self.steps},
            "pass_mflops": {s.name: s.pass_flops / 1e6 for s in self.steps if s.pass_flops},
            "state_kb": {s.name: s.state_bytes / KIB for s in self.steps},
            "needed_state_kb": {s.name: s.needed_bytes / KIB for s in self.steps},
            "step_us": {s.name: s.latency.step_us for s in self.steps},
            "latency_ratio": {s.name: s.latency.ratio for s in self.steps},
            "latency_ratio_low": {s.name: s.latency.ratio_low for s in self.steps},
            "latency_ratio_high": {s.name: s.latency.ratio_high for s in self.steps},
        }
        if adam is not None:
            others = [s for s in self.steps if s is not adam]
            measures["extra_kflops"] = {s.name: (s.flops - adam.flops) / 1e3 for s in others}
            measures["extra_ms"] = {s.name: s.latency.extra_us / 1e3 for s in others}
        return {measure: values for measure, values in measures.items() if values}

    def as_dict(self) -> dict[str, object]:
        """Return all of it in plain values, for JSON and for the table."""
        named = {key: value for key, value in vars(self).items() if key != "steps"}
        return {
            **named,
            "unknown_operators": {
                s.name: list(s.unknown_operators) for s in self.steps if s.unknown_operators
            },
            "measures": self.measures(),
        }


def measure_cost(
    backbone: str = "eegnet",
    dataset: str = "deap",
    optimizers: Sequence[str] = PAPER_OPTIMIZERS,
    *,
    batch: int = 0,
    weight_decay: float = WEIGHT_DECAY,
    rounds: int = 25,
    threads: int = 1,
) -> Cost:
    """Measure the step of several optimizers, Adam always among them, on one network.

    The data set gives the shape of the windows; a batch size of 0 uses the paper's. Raises
    ConfigError if a name is not known or a number is out of range.
    """
    shape = shape_of(dataset)
    batch = batch or BATCHES.get(dataset, OTHER_BATCH)
    if batch < 2 or rounds < 1 or threads < 1:
        raise ConfigError("batch must be at least 2, rounds and threads at least 1.")
    entrants = entrants_of(optimizers)
    with one_thread_count(threads), isolated(0, torch.device("cpu")):
        model = build_backbone(backbone, shape)
        inputs = torch.randn(batch, shape.channels, shape.samples)
        labels = torch.randint(shape.classes, (batch,))
        with FlopCounterMode(display=False) as counted:
            cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
        network_flops = counted.get_total_flops()
    latencies = measure_latency(
        entrants, model, inputs, weight_decay=weight_decay, rounds=rounds, threads=threads
    )
    steps = [
        _step_cost(entrant, model, inputs, weight_decay, latencies[entrant.name])
        for entrant in entrants
    ]
    trained = [p for p in model.parameters() if p.grad is not None]
    return Cost(
        backbone=backbone,
        dataset=dataset,
        parameters=sum(p.numel() for p in trained),
        tensors=len(trained),
        batch=batch,
        weight_decay=weight_decay,
        threads=threads,
        rounds=rounds,
        network_flops=network_flops,
        steps=tuple(steps),
    )


def measure_growth(
    optimizers: Sequence[str] = PAPER_OPTIMIZERS,
    sizes: Sequence[int] = GROWTH_SIZES,
    *,
    rounds: int = 15,
    threads: int = 1,
) -> list[dict[str, object]]:
    """Measure how the time of a step grows with the number of parameters.

    Returns one row per size and optimizer: its time, and relative to Adam's.
    """
    entrants = entrants_of(optimizers)
    rows: list[dict[str, object]] = []
    for size, latencies in growth(entrants, sizes, rounds=rounds, threads=threads).items():
        for entrant in entrants:
            latency = latencies[entrant.name]
            rows.append(
                {
                    "parameters": size,
                    "optimizer": entrant.name,
                    "step_us": latency.step_us,
                    "latency_ratio": latency.ratio,
                    "latency_ratio_low": latency.ratio_low,
                    "latency_ratio_high": latency.ratio_high,
                }
            )
    return rows


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
    entrant: Entrant, model: nn.Module, inputs: torch.Tensor, weight_decay: float, latency: Latency
) -> StepCost:
    """Count the operations of one period of steps, after a warm-up."""
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
        pass_flops = 0
        if period > 1:
            with FlopCounterMode(display=False) as passes:
                for _ in range(period):
                    step()
            pass_flops = passes.get_total_flops()
    trained = [p for p in model_copy.parameters() if p.grad is not None]
    curvature = SOPHIA_CURVATURE if entrant.optimizer == "sophia" else 0
    spread = curvature * sum(p.numel() for p in trained) / period
    all_bytes, needed_bytes = state_bytes(optimizer)
    return StepCost(
        name=entrant.name,
        optimizer=entrant.optimizer,
        flops=counter.total + spread,
        pass_flops=pass_flops / period,
        unknown_operators=tuple(
            sorted(name for name in counter.unknown if not name.startswith("_record_function"))
        ),
        state_bytes=all_bytes,
        needed_bytes=needed_bytes,
        latency=latency,
    )


def _is_afor(name: str) -> bool:
    entry = find_entry(name)
    return (entry.target if entry else name) == "afor:AFOR"
