"""`Results`: the results of studies, opened once and compared once, for every table and figure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError
from afor.bench.common.suggest import did_you_mean
from afor.bench.stats.comparisons import (
    BASELINE,
    Comparison,
    Ranks,
    compare,
    control_methods,
    main_methods,
    mean_ranks,
    tasks_of,
)
from afor.bench.stats.groups import (
    ConditionKey,
    Conditions,
    collect_conditions,
    comparability_notes,
    default_metrics,
    mean_of_repetitions,
    mean_sd,
    task_conditions,
)
from afor.bench.stats.guessing import learned, reference_levels
from afor.bench.stats.labels import metric_style, task_label
from afor.bench.stats.pooling import PooledComparison, pool_tasks
from afor.bench.stats.score_tables import is_foreign, read_scores
from afor.bench.store.database import open_store
from afor.bench.store.files import (
    column_names,
    is_store,
    load_results,
    load_studies,
    stated_margins,
)
from afor.bench.store.locations import find_store
from afor.bench.store.results import RunResult
from afor.bench.study.planned_runs import ExpectedRuns
from afor.bench.training.record import RunRecord

WORTH_SAYING = 0.02  # accuracy by which a linear model must be ahead of a network
MAX_TRACED = 60  # runs of a condition whose traces are kept


@dataclass(frozen=True, eq=False)
class Curve:
    """The losses of one run per epoch, and its best epoch."""

    train: NDArray[np.float64]
    validation: NDArray[np.float64]
    best: int | None


@dataclass(frozen=True, eq=False)
class TrainingCurves:
    """The curves of every run, diverged runs, and traces of the controller, by condition."""

    curves: Mapping[ConditionKey, Sequence[Curve]]
    diverged: Mapping[ConditionKey, int]
    traced: Mapping[ConditionKey, Sequence[tuple[RunResult, RunRecord]]]


@dataclass(frozen=True, eq=False)
class Results:
    """Results with the question that is asked of them. Nothing else computes a difference.

    Attributes:
        runs: The finished runs.
        conditions: The runs by (data set, backbone, method).
        metrics: The metrics that tables show; figures and verdicts take the first.
        baseline: The method that the others are compared with.
        chosen: The methods that were asked for; empty takes all but the study's controls.
        paths: The stores and files that were read.
        study_texts: The TOML of each study by its name.
        remarks: How tables of scores that are no runs of the benchmark were read.

    Example:
        >>> from afor.bench.stats.design.simulated import simulate_results
        >>> made = simulate_results({"adam": 0.0, "afor": 0.02}, datasets=["deap"])
        >>> Results.of(*made).comparisons[0].method
        'afor'
    """

    runs: Sequence[RunResult]
    conditions: Conditions
    metrics: tuple[str, ...]
    baseline: str = BASELINE
    chosen: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()
    study_texts: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        names: Sequence[str | Path],
        *,
        studies: Sequence[str] = (),
        baseline: str | None = BASELINE,
        methods: Sequence[str] = (),
        metrics: Sequence[str] = (),
        margins: Mapping[str, float] | None = None,
        allow_different: Collection[str] = (),
        columns: Mapping[str, str] | None = None,
        common: bool = False,
    ) -> "Results":
        """Open the results of studies that have run, here or elsewhere, or tables of scores.

        Args:
            names: Names of studies, their TOML files, stores, or .csv, .json or .parquet files, of
                `afor export` or of any scores.
            studies: Names of the studies to read; empty reads all.
            baseline: The method that the others are compared with; None takes Adam, or else
                the first method.
            methods: Methods to compare, which Holm's correction then covers alone; empty takes
                all but controls.
            metrics: Metrics to show; empty takes accuracy, weighted F1, and NLL if recorded, or all
                of a table of scores. A single one says what the scores of a table without a name
                are.
            margins: Margins of equivalence by metric, as printed, instead of the studies'.
            allow_different: Settings in which runs that are compared may differ.
            columns: Columns of tables of scores by their roles: method, unit, score, task,
                repetition, metric; those with common names are recognised.
            common: Leave out units of tables of scores that some method lacks.

        Returns:
            The results.

        Raises:
            StoreError: There are no such results.
            ConfigError: The runs cannot be compared, or no run has a metric that is asked for.
        """
        if not names:
            raise ConfigError(
                "Name the results: at least one study, TOML file or store file, or a .csv, .json "
                "or .parquet file of results."
            )
        paths = tuple(find_store(str(name)) for name in names)
        given = dict(margins or {})
        foreign = [p for p in paths if not is_store(p) and (columns or is_foreign(column_names(p)))]
        score = metrics[0] if len(metrics) == 1 else "score"
        tables = [read_scores(path, columns, score, common=common) for path in foreign]
        own = [path for path in paths if path not in foreign]
        runs, expected = load_results(own, studies) if own else ([], [])
        texts = load_studies(filter(is_store, own), studies)
        results = cls.of(
            [*runs, *(run for table in tables for run in table.runs)],
            expected,
            baseline=baseline,
            methods=methods,
            metrics=metrics,
            margins={**stated_margins(texts, except_for=given), **given},
            allow_different=allow_different,
            remarks=[note for table in tables for note in table.notes],
        )
        return replace(results, paths=paths, study_texts=texts)

    @classmethod
    def of(
        cls,
        runs: Sequence[RunResult],
        expected: Sequence[ExpectedRuns] = (),
        *,
        baseline: str | None = BASELINE,
        methods: Sequence[str] = (),
        metrics: Sequence[str] = (),
        margins: Mapping[str, float] | None = None,
        allow_different: Collection[str] = (),
        remarks: Sequence[str] = (),
    ) -> "Results":
        """Return the results of runs in memory.

        Args:
            runs: The finished runs.
            expected: What the studies planned, so that missing runs are known.
            baseline: As in `open`.
            methods: As in `open`.
            metrics: As in `open`.
            margins: Margins of equivalence by metric, as printed; others have their defaults.
            allow_different: As in `open`.
            remarks: How tables of scores were read, if the runs come from some.
        """
        conditions = collect_conditions(runs, expected, margins, allow_different)
        if baseline is None:
            listed = main_methods(conditions)
            baseline = BASELINE if BASELINE in listed or not listed else listed[0]
        shown = tuple(default_metrics(conditions))
        if remarks:  # a table of scores shows what it has
            shown = tuple(dict.fromkeys(name for run in runs for name in run.metrics))
        results = cls(runs, conditions, shown, baseline, tuple(methods), remarks=tuple(remarks))
        if metrics:
            results = results.by(*metrics).showing(metrics)
        return results

    def by(self, *metrics: str) -> "Results":
        """Return results with other metrics first.

        Args:
            *metrics: Their names, the first of which decides.

        Raises:
            ConfigError: No run has one of them.
        """
        recorded = dict.fromkeys(name for run in self.runs for name in run.metrics)
        for metric in metrics:
            if metric not in recorded:
                hint = did_you_mean(metric, tuple(recorded))
                present = ", ".join(recorded)
                raise ConfigError(f"No run has the metric {metric!r}.{hint} Here: {present}.")
        return self.showing(list(dict.fromkeys([*metrics, *self.metrics])))

    def showing(self, metrics: Sequence[str]) -> "Results":
        """Return results that show some metrics alone.

        Args:
            metrics: Their names.
        """
        return self._view(metrics=tuple(metrics))

    def _view(self, **changes: Any) -> "Results":
        """Return other results of the same runs, which share what was computed or read once."""
        view = replace(self, **changes)
        view.__dict__.update(_compared=self._compared, _training=self._training)
        return view

    @cached_property
    def _compared(self) -> dict[tuple[str, ...], list[Comparison]]:
        return {}

    @cached_property
    def _training(self) -> list[TrainingCurves]:
        return []

    @property
    def tasks(self) -> list[tuple[str, str]]:
        """The pairs of (data set, backbone)."""
        return tasks_of(self.conditions)

    @property
    def methods(self) -> list[str]:
        """The methods that are shown and ranked, the baseline among them if it has runs."""
        return list(self.chosen) or main_methods(self.conditions)

    @property
    def controls(self) -> list[str]:
        """The methods that are listed but not compared."""
        return [] if self.chosen else control_methods(self.conditions)

    @cached_property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Each method compared with the baseline, by task and metric; empty if none can be."""
        return tuple(
            comparison
            for task in self.tasks
            for metric in self.metrics
            for comparison in self.against(self.baseline, self.methods, *task, metric)
        )

    def against(
        self, baseline: str, methods: Sequence[str], dataset: str, backbone: str, metric: str
    ) -> list[Comparison]:
        """Return the comparisons with a baseline of their own, such as of variants with AFOR.

        Args:
            baseline: The method that they are compared with.
            methods: The methods to compare, which are the family of Holm's correction.
            dataset: The data set.
            backbone: The backbone.
            metric: The metric.
        """
        methods = [name for name in methods if name != baseline]
        key = (baseline, dataset, backbone, metric, *methods)
        if key not in self._compared:
            self._compared[key] = compare(
                self.conditions, dataset, backbone, metric, methods=methods, baseline=baseline
            )
        return self._compared[key]

    def needed_comparisons(self, metric: str | None = None) -> list[Comparison]:
        """Return the comparisons by one metric or by all.

        Args:
            metric: The metric; None takes all.

        Raises:
            ConfigError: There are none.
        """
        shown = self if metric in (None, *self.metrics) else self.showing([str(metric)])
        found = [c for c in shown.comparisons if metric in (None, c.metric)]
        if not found:
            present = ", ".join(dict.fromkeys(o for _, _, o in self.conditions)) or "none"
            raise ConfigError(
                f"There is nothing to compare with the baseline {self.baseline!r}: no other method "
                f"has a finished run in the same fold and repetition. Methods here: {present}. "
                "Choose another with --baseline, or finish the study with `afor run`."
            )
        return found

    @cached_property
    def pooled(self) -> tuple[PooledComparison, ...]:
        """The comparisons pooled over tasks, by metric; empty for a single task."""
        return tuple(pool_tasks(self.comparisons))

    @cached_property
    def ranks(self) -> dict[str, Ranks]:
        """The mean ranks by each metric."""
        return {
            metric: mean_ranks(self.conditions, metric, self.methods) for metric in self.metrics
        }

    @cached_property
    def notes(self) -> list[str]:
        """What a reader must know of the runs: stand-ins, differing protocols, missing runs."""
        return [
            *self.remarks,
            *comparability_notes(self.conditions),
            *self._ungated_notes(),
            *self._linear_notes(),
            *incomplete_notes(self.conditions),
        ]

    def linear(self, dataset: str, backbone: str, metric: str) -> tuple[float, float, int] | None:
        """Return mean, SD and folds of the linear model on the splits of a task; None without.

        Args:
            dataset: The data set.
            backbone: The backbone.
            metric: The metric.
        """
        runs = max((c.runs for c in task_conditions(self.conditions, dataset, backbone)), key=len)
        values = {at: run.linear[metric] for at, run in runs.items() if metric in run.linear}
        return mean_sd(list(mean_of_repetitions(values).values())) if values else None

    def _linear_notes(self) -> list[str]:
        """Compare the best method of each task with the linear model."""
        notes = []
        for dataset, backbone in self.tasks:
            linear = self.linear(dataset, backbone, "accuracy")
            members = [
                c
                for c in task_conditions(self.conditions, dataset, backbone)
                if c.method in self.methods and c.complete and c.has("accuracy")
            ]
            if linear is None or not members:
                continue
            best = max(members, key=lambda c: c.summary("accuracy")[0])
            mean, tested = best.summary("accuracy")[0], learned(best, "accuracy")
            name = task_label(dataset, backbone)
            theirs, ours = f"{100 * linear[0]:.1f} %", f"{100 * mean:.1f} %"
            chance = reference_levels(self.conditions, dataset, backbone, "accuracy")
            if chance is None:
                continue
            if linear[0] > chance.chance and linear[0] - mean > WORTH_SAYING:
                notes.append(
                    f"{name}: a linear model gets {theirs}, this network {ours}: raise the "
                    "learning rate or the number of epochs."
                )
            elif linear[0] <= chance.chance and tested is not None and tested.above is False:
                notes.append(
                    f"{name}: neither a linear model ({theirs}) nor this network ({ours}) is above "
                    f"the chance level ({100 * chance.chance:.1f} %): if longer training does not "
                    "help, check labels, windows and frequency band."
                )
        return notes

    def _ungated_notes(self) -> list[str]:
        """Name the data sets and metrics whose level of guessing is not known."""
        unknown: dict[str, dict[str, None]] = {}
        for c in self.comparisons:
            if c.learned is None and c.base_learned is None:
                unknown.setdefault(c.dataset, {})[metric_style(c.metric).label] = None
        if not unknown:
            return []
        names = "; ".join(f"{name} ({', '.join(labels)})" for name, labels in unknown.items())
        return [
            f"{names}: the level of guessing is not known, so whether the methods are better than "
            "guessing is not tested."
        ]

    @property
    def training(self) -> TrainingCurves:
        """What the stores hold of the trainings themselves; read when it is first asked for."""
        if not self._training:
            self._training.append(self._read_training())
        return self._training[0]

    def _read_training(self) -> TrainingCurves:
        curves: dict[ConditionKey, list[Curve]] = {}
        diverged: Counter[ConditionKey] = Counter()
        studies = {run.study for run in self.runs}
        traced: dict[ConditionKey, list[tuple[RunResult, RunRecord]]] = {}
        for path in filter(is_store, self.paths):
            with open_store(path) as store:
                for run in self.runs:
                    finished = store.run(run.key)
                    if finished is None or finished.record is None:
                        continue
                    key, record = (run.dataset, run.backbone, run.method), finished.record
                    train = np.array([epoch.train_loss for epoch in record.history])
                    validation = np.array([epoch.validation_loss for epoch in record.history])
                    curves.setdefault(key, []).append(Curve(train, validation, record.best_epoch))
                    if record.traces and len(traced.setdefault(key, [])) < MAX_TRACED:
                        traced[key].append((run, record))
                diverged.update(
                    (run.dataset, run.backbone, run.method)
                    for run in store.runs()
                    if run.status == "diverged" and run.study in studies
                )
        return TrainingCurves(curves, diverged, traced)

    def only(self, dataset: str | None = None, backbone: str | None = None) -> "Results":
        """Return the results of one data set or backbone.

        Args:
            dataset: The data set; None takes all.
            backbone: The backbone; None takes all.

        Raises:
            ConfigError: There are none.
        """
        selected = {
            key: condition
            for key, condition in self.conditions.items()
            if dataset in (None, key[0]) and backbone in (None, key[1])
        }
        if not selected:
            present = ", ".join(f"{d}/{b}" for d, b in self.tasks)
            raise ConfigError(f"No result for {dataset or '*'}/{backbone or '*'}. Here: {present}.")
        return self._view(conditions=selected)


def incomplete_notes(conditions: Conditions) -> list[str]:
    """Return a sentence that counts incomplete conditions and their missing runs, or nothing."""
    missing = [c for c in conditions.values() if not c.complete]
    if not missing:
        return []
    runs = sum(c.expected - c.done for c in missing)
    return [f"Incomplete: {len(missing)} of {len(conditions)} conditions lack {runs} runs."]
