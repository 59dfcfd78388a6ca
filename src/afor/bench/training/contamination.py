"""Contaminate training batches: wrong labels or too large amplitudes, in windows or in bursts.

What is contaminated depends on the seed of the run and the number of the step, never on the
optimizer or on earlier draws, so that comparisons stay paired. Windows of validation and test
subjects are never changed, nor are those that a test subject is adapted with.
"""

from dataclasses import replace

import numpy as np
import torch

from afor.bench.common.seeding import derive_substep
from afor.bench.training.batches import Batch
from afor.bench.training.placement import to_device
from afor.bench.training.run_spec import Contamination


def contaminate(
    batch: Batch, contamination: Contamination, seed: int, step: int, n_classes: int
) -> Batch:
    """Return the batch as the network sees it in one step of a contaminated training.

    Steps are grouped into blocks of `length`; a burst is a whole block, drawn with probability
    `share`. Without bursts, each window is drawn by itself with probability `share`.

    Args:
        batch: A normalised training batch; it is not changed.
        contamination: What is contaminated, and how often.
        seed: Seed of the run for this purpose.
        step: Number of the step, from 0.
        n_classes: Number of classes.
    """
    block_seed, window_seed = derive_substep(seed, 0), derive_substep(seed, 1)
    windows = np.random.default_rng(derive_substep(window_seed, step))
    if contamination.in_bursts:
        block = derive_substep(block_seed, step // (contamination.length or 1))
        is_burst = np.random.default_rng(block).random() < contamination.share
        is_contaminated = np.full(len(batch.subjects), is_burst)
    else:
        is_contaminated = windows.random(len(batch.subjects)) < contamination.share
    if not is_contaminated.any():
        return batch
    picked = to_device(torch.from_numpy(is_contaminated), batch.labels.device)
    if contamination.gain is not None:
        larger = batch.inputs * contamination.gain
        return replace(batch, inputs=torch.where(picked[:, None, None], larger, batch.inputs))
    drawn = windows.integers(1, n_classes, len(is_contaminated))
    offsets = to_device(torch.from_numpy(drawn), picked.device)
    return replace(
        batch, labels=torch.where(picked, (batch.labels + offsets) % n_classes, batch.labels)
    )
