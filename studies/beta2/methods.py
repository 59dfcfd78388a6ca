"""Tell which method an entry of the studies on beta2 is, whatever its name and learning rate."""

from dataclasses import dataclass
from pathlib import Path

from afor.bench.stats.labels import method_label
from afor.bench.store.files import load_results
from afor.bench.store.results import RunResult
from afor.bench.study.schema import OptimizerEntry, Study, load_study

FOLDER = Path(__file__).parent
REFERENCE = 0.999
LABELS = {  # of the optimizers in this folder
    "kalman:KalmanAdamW": "Kalman β₂",
    "per_subject:PerSubjectAdamW": "AdamW v per subject",
}


@dataclass(frozen=True)
class Method:
    """An optimizer, with or without clipping and a reset of its state."""

    optimizer: str
    beta2: float | None  # the constant of AdamW; None for a rule
    is_clipped: bool = False
    is_reset: bool = False

    @property
    def label(self) -> str:
        """The printed name."""
        rule = LABELS.get(self.optimizer) or method_label(self.optimizer)
        name = rule if self.beta2 is None else f"β₂ = {self.beta2:g}"
        return name + ", clipped" * self.is_clipped + ", reset" * self.is_reset


def method_of(entry: OptimizerEntry) -> Method:
    """Return the method of an entry."""
    optimizer = entry.use or entry.name
    beta2 = (
        float(entry.settings.get("betas", (0.9, REFERENCE))[1]) if optimizer == "adamw" else None
    )
    is_reset = entry.adaptation_state == "reset"
    return Method(optimizer, beta2, entry.clip_norm is not None, is_reset)


def study_of(name: str) -> Study:
    """Return a study of this folder by its name."""
    return load_study(str(FOLDER / f"{name}.toml"))


def main_metric(study: Study) -> str:
    """Return the metric that learning rates are chosen by: NLL, in a stream on the next person."""
    return "prequential_nll" if study.training.order == "stream" else "nll"


def runs_by_method(runs: Path) -> dict[tuple[Method, float], list[RunResult]]:
    """Return the runs of a store or exported file by method and learning rate."""
    study = study_of(runs.stem)
    entries = {entry.name: entry for entry in study.optimizers}
    grouped: dict[tuple[Method, float], list[RunResult]] = {}
    for result in load_results([runs])[0]:
        name, _, rate = result.method.partition(" lr=")  # of a grid of rates
        entry = entries[name]
        key = (method_of(entry), float(rate or entry.lr or study.training.lr))
        grouped.setdefault(key, []).append(result)
    return grouped
