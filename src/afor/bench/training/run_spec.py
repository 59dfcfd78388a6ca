"""The settings of one run. This module does not import torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from afor.bench.common.devices import Precision
from afor.bench.common.errors import ConfigError
from afor.bench.common.seeding import Purpose, derive_seed
from afor.bench.data.splits import Split

DEFAULT_TRAINER = "afor.bench.training.execute:train_run"

Normalization = Literal["zscore", "window", "none"]
Order = Literal["shuffled", "blocks", "stream"]
ContaminationKind = Literal["label_burst", "amplitude_burst", "label_noise", "amplitude"]
StateAfterTraining = Literal["kept", "reset"]
TestedWeights = Literal["best", "last"]
MAX_COUNT = 1_000_000  # of epochs, windows in a batch, passes; far above any real study
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Share = Annotated[float, Field(gt=0, lt=1)]


class Table(BaseModel):
    """A table of a study: every key is known, and no value is converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Contamination(Table):
    """Wrong labels or too large amplitudes in batches of training subjects."""

    kind: ContaminationKind
    share: Share  # of the steps for bursts, else of the windows
    length: Count | None = None  # batches in a burst
    gain: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None  # of the amplitude

    @model_validator(mode="after")
    def _fits(self) -> "Contamination":
        bursts, amplitudes = self.in_bursts, self.kind.startswith("amplitude")
        if (self.length is None) == bursts:
            need = "needs a length of at least 1 batch" if bursts else "has no length"
            raise ValueError(f'contamination "{self.kind}" {need}; got length = {self.length}')
        if (self.gain is None) == amplitudes:
            need = "needs a gain above 0" if amplitudes else "has no gain"
            raise ValueError(f'contamination "{self.kind}" {need}; got gain = {self.gain}')
        return self

    @property
    def in_bursts(self) -> bool:
        """Whether whole batches are contaminated, several in a row."""
        return self.kind.endswith("_burst")


class Adaptation(Table):
    """After the training, adapt to each test subject on the first part of their trials."""

    state: StateAfterTraining = "kept"  # of the optimizer, when the new subject arrives
    passes: Count = 5  # over the adaptation windows
    share: Share = 0.5  # of the trials of each class that adapt; the rest is tested


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
    clip_norm: float | None = None  # clip the global norm of the gradient before each step
    contamination: Contamination | None = None  # of training batches
    order: Order = "shuffled"
    passes: int = 1  # over each subject of a stream
    adaptation: Adaptation | None = None
    weights: TestedWeights = "best"  # tested: of the best validation accuracy, or after the end
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
            "clip_norm": self.clip_norm is None or 0 < self.clip_norm < math.inf,
            "passes": self.passes >= 1,
        }
        accepted = {
            "lr": "above 0",
            "clip_norm": "above 0",
            "weight_decay": "0 or above",
            "batch_size": "at least 2, for batch norm",
        }
        for key, holds in checks.items():
            if not holds:
                raise ConfigError(
                    f"{key} = {getattr(self, key)} cannot be used: "
                    f"it must be {accepted.get(key, 'at least 1')}."
                )

        if fault := order_fault(
            self.order, self.normalization, self.subjects_per_batch, self.passes
        ):
            raise ConfigError(fault)

    def seed(self, purpose: Purpose) -> int:
        """Return the seed of this run for one purpose; it does not depend on the optimizer."""
        split = self.split
        return derive_seed(self.study_seed, self.dataset, split.fold, split.draw, purpose)


def shared_settings(settings: RunSettings) -> RunSettings:
    """Return the settings without those in which the runs of a bundle may differ."""
    adaptation = settings.adaptation and settings.adaptation.model_copy(update={"state": "kept"})
    return replace(
        settings,
        optimizer="",
        lr=1.0,
        optimizer_settings={},
        weight_decay=0.0,
        clip_norm=None,
        adaptation=adaptation,
    )


def order_fault(
    order: Order, normalization: Normalization, subjects_per_batch: int | None, passes: int
) -> str:
    """Return why these settings do not fit together, or an empty text."""
    if order != "shuffled" and subjects_per_batch is not None:
        return (
            f'subjects_per_batch belongs to order = "shuffled"; with order = "{order}" every batch '
            f"holds one subject. Remove one of the two."
        )
    if order == "stream" and normalization == "zscore":
        return (
            'order = "stream" cannot have normalization = "zscore", whose statistics come from '
            'subjects that have not appeared yet. Choose "window" or "none".'
        )
    if order != "stream" and passes != 1:
        return f'passes = {passes} belongs to order = "stream"; max_epochs sets the others.'
    return ""
