"""Time contenders in interleaved rounds, so that all meet the same state of the machine.

A sample is the median over a short block of steps; a round takes one sample of every contender, in
random order. What slows the machine for a while slows a whole round, and ratios are taken within
rounds.
"""

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

MAX_BLOCK = 200  # steps


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    block_s: float  # a block takes about this long, one step at least
    rounds: int  # at least
    budget_s: float  # go on with rounds until this has passed
    max_rounds: int


@dataclass
class Racer:
    """A contender: `before` makes the gradients, `step` is what is timed."""

    name: str
    before: Callable[[], None]
    step: Callable[[], object]
    period: int = 1  # steps after which the work repeats; a sample averages over whole periods
    clock: Callable[[], int] = time.perf_counter_ns  # or process_time_ns
    samples_us: list[float] = field(default_factory=list)  # of step alone
    whole_us: list[float] = field(default_factory=list)  # of before and step

    def run(self, steps: int) -> tuple[float, float]:
        """Return the median time of `step`, and of `before` and `step`, in microseconds.

        With a period above 1 it is the mean, so that the work of every step counts.
        """
        alone, whole = [], []
        clock = self.clock
        for _ in range(steps):
            start = clock()
            self.before()
            middle = clock()
            self.step()
            end = clock()
            alone.append((end - middle) / 1e3)
            whole.append((end - start) / 1e3)
        average = statistics.fmean if self.period > 1 else statistics.median
        return average(alone), average(whole)


def warm_up(racer: Racer) -> float:
    """Take the first steps and return the microseconds a step will take."""
    racer.run(1)  # creates the state
    return racer.run(1)[1]


def race(racers: Sequence[Racer], effort: Effort, seed: int = 0) -> None:
    """Measure all racers in interleaved rounds; each round appends one sample to each."""
    turns = random.Random(seed)
    blocks = {}
    for racer in racers:
        steps = effort.block_s * 1e6 / max(warm_up(racer), 1e-3)
        periods = max(1, min(MAX_BLOCK, round(steps)) // racer.period)
        blocks[racer.name] = periods * racer.period
    began = time.perf_counter()
    with _no_garbage_collection():
        for done in range(effort.max_rounds):
            if done >= effort.rounds and time.perf_counter() - began > effort.budget_s:
                break
            for racer in turns.sample(racers, len(racers)):
                steps = blocks[racer.name]
                if steps > 1:
                    racer.run(1)  # bring its state back into the cache
                alone, whole = racer.run(steps)
                racer.samples_us.append(alone)
                racer.whole_us.append(whole)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
