"""The result of a run, and its encoding as bytes. This module imports neither torch nor NumPy."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

Status = Literal["done", "diverged", "failed"]
FORMAT = 1
CLEAR = 0.02  # of ln(classes): a loss that fell by less has not left the level of guessing
PROBABILITY_METRICS = ("auroc", "nll", "brier", "calibration_error")
METRICS = (
    *("accuracy", "weighted_f1", "macro_f1", "balanced_accuracy", "kappa"),
    *PROBABILITY_METRICS,
)
# Of streams, and of runs that adapt to their test subjects.
PROTOCOL_METRICS = ("prequential_accuracy", "prequential_nll", "accuracy_before", "nll_before")


@dataclass(frozen=True)
class Metrics:
    """Metrics of one set of predictions, and the confusion matrix.

    The metrics of probabilities are None if a trainer gives predictions alone.
    """

    n: int
    accuracy: float
    weighted_f1: float  # each class weighted by its true count: the paper's wF1
    macro_f1: float  # over the classes that occur as truth or prediction
    balanced_accuracy: float  # mean recall over the classes that occur as truth
    kappa: float  # 0 where one class alone makes it undefined
    confusion: tuple[tuple[int, ...], ...]  # rows: truth, columns: prediction
    nll: float | None = None  # mean negative log-likelihood of the true class, in nats
    brier: float | None = None  # mean squared distance from the true class, between 0 and 2
    calibration_error: float | None = None  # expected, of the confidence in the predicted class
    auroc: float | None = None  # mean of one class against the rest; None where one class occurs


@dataclass(frozen=True)
class Epoch:
    """The losses, accuracy and times of one epoch."""

    train_loss: float  # mean over the epoch's batches, while training
    validation_loss: float
    validation_accuracy: float
    train_s: float
    validation_s: float


@dataclass(frozen=True)
class NextSubject:
    """The score on a subject of a stream before the training on them."""

    subject: str
    windows: int
    accuracy: float
    nll: float


@dataclass(frozen=True)
class RunRecord:
    """The result of one training. A diverged run has no test result: it was never tested."""

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
    prequential: tuple[NextSubject, ...] = ()  # of a stream, from its second subject on
    before_adaptation: Metrics | None = None  # on the windows that are tested after it
    processor_s: float | None = None  # time of the processor, which other programs do not change

    def numbers(self) -> dict[str, object]:
        """Return the values that must be the same, bit for bit, if the run is repeated."""
        names = (
            *("status", "reason", "best_epoch", "test", "test_trials", "steps", "traces"),
            *("beta2_by_tensor", "prequential", "before_adaptation"),
        )
        epochs = [(e.train_loss, e.validation_loss, e.validation_accuracy) for e in self.history]
        return {"history": epochs, **{name: getattr(self, name) for name in names}}

    def metrics(self) -> dict[str, float]:
        """Return the metrics that this record has; {} if it was not tested.

        Those of a stream are means over its subjects, each counted once.
        """
        values = {name: getattr(self.test, name, None) for name in METRICS}
        if self.prequential:
            for name in ("accuracy", "nll"):
                scores = [getattr(score, name) for score in self.prequential]
                values[f"prequential_{name}"] = math.fsum(scores) / len(scores)
        if self.before_adaptation is not None:
            before = self.before_adaptation
            values |= {"accuracy_before": before.accuracy, "nll_before": before.nll}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended: done, diverged or failed."""

    key: str
    status: Status
    reason: str  # empty when done
    spec: dict[str, Any]
    record: RunRecord | None  # None when failed
    traceback: str
    environment: dict[str, str]
    finished_at: str  # UTC
    elapsed_s: float


def encode(run: FinishedRun) -> bytes:
    """Return a run as JSON, from which `decode` restores every number bit for bit, NaN included."""
    return json.dumps({"format": FORMAT, **asdict(run)}, separators=(",", ":")).encode()


def decode(content: bytes | str) -> FinishedRun:
    """Read a run that `encode` wrote.

    Types and the consistency of the parts are checked, so that tables and exports may rely on them.

    Raises:
        ValueError: The content is not a valid run.
    """
    try:
        stored = _STORED_RUN.validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        reason = f"{key}: {first['msg']}" if key else first["msg"]
        raise ValueError(f"not a finished run ({reason})") from None
    if stored.format != FORMAT:
        raise ValueError("a run of another format")
    run = FinishedRun(**{name: getattr(stored, name) for name in _FIELDS})
    if fault := _fault(run):
        raise ValueError(f"not a finished run ({fault})")
    return run


@dataclass(frozen=True)
class _StoredRun(FinishedRun):
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    format: int


_STORED_RUN = TypeAdapter(_StoredRun)
_FIELDS = tuple(field.name for field in fields(FinishedRun))


def _fault(run: FinishedRun) -> str:
    """Return an error message if the parts of a run are inconsistent, else an empty text."""
    split, data = run.spec.get("split"), run.spec.get("data")
    tested = split.get("test") if isinstance(split, dict) else None
    if not (isinstance(tested, list) and tested and all(isinstance(name, str) for name in tested)):
        return "spec.split.test is no list of subjects"
    if not (isinstance(data, dict) and isinstance(data.get("fingerprint"), str)):
        return "spec.data.fingerprint is missing"
    record = run.record
    if (record is None) != (run.status == "failed"):
        return f"a {run.status} run {'without' if record is None else 'with'} a record"
    if record is None:
        return ""
    if record.status != run.status:
        return f"a {run.status} run whose record is {record.status}"
    if record.best_epoch is not None and not 0 <= record.best_epoch < len(record.history):
        return f"best_epoch {record.best_epoch} of {len(record.history)} epochs"
    if (record.test is None) != (run.status != "done"):
        return f"a {run.status} run {'without' if record.test is None else 'with'} a test result"
    for test in (record.test, record.test_trials):
        if test is None:
            continue
        counts = [count for row in test.confusion for count in row]
        if (
            any(len(row) != len(test.confusion) for row in test.confusion)
            or min(counts, default=-1) < 0
        ):
            return "confusion is no square table of counts"
        if sum(counts) != test.n or test.n < 1:
            return f"confusion counts {sum(counts)} windows or trials, n is {test.n}"
        if len(record.train_class_counts) != len(test.confusion):
            return (
                f"{len(record.train_class_counts)} classes to train, {len(test.confusion)} to test"
            )
    return ""
