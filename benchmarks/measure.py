"""One workload at a time: builds the contenders, lets them take turns, returns their records."""

import copy
import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from contenders import CONTENDERS, YARDSTICK, Contender, NotAvailableError, Stepper, state_bytes
from results import Record
from torch import Tensor, nn
from torch.nn import functional as F
from workloads import EEGNet, Training, Workload

from afor.bench.analyses.cost.timing import Effort, Racer, race, warm_up

SCALING_CONTENDERS = ("adam", "adamw-fused", "released", "afor-loop", "afor-fused")
DATA_SEED, WEIGHT_SEED = 1, 2

Clock = Callable[[], int]  # nanoseconds


def measure_set(
    workload: Workload,
    threads: int,
    gradients: str,
    names: Sequence[str],
    effort: Effort,
    clock: Clock = time.perf_counter_ns,
) -> Iterator[Record]:
    """Time the optimizers alone on a set of parameters.

    Every contender has parameters and state of its own; the gradients are shared. They are `kept`,
    the same tensors at every step, or `fresh`, new tensor objects at other addresses at every step,
    as after ``zero_grad(set_to_none=True)``. Attaching them is not timed.
    """
    torch.set_num_threads(threads)
    copies = 2 if gradients == "fresh" else 1
    shared = [workload.make(DATA_SEED + i) for i in range(copies)]

    def enter(contender: Contender) -> tuple[Racer, Stepper]:
        model = nn.ParameterList(workload.make(WEIGHT_SEED))
        stepper = contender.build(model, None)
        before = _attach(list(model), shared)
        racer = ProfiledRacer if contender.profiled else Racer
        return racer(contender.name, before, stepper.step, stepper.period, clock), stepper

    def record(contender: Contender, missing: str = "") -> Record:
        return Record(
            workload.name, workload.title, threads, gradients, contender.name, contender.label,
            workload.parameters, len(workload.shapes), missing=missing,
        )  # fmt: skip

    entrants = []
    for name in names:
        if name in workload.left_out:
            yield record(CONTENDERS[name], f"left out: {workload.left_out[name]}")
        else:
            entrants.append(CONTENDERS[name])
    run = _race_in_pairs if workload.is_large else _race_together
    yield from run(entrants, enter, record, effort)


_Enter = Callable[[Contender], tuple[Racer, Stepper]]
_MakeRecord = Callable[..., Record]


def _race_together(
    entrants: Sequence[Contender], enter: _Enter, record: _MakeRecord, effort: Effort
) -> Iterator[Record]:
    entered: list[tuple[Contender, Racer, Stepper]] = []
    for contender in entrants:
        try:
            racer, stepper = enter(contender)
            warm_up(racer)
        except NotAvailableError as reason:
            yield record(contender, f"not available: {reason}")
            continue
        entered.append((contender, racer, stepper))
    race([racer for _, racer, _ in entered], effort)
    yardstick = next(r for c, r, _ in entered if c.name == YARDSTICK)
    for contender, racer, stepper in entered:
        filled = record(contender)
        yield _fill(filled, racer, yardstick, stepper, session="/".join(map(str, filled.group)))


def _race_in_pairs(
    entrants: Sequence[Contender], enter: _Enter, record: _MakeRecord, effort: Effort
) -> Iterator[Record]:
    """Race each contender against the yardstick alone, so that two states are alive at a time."""
    standard = CONTENDERS[YARDSTICK]
    yardstick, yardstick_stepper = enter(standard)
    seen: list[float] = []
    for contender in entrants:
        if contender is standard:
            continue
        try:
            racer, stepper = enter(contender)
        except NotAvailableError as reason:
            yield record(contender, f"not available: {reason}")
            continue
        rival = Racer(yardstick.name, yardstick.before, yardstick.step, clock=racer.clock)
        race([rival, racer], effort)
        seen += rival.samples_us
        filled = record(contender)
        session = "/".join(map(str, (*filled.group, contender.name)))
        yield _fill(filled, racer, rival, stepper, session)
        del racer, stepper
        gc.collect()
    if not seen:
        race([yardstick], effort)
        seen = yardstick.samples_us
    yardstick.samples_us = seen
    filled = record(standard)
    session = "/".join(map(str, filled.group))
    yield _fill(filled, yardstick, yardstick, yardstick_stepper, session)


def _fill(filled: Record, racer: Racer, rival: Racer, stepper: Stepper, session: str) -> Record:
    filled.session = session
    filled.samples_us = racer.samples_us
    filled.yardstick_us = rival.samples_us
    filled.state_bytes = state_bytes(stepper.optimizer)
    return filled


class ProfiledRacer(Racer):
    """A contender whose steps a profiler watches."""

    def run(self, steps: int) -> tuple[float, float]:
        """Do the same under torch.profiler."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            return super().run(steps)


def _attach(params: Sequence[Tensor], shared: Sequence[Sequence[Tensor]]) -> Callable[[], None]:
    shared = [
        [
            g if g.stride() == p.stride() else torch.empty_like(p).copy_(g)
            for p, g in zip(params, gs, strict=True)
        ]
        for gs in shared
    ]
    trained = [i for i, param in enumerate(params) if param.requires_grad]
    for i in trained:
        params[i].grad = shared[0][i].detach()
    if len(shared) == 1:
        return lambda: None
    turn = 0

    def attach() -> None:
        nonlocal turn
        turn = 1 - turn
        for i in trained:
            params[i].grad = shared[turn][i].detach()

    return attach


def measure_training(
    training: Training,
    threads: int,
    names: Sequence[str],
    effort: Effort,
    clock: Clock = time.perf_counter_ns,
) -> Iterator[Record]:
    """Time whole training steps of EEGNet, and the optimizer's part of them."""
    torch.set_num_threads(threads)
    torch.manual_seed(DATA_SEED)
    t = training
    inputs = torch.randn(t.batch, t.channels, t.samples)
    labels = torch.randint(t.classes, (t.batch,))
    start = EEGNet(t.channels, t.samples, t.kernel, t.classes)
    tensors = list(start.parameters())

    def enter(contender: Contender) -> tuple[Racer, Stepper]:
        model = copy.deepcopy(start)
        stepper = contender.build(model, inputs)

        def before() -> None:
            stepper.optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(model(inputs), labels))

        return Racer(contender.name, before, stepper.step, stepper.period, clock), stepper

    racers: dict[str, Racer] = {}
    steppers: dict[str, Stepper] = {}
    records = []
    for name in names:
        record = Record(
            t.name, t.title, threads, "backward", name, CONTENDERS[name].label,
            sum(p.numel() for p in tensors), len(tensors),
        )  # fmt: skip
        records.append(record)
        try:
            racers[name], steppers[name] = enter(CONTENDERS[name])
            warm_up(racers[name])
        except NotAvailableError as reason:
            racers.pop(name, None)
            record.missing = f"not available: {reason}"
    race(list(racers.values()), effort)
    for record in records:
        if record.contender in racers:
            racer = racers[record.contender]
            session = "/".join(map(str, record.group))
            _fill(record, racer, racers[YARDSTICK], steppers[racer.name], session)
            record.whole_us = racer.whole_us
    yield from records


def scaling_workload(parameters: int) -> Workload:
    """Return one tensor of that size."""
    return Workload(f"scaling-{parameters}", f"one tensor of {parameters:,}", ((parameters,),))


def available_threads(wanted: Sequence[int]) -> list[int]:
    """Return the thread counts that this machine has cores for."""
    cores = os.cpu_count() or 1
    return [threads for threads in wanted if threads <= cores]


def copy_gb_s(effort: Effort, megabytes: int = 400) -> list[float]:
    """Return samples of the rate at which memory is copied, reads and writes counted, in GB/s."""
    source = torch.ones(megabytes * 1_000_000 // 4)
    target = torch.empty_like(source)
    racer = Racer("copy", lambda: None, lambda: target.copy_(source))
    race([racer], effort)
    return [2 * megabytes * 1e6 / (us * 1e3) for us in racer.samples_us]
