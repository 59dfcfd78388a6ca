"""Schedule batches in blocks of few subjects, and shuffle the same windows as a control."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError
from afor.bench.training.batches import Side

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Schedule:
    """The windows of every step of a training, and the steps at which subjects change."""

    batches: tuple[Indices, ...]
    changes: tuple[int, ...]  # position of the first batch of each block but the first
    rounds: tuple[int, ...]  # position of the first batch of each round over all subjects


def blocked(
    side: Side,
    batch_size: int,
    seed: int,
    *,
    subjects_per_block: int = 1,
    batches_per_block: int = 20,
    rounds: int = 10,
) -> Schedule:
    """Make a schedule that stays with a few subjects for a block of batches, then changes them.

    Every subject has `rounds` blocks, and no subject is in two successive ones. Subjects that do
    not fill a block are left out of the round. Raises ConfigError if a number is too small or there
    are too few subjects to change.
    """
    rng = np.random.default_rng(seed)
    codes = np.unique(side.subject_codes)
    if min(subjects_per_block, batches_per_block, rounds) < 1 or batch_size < 2:
        raise ConfigError(
            "Blocks need at least one subject, one batch, one round, and batches of two windows."
        )
    if 2 * subjects_per_block > len(codes):
        raise ConfigError(
            f"Blocks of {subjects_per_block} subjects cannot change among {len(codes)} training "
            f"subjects: at most {len(codes) // 2} fit. Lower subjects_per_block."
        )
    pools = {code: side.indices[side.subject_codes == code] for code in codes}
    batches: list[Indices] = []
    changes, starts = [], []
    previous: set[int] = set()  # the subjects of the block before
    for _ in range(rounds):
        starts.append(len(batches))
        order = rng.permutation(codes)
        while previous & set(order[:subjects_per_block].tolist()):
            order = rng.permutation(codes)
        for first in range(0, len(order) - subjects_per_block + 1, subjects_per_block):
            subjects = order[first : first + subjects_per_block]
            previous = set(subjects.tolist())
            if batches:
                changes.append(len(batches))
            pool = np.concatenate([pools[code] for code in subjects])
            batches += _fill(rng, pool, batch_size, batches_per_block)
    return Schedule(tuple(batches), tuple(changes), tuple(starts))


def shuffled(schedule: Schedule, seed: int) -> Schedule:
    """Shuffle the windows of each round: same windows, sizes and steps, but no blocks."""
    rng = np.random.default_rng(seed)
    batches: list[Indices] = []
    ends = (*schedule.rounds[1:], len(schedule.batches))
    for start, end in zip(schedule.rounds, ends, strict=True):
        of_round = schedule.batches[start:end]
        cuts = np.cumsum([len(batch) for batch in of_round])[:-1]
        dealt = np.split(rng.permutation(np.concatenate(of_round)), cuts)
        batches += [np.sort(batch) for batch in dealt]
    return Schedule(tuple(batches), schedule.changes, schedule.rounds)


def _fill(rng: np.random.Generator, pool: Indices, batch_size: int, count: int) -> list[Indices]:
    """Draw `count` batches; no window is drawn again before all others were drawn."""
    size = min(batch_size, len(pool))
    if size < 2:
        raise ConfigError(
            "A training subject has a single window, and batch norm cannot train on it. "
            "Leave the subject out, or raise subjects_per_block."
        )
    per_pass = len(pool) // size
    passes = [rng.permutation(pool) for _ in range(-(-count // per_pass))]
    batches = [order[i * size : (i + 1) * size] for order in passes for i in range(per_pass)]
    return [np.sort(batch) for batch in batches[:count]]
