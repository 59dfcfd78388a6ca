"""Train one run of a study again and observe it; the analyses are built on this.

    run = find_run(load_study("demo"), optimizer="afor", fold=0, repetition=0)
    record = replay(run, watch_step=look)

Weights, batches and dropout are those of the study, so the observed training is that of the study.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from afor.bench.common.errors import ConfigError, TrainingError
from afor.bench.common.seeding import isolated
from afor.bench.common.suggest import did_you_mean
from afor.bench.data.window_source import WindowSource
from afor.bench.execution.sources import open_sources
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import build_backbone
from afor.bench.store.learning_rates import searched_rates
from afor.bench.study.plan import make_plan
from afor.bench.study.planned_runs import PlannedRun
from afor.bench.study.schema import Study
from afor.bench.training.batches import Side, Sides
from afor.bench.training.execute import cut_for, run_settings
from afor.bench.training.fit import Watch, WatchStep
from afor.bench.training.loop import train
from afor.bench.training.record import RunRecord
from afor.bench.training.run_spec import RunSettings


@dataclass(frozen=True)
class ChosenRun:
    """A run of a study with the windows it needs, ready to be trained again."""

    planned: PlannedRun
    source: WindowSource

    @property
    def settings(self) -> RunSettings:
        """Return the settings for `train`."""
        return run_settings(self.planned.spec)

    def make_model(self) -> nn.Module:
        """Build the network; its weights come from torch's global generator."""
        backbone = self.planned.spec["backbone"]
        return build_backbone(backbone["name"], InputShape.of(self.source), **backbone["settings"])

    def initial_model(self) -> nn.Module:
        """Build the network with the weights that the run starts from, on the CPU."""
        with isolated(self.settings.seed("weights"), torch.device("cpu")):
            return self.make_model()

    def side(self, role: Literal["training", "validation"], device: torch.device) -> Side:
        """Return the windows of the training or validation subjects, normalized as in the run."""
        sides = Sides(self.settings, self.source, device)
        return sides.training if role == "training" else sides.validation

    @property
    def label(self) -> str:
        """Return the name of the run for messages and titles."""
        run = self.planned
        where = f"{run.dataset}, {run.backbone}, {run.method}"
        return f"{where}, fold {run.fold}, repetition {run.repetition}"


def find_run(
    study: Study,
    *,
    dataset: str = "",
    backbone: str = "",
    optimizer: str = "afor",
    fold: int = 0,
    repetition: int = 0,
    cache_dir: Path | None = None,
) -> ChosenRun:
    """Select one run of a study and open its windows; an empty name selects the first.

    Raises:
        ConfigError: The study has no such entry, fold or repetition.
        StoreError: The results of the search for its learning rates are not here.
    """
    dataset = _one_of("data set", dataset, [entry.name for entry in study.datasets])
    backbone = _one_of("backbone", backbone, [entry.name for entry in study.backbones])
    optimizer = _one_of("optimizer", optimizer, [entry.name for entry in study.optimizers])
    alone = study.model_copy(
        update={
            "datasets": [entry for entry in study.datasets if entry.name == dataset],
            "backbones": [entry for entry in study.backbones if entry.name == backbone],
            "optimizers": [entry for entry in study.optimizers if entry.name == optimizer],
        }
    )
    sources = open_sources(alone, cache_dir)
    search = study.lr_from or (study.name if study.lr_search else "")
    runs = make_plan(alone, sources, searched_rates(search)).runs
    for planned in runs:
        if (planned.fold, planned.repetition) == (fold, repetition):
            return ChosenRun(planned, cut_for(planned.spec, sources[dataset]))
    folds = sorted({planned.fold for planned in runs})
    repetitions = sorted({planned.repetition for planned in runs})
    raise ConfigError(
        f"{study.name} has no fold {fold} with repetition {repetition}. "
        f"Folds: {folds[0]} to {folds[-1]}; repetitions: {repetitions[0]} to {repetitions[-1]}."
    )


def replay(
    run: ChosenRun, watch: Watch | None = None, watch_step: WatchStep | None = None
) -> RunRecord:
    """Train the run completely; the record equals that of the study bit for bit.

    `watch` is called after each epoch, `watch_step` after each step. Raises TrainingError if the
    training diverges, since what was watched is incomplete.
    """
    record = train(run.settings, run.source, run.make_model, watch, watch_step)
    if record.status != "done":
        raise TrainingError(
            f"{run.label}: {record.reason}. Choose another fold, or a smaller learning rate."
        )
    return record


def _one_of(entry_type: str, wanted: str, names: Sequence[str]) -> str:
    if not wanted:
        return names[0]
    if wanted in names:
        return wanted
    hint = did_you_mean(wanted, names, quote='"')
    raise ConfigError(f'The study has no {entry_type} "{wanted}".{hint} It has {", ".join(names)}.')
