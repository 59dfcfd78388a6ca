"""Derive all seeds of a study, and seed torch.

A seed depends on the study, the dataset, the fold, the repetition and its purpose. It never depends
on the optimizer, so all optimizers start from the same weights, see the same batches and drop the
same units: their results can be compared in pairs.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import torch

Purpose = Literal[
    "folds",  # the order in which subjects are cut into folds
    "validation",  # which subjects validate in this repetition
    "weights",  # the initial weights of the backbone
    "batches",  # the order of the training windows
    "dropout",  # every random number drawn inside the network while it trains
    "labels",  # random numbers of the optimizer: Sophia's sampled labels
    "contamination",  # which training batches and windows are contaminated
    "adaptation",  # batches and dropout while adapting to a test subject
]


def derive_seed(
    study_seed: int,
    dataset: str,
    fold: int | None,
    repetition: int | None,
    purpose: Purpose,
) -> int:
    """Derive the seed for one purpose.

    Args:
        study_seed: Seed of the study.
        dataset: Name of the data set.
        fold: Fold, or None for a seed that all folds share.
        repetition: Repetition of the fold, or None for a seed that all repetitions share.
        purpose: What the seed is for.

    Returns:
        A number below 2**63.

    Example:
        >>> derive_seed(0, "deap", 3, 1, "weights")
        2862299564799530210
    """
    if purpose not in get_args(Purpose):
        purposes = ", ".join(get_args(Purpose))
        raise ValueError(f"unknown purpose {purpose!r} of a seed; it must be one of {purposes}")
    return _hash([study_seed, dataset, fold, repetition, purpose])


def derive_substep(seed: int, step: int) -> int:
    """Derive the seed of one step from the seed of a run, so that a resumed run draws the same."""
    return _hash([seed, step])


def _hash(key: list[int | str | None]) -> int:
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def seed_torch(seed: int) -> None:
    """Seed torch's global generators on every device."""
    import torch

    torch.manual_seed(seed)


@contextmanager
def isolated(seed: int, device: "torch.device") -> Iterator[None]:
    """Draw from `seed` inside the block and leave the global generators as they were."""
    import torch

    on_mps = device.type == "mps"
    cuda = [device.index or 0] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        mps_state = torch.mps.get_rng_state() if on_mps else None  # fork_rng does not know mps
        try:
            seed_torch(seed)
            yield
        finally:
            if mps_state is not None:
                torch.mps.set_rng_state(mps_state)
