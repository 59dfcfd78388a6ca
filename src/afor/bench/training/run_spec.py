"""The settings of a training, of a study and of one run. This module does not import torch."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from afor.bench.common.devices import Precision
from afor.bench.common.errors import ConfigError
from afor.bench.common.parameter_checks import show_value
from afor.bench.common.seeding import Purpose, derive_seed
from afor.bench.data.splits import Split

DEFAULT_TRAINER = "afor.bench.training.execute:train_run"

Normalization = Literal["zscore", "window", "none"]
Order = Literal["shuffled", "blocks", "stream"]
ContaminationKind = Literal["label_burst", "amplitude_burst", "label_noise", "amplitude"]
StateAfterTraining = Literal["kept", "reset"]
TestedWeights = Literal["best", "last"]
Schedule = Literal["constant", "cosine", "one_cycle", "warmup"]
MAX_COUNT = 1_000_000  # of epochs, windows in a batch, passes; far above any real study
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
BatchSize = Annotated[int, Field(ge=2, le=MAX_COUNT)]  # batch norm needs two windows
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]


class Table(BaseModel):
    """A table of a study: every key is known, and no value is converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Contamination(Table):
    """Wrong labels or too large amplitudes in batches of training subjects."""

    kind: ContaminationKind
    share: Share  # of the steps for bursts, else of the windows
    length: Count | None = None  # batches in a burst
    gain: Positive | None = None  # of the amplitude

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


class Training(Table):
    """The settings of a training that a study states, with the defaults of the paper."""

    lr: Positive = 1e-3
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-4  # Sec. IV-C
    decay_exempt: bool = False  # biases, scales and shifts of norms without weight decay
    # Of the learning rate, over all steps up to max_epochs; `lr` is its largest value.
    schedule: Schedule = "constant"
    batch_size: BatchSize = 64  # Sec. IV-C: 256 for DEAP, 64 for the others
    max_epochs: Count = 200  # Sec. IV-C
    patience: Count = 30  # Sec. IV-C; 15 in the search for the learning rate
    normalization: Normalization = "zscore"
    subjects_per_batch: Count | None = None  # None: windows of all training subjects are mixed
    # Train no tensor that cannot change what the network computes, such as a bias before a norm.
    hold_redundant: bool = False
    constraints: bool = True  # call the network's apply_constraints() after each step
    # Of the forward and backward pass in training; weights and evaluation stay float32.
    precision: Precision = "float32"
    clip_norm: Positive | None = None  # of the whole gradient, before each step
    order: Order = "shuffled"  # of the training subjects
    passes: Count = 1  # over each subject of a stream
    weights: TestedWeights = "best"  # tested: of the best validation accuracy, or after the end
    contamination: Contamination | None = None
    adaptation: Adaptation | None = None

    @model_validator(mode="after")
    def _order_fits(self) -> "Training":
        if self.order != "shuffled" and self.subjects_per_batch is not None:
            raise ValueError(
                f'subjects_per_batch belongs to order = "shuffled"; with order = "{self.order}" '
                f"every batch holds one subject. Remove one of the two"
            )
        if self.order == "stream" and self.normalization == "zscore":
            raise ValueError(
                'order = "stream" cannot have normalization = "zscore", whose statistics come from '
                'subjects that have not appeared yet. Choose "window" or "none"'
            )
        if self.order != "stream" and self.passes != 1:
            raise ValueError(
                f'passes = {self.passes} belongs to order = "stream"; max_epochs sets the others'
            )
        return self


class RunSettings(Training):
    """Everything that determines the result of a run besides the windows and the network.

    Raises:
        ConfigError: A value cannot be used.
    """

    dataset: str  # name, part of the seeds
    split: Split
    optimizer: str
    optimizer_settings: dict[str, Any] = Field(default_factory=dict)
    study_seed: int = 0
    device: str = "cpu"
    threads: Count = 1

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(map(str, first["loc"]))
            found = f"{key} = {show_value(first['input'])} is not valid: " if key else ""
            fault = first["msg"].removeprefix("Value error, ")
            raise ConfigError(
                f"{found}{fault[0].lower() if key else fault[0]}{fault[1:]}."
            ) from None

    def changed(self, **values: Any) -> "RunSettings":
        """Return these settings with other values; raise ConfigError if they cannot be used."""
        return RunSettings(**{**dict(self), **values})

    def seed(self, purpose: Purpose) -> int:
        """Return the seed of this run for one purpose; it does not depend on the optimizer."""
        split = self.split
        return derive_seed(self.study_seed, self.dataset, split.fold, split.repetition, purpose)


def shared_settings(settings: RunSettings) -> RunSettings:
    """Return the settings without those in which the runs of a bundle may differ."""
    adaptation = settings.adaptation and settings.adaptation.model_copy(update={"state": "kept"})
    return settings.changed(
        optimizer="",
        lr=1.0,
        optimizer_settings={},
        weight_decay=0.0,
        decay_exempt=False,
        schedule="constant",
        clip_norm=None,
        adaptation=adaptation,
    )
