"""`Session`: the search, the runs and the time of one call of `compare`."""

import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from afor.bench.common.errors import EngineError
from afor.bench.common.text import counted
from afor.bench.data.window_source import WindowSource
from afor.bench.execution.engines.local import LocalEngine
from afor.bench.execution.forecast import StepTimer, describe_search, forecast
from afor.bench.execution.progress import Progress
from afor.bench.execution.run_times import clock
from afor.bench.execution.runner import run_study
from afor.bench.execution.sources import open_sources
from afor.bench.notebook.live_cell import CellProgress, LiveCell
from afor.bench.store.database import open_store
from afor.bench.store.learning_rates import SearchedRates, small_search
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import Study
from afor.bench.study.toml_io import study_toml

EPOCHS = (3, 5, 10, 20, 40, 60, 100, 200)  # numbers of epochs that a limited time chooses from
FOLDS = 6  # fewer cannot show a difference at 5 %
REPETITIONS = 5  # as in the paper
SEARCH_SHARE = 0.3  # of the time, at most, for the search of the learning rate
START_S = 5.0  # of the workers of each study, which import torch
SLOWER = (0.5, 10.0)  # bounds of what the search may show of the forecast


@dataclass(frozen=True)
class Session:
    """Where and how the runs of one call are trained.

    Args:
        path: The store.
        cache: Folder of the prepared data.
        workers: Number of parallel processes.
        progress: Whether to show the progress and, in a notebook, the results so far.
        baseline: The method that the search of the learning rate takes.
        cell: The cell of a notebook that shows them, if there is one.
    """

    path: Path
    cache: Path
    workers: int
    progress: bool
    baseline: str
    cell: LiveCell | None

    def run(self, study: Study, find_rate: SearchedRates | None) -> None:
        """Train what the store lacks; raise EngineError if runs failed."""
        watch: Any = nullcontext()
        if self.cell is not None:
            watch = CellProgress(
                study.name, self.workers, self.cell, has_results=study.search is None
            )
        elif self.progress:
            watch = Progress(study.name, self.workers)
        with watch as shown:
            summary = run_study(
                study,
                study_toml(study),
                self.path,
                LocalEngine(self.workers),
                find_rate=find_rate,
                cache_dir=self.cache,
                watch=shown,
            )
        if summary.failed:
            raise EngineError(
                f"{summary.failed} of {summary.planned} runs failed; "
                f"`afor store failures {self.path}` shows why."
            )

    def say(self, text: str) -> None:
        """Show a text in the cell, or print it."""
        if self.cell is not None:
            self.cell.say(text)
        else:
            sys.stdout.write(f"{text}\n")

    def search(self, study: Study) -> SearchedRates | None:
        """Search the learning rate of a study that asks for it; say what it costs."""
        if not study.lr_search:
            return None
        search = small_search(study, self.baseline)
        if self.progress:
            sources = open_sources(search, self.cache)
            words = describe_search(search, sources, StepTimer(self.cache), self.workers)
            self.say(f"The learning rate is searched first: {words}. lr=RATE skips it.")
        self.run(search, None)
        with open_store(self.path) as store:
            rates = SearchedRates.of(store, search.name)
        if self.progress:
            self.say("\n".join(_described(rates)))
        return rates

    def run_within(self, study: Study, minutes: float) -> str:
        """Search and train as much of a study as fits into the time.

        Args:
            study: The study at its full size.
            minutes: The time.

        Returns:
            What was done, and what more time would change.
        """
        started = time.monotonic()

        def left() -> float:
            return 60 * minutes - (time.monotonic() - started)

        sources = open_sources(study, self.cache)
        sizes = Sizes(study, sources, StepTimer(self.cache), self.workers)
        rates = None
        if study.lr_search:
            planned = sizes.longest_search(SEARCH_SHARE * left(), self.baseline)
            expected, before = sizes.seconds(small_search(planned, self.baseline)), left()
            rates = self.search(planned)
            slower = min(max((before - left()) / expected, SLOWER[0]), SLOWER[1])
            sizes = replace(sizes, slower=slower)
        chosen = sizes.largest(left())
        before = left()
        self.run(chosen, rates)
        took = before - left()
        repetitions = min(REPETITIONS, 1 + int(left() / took))
        if repetitions > 1:
            chosen = with_sizes(chosen, repetitions=repetitions)
            self.run(chosen, rates)
        return sizes.outcome(chosen, rates, 60 * minutes - left())


def _described(rates: SearchedRates) -> list[str]:
    """Return the rates in words, with the argument of `compare` where a study has a key."""
    advice = ("lr_search = ", "lr="), (" in the study", "")
    return [line.replace(*advice[0]).replace(*advice[1]) for line in rates.lines()]


def with_sizes(
    study: Study,
    *,
    epochs: int | None = None,
    folds: int | None = None,
    repetitions: int | None = None,
) -> Study:
    """Return a study with other numbers of epochs, folds and repetitions."""
    changes: dict[str, Any] = {}
    if epochs is not None:
        changes["training"] = study.training.model_copy(
            update={"max_epochs": epochs, "patience": min(study.training.patience, epochs)}
        )
    if folds is not None:
        changes["datasets"] = [d.model_copy(update={"folds": folds}) for d in study.datasets]
    if repetitions is not None:
        changes["protocol"] = study.protocol.model_copy(update={"repetitions": repetitions})
    return study.model_copy(update=changes)


@dataclass(frozen=True)
class Sizes:
    """The times of a study at several sizes, on this machine.

    Args:
        study: The study at its full size.
        sources: Its windows.
        timer: Times steps.
        workers: Number of parallel processes.
        slower: How much longer than forecast runs have taken.
    """

    study: Study
    sources: Mapping[str, WindowSource]
    timer: StepTimer
    workers: int
    slower: float = 1.0

    @property
    def folds(self) -> int:
        """The number of folds at full size."""
        entry = self.study.datasets[0]
        return entry.folds or len(self.sources[entry.name].subjects)

    @property
    def epochs(self) -> list[int]:
        """The numbers of epochs to choose from."""
        most = self.study.training.max_epochs
        return [*(count for count in EPOCHS if count < most), most]

    def seconds(self, study: Study) -> float:
        """Return the time of a study if no run stops early."""
        runs = make_plan(study, self.sources).runs
        busy = min(self.workers, len(runs))
        training_s = forecast(runs, self.sources, self.timer).total.high / busy
        return self.slower * (START_S + training_s)

    def longest_search(self, limit: float, baseline: str) -> Study:
        """Return the study with as many epochs as let its search fit into the limit."""
        fitting = [
            made
            for made in (with_sizes(self.study, epochs=count) for count in self.epochs)
            if self.seconds(small_search(made, baseline)) <= limit
        ]
        return fitting[-1] if fitting else with_sizes(self.study, epochs=self.epochs[0])

    def largest(self, limit: float) -> Study:
        """Return the largest study that fits: epochs first, then folds, one repetition."""
        least = with_sizes(self.study, folds=min(FOLDS, self.folds), repetitions=1)
        chosen = with_sizes(least, epochs=self.epochs[0])
        for count in self.epochs:
            if self.seconds(longer := with_sizes(least, epochs=count)) <= limit:
                chosen = longer
        for count in range(min(FOLDS, self.folds) + 1, self.folds + 1):
            if self.seconds(wider := with_sizes(chosen, folds=count)) > limit:
                break
            chosen = wider
        return chosen

    def outcome(self, chosen: Study, rates: SearchedRates | None, spent_s: float) -> str:
        """Say what was done in the time, and what more time would change."""
        epochs, most = chosen.training.max_epochs, self.study.training.max_epochs
        folds, repetitions = chosen.datasets[0].folds or self.folds, chosen.protocol.repetitions
        searched = f"{'; '.join(_described(rates))}; " if rates else ""
        done = (
            f"In {clock(spent_s)}: {searched}up to {counted(epochs, 'epoch')}, "
            f"{counted(folds, 'fold')}, {counted(repetitions, 'repetition')}."
        )
        more = [
            *([f"up to {most} epochs"] if epochs < most else []),
            *([f"{self.folds} folds"] if folds < self.folds else []),
            *([f"{REPETITIONS} repetitions"] if repetitions < REPETITIONS else []),
        ]
        if not more:
            return f"{done} More time would change nothing: this is the study at its full size."
        full_s = self.seconds(with_sizes(self.study, repetitions=REPETITIONS))
        return f"{done} More time would give {', '.join(more)}: about {clock(full_s)} in all."
