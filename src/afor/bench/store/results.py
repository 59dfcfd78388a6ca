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
    optimizer: str  # the name of the entry in the study, e.g. "afor" or "adam_again"
    fold: int
    draw: int
    test_subjects: tuple[str, ...]
    metrics: Mapping[str, float]  # accuracy, weighted_f1, macro_f1, balanced_accuracy, kappa, ...
    majority_accuracy: float  # of always answering the training majority class, on the test windows
    classes: int
    test_windows: int
    train_counts: tuple[int, ...] = ()  # training windows of each class; empty if not known
    test_counts: tuple[int, ...] = ()  # test windows of each class; empty if not known
    key: str = ""  # of the run in the store
    role: Role | None = None  # of its optimizer entry; None in files without roles
    elapsed_s: float | None = None  # time of the run in seconds; None in files without it
    # What a comparison assumes of it, see `study.protocol`; shared by the runs that agree in it.
    protocol: Mapping[str, str] = field(default_factory=dict)

    @property
    def data_kind(self) -> str:
        """Whether its data are recorded, a stand-in, synthetic or simulated."""
        return setting(self.protocol, DATA_KIND)
