"""Define the result of a run as statistics, tables and figures use it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from afor.bench.study.protocol import DATA_KIND, setting
from afor.bench.study.roles import Role


@dataclass(frozen=True)
class RunResult:
    """The result of one finished run."""

    study: str
    dataset: str
    backbone: str
    method: str  # the name of the entry in the study, e.g. "afor" or "adam_again"
    fold: int
    repetition: int
    test_subjects: tuple[str, ...]
    metrics: Mapping[str, float]  # accuracy, weighted_f1, macro_f1, balanced_accuracy, kappa, ...
    majority_accuracy: float  # of always answering the training majority class, on the test windows
    classes: int
    test_windows: int
    train_counts: tuple[int, ...] = ()  # training windows of each class; empty if not known
    test_counts: tuple[int, ...] = ()  # test windows of each class; empty if not known
    key: str = ""  # of the run in the store
    role: Role | None = None  # of its method; None in files without roles
    elapsed_s: float | None = None  # time of the run in seconds; None in files without it
    # What a comparison assumes of it, see `study.protocol`; shared by the runs that agree in it.
    protocol: Mapping[str, str] = field(default_factory=dict)
    # Metrics of a linear model on the same data and split; empty if none was fitted.
    linear: Mapping[str, float] = field(default_factory=dict)

    @property
    def data_kind(self) -> str:
        """Whether its data are recorded, a stand-in, synthetic or simulated."""
        return setting(self.protocol, DATA_KIND)


def fit_key(protocol: Mapping[str, str]) -> str:
    """Return what a linear fit depends on: the data and the split of a run; empty if not known."""
    parts = [protocol.get("data.fingerprint", ""), protocol.get("split", "")]
    return "/".join(parts) if all(parts) else ""
