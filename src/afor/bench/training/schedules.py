"""Learning rates that change during a training, step by step.

Each schedule is a function of the number of the step alone, so that a run repeats bit for bit.
"""

import math

from afor.bench.training.batches import Side, epoch_batches
from afor.bench.training.run_spec import RunSettings, Schedule

WARMUP_SHARE, WARMUP_START = 0.1, 0.01  # of the steps, of the learning rate
# One-cycle: the share of the steps that rise, and the first and last rates as parts of the largest.
RISING_SHARE, FIRST_PART, LAST_PART = 0.3, 1 / 25, 1 / 25e4


def rate_factor(schedule: Schedule, step: int, steps: int) -> float:
    """Return the learning rate of a step, counted from 0, as a part of the largest one.

    ``"cosine"`` falls to 0; ``"one_cycle"`` rises from 1/25 during the first 30 % of the steps and
    falls to 1/250 000, both along a cosine; ``"warmup"`` rises from 1/100 along a line during the
    first 10 % and stays.

    >>> [round(rate_factor("cosine", step, 4), 3) for step in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    step = min(step, steps)
    if schedule == "cosine":
        return _between(1.0, 0.0, step / steps)
    if schedule == "one_cycle":
        top = RISING_SHARE * steps - 1
        if step <= top:
            return _between(FIRST_PART, 1.0, step / top)
        return _between(1.0, LAST_PART, min((step - top) / (steps - 1 - top), 1.0))
    if schedule == "warmup":
        rising = max(round(WARMUP_SHARE * steps), 1)
        return WARMUP_START + (1 - WARMUP_START) * min(step / rising, 1.0)
    return 1.0


def _between(start: float, end: float, share: float) -> float:
    """Return the value between two others, along half a period of the cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def planned_steps(settings: RunSettings, side: Side) -> int:
    """Return the number of steps of a training that early stopping does not end."""
    if settings.order == "stream":
        parts = side.by_subject().values()
        return settings.passes * sum(
            len(epoch_batches(part, settings.batch_size, 0)) for part in parts
        )
    batches = epoch_batches(
        side, settings.batch_size, 0, settings.subjects_per_batch, settings.order
    )
    return settings.max_epochs * len(batches)
