"""The settings of one run. This module does not import torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from afor.bench.common.devices import Precision
from afor.bench.common.errors import ConfigError
from afor.bench.common.seeding import Purpose, derive_seed
from afor.bench.data.splits import Split

Normalization = Literal["zscore", "window", "none"]


@dataclass(frozen=True)
class RunSettings:
    """Everything that determines the result of a run besides the windows and the network."""

    dataset: str  # name, part of the seeds
    split: Split
    optimizer: str
    lr: float
    optimizer_settings: Mapping[str, object] = field(default_factory=dict)
    weight_decay: float = 1e-4  # Sec. IV-C
    batch_size: int = 64  # Sec. IV-C: 256 for DEAP, 64 for the others
    max_epochs: int = 200  # Sec. IV-C
    patience: int = 30  # Sec. IV-C; 15 in the search for the learning rate
    normalization: Normalization = "zscore"
    subjects_per_batch: int | None = None  # None: windows of all training subjects are mixed
    constraints: bool = True  # call the network's apply_constraints() after each step
    study_seed: int = 0
    device: str = "cpu"
    threads: int = 1
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        checks = {
            "lr": 0 < self.lr < math.inf,
            "weight_decay": 0 <= self.weight_decay < math.inf,
            "batch_size": self.batch_size >= 2,
            "max_epochs": self.max_epochs >= 1,
            "patience": self.patience >= 1,
            "threads": self.threads >= 1,
            "subjects_per_batch": self.subjects_per_batch is None or self.subjects_per_batch >= 1,
        }
        accepted = {
            "lr": "above 0",
            "weight_decay": "0 or above",
            "batch_size": "at least 2, for batch norm",
        }
        for key, holds in checks.items():
            if not holds:
                raise ConfigError(
                    f"{key} = {getattr(self, key)} cannot be used: "
                    f"it must be {accepted.get(key, 'at least 1')}."
                )

    def seed(self, purpose: Purpose) -> int:
        """Return the seed of this run for one purpose; it does not depend on the optimizer."""
        split = self.split
        return derive_seed(self.study_seed, self.dataset, split.fold, split.draw, purpose)
