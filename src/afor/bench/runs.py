"""What a run is made from and what comes out of it. Nothing here imports torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from afor.bench.errors import ConfigError
from afor.bench.metrics import Metrics
from afor.bench.seeds import Purpose, derive_seed
from afor.bench.splits import Split

Normalization = Literal["zscore", "window", "none"]


@dataclass(frozen=True)
class RunSettings:
    """What decides the numbers of one run, besides the windows and the network."""

    dataset: str  # enters the seeds
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
        """Return the seed of this run for one purpose; the optimizer has no part in it."""
        split = self.split
        return derive_seed(self.study_seed, self.dataset, split.fold, split.draw, purpose)


@dataclass(frozen=True)
class Epoch:
    """One line of the history."""

    train_loss: float  # mean over the epoch's batches, while training
    validation_loss: float
    validation_accuracy: float
    train_s: float
    validation_s: float


@dataclass(frozen=True)
class RunRecord:
    """What came out. A diverged run has no test result: its test data was never touched."""

    status: Literal["done", "diverged"]
    reason: str  # empty when done
    history: tuple[Epoch, ...]
    best_epoch: int | None  # position in the history
    test: Metrics | None  # per window
    test_trials: Metrics | None  # per trial, by mean logits
    train_class_counts: tuple[int, ...]
    parameters: int
    steps: int
    traces: Mapping[str, Mapping[str, list[float]]]  # AFOR's controller; {} for the others
    device: str
    elapsed_s: float
    beta2_by_tensor: Mapping[str, float] = field(default_factory=dict)  # AFOR's mean over all steps

    def numbers(self) -> dict[str, object]:
        """Return all that must be the same, bit by bit, when the run is repeated."""
        epochs = [(e.train_loss, e.validation_loss, e.validation_accuracy) for e in self.history]
        return {
            "status": self.status,
            "reason": self.reason,
            "history": epochs,
            "best_epoch": self.best_epoch,
            "test": self.test,
            "test_trials": self.test_trials,
            "steps": self.steps,
            "traces": self.traces,
            "beta2_by_tensor": self.beta2_by_tensor,
        }
