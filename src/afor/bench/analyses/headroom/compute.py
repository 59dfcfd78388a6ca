"""Measure the headroom of beta2 on a finished study with a grid of beta2 and learning rates.

The best of many settings looks good on the runs on which it was chosen. So constant and learning
rate are chosen on one half of the folds (or repetitions) and scored on the other, both ways: each
fold is scored once, with settings it had no part in choosing.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.build import full_settings
from afor.bench.stats.inference.decisions import PairedDecision, decide_family
from afor.bench.stats.labels import margin_of, method_label, metric_style
from afor.bench.store.database import Store, StoredRun
from afor.bench.study.schema import OptimizerEntry, parse_study

REFERENCE = 0.999
BEST = "best constant"
MIN_UNITS = 4  # two to choose on and two to score on
Unit = tuple[int, int]  # fold, repetition


@dataclass(frozen=True)
class Candidate:
    """One method at one learning rate, with a value of the metric per fold and repetition."""

    method: str  # of constants: "β₂ = 0.9"
    beta2: float | None  # None for a rule
    lr: float
    values: Mapping[Unit, float]


@dataclass(frozen=True)
class MethodScore:
    """One method beside the reference and beside the best constant; positive is better."""

    method: str
    beta2: float | None
    score: float  # mean over the units, each scored with the settings of the other half
    over_reference: PairedDecision | None  # None for the reference
    over_best_constant: PairedDecision | None  # None for constants
    choices: tuple[str, ...]  # of each half

    @property
    def gain(self) -> float:
        """Mean difference from the reference."""
        return self.over_reference.mean if self.over_reference else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Exact 95 % interval of the gain."""
        return self.over_reference.interval if self.over_reference else (0.0, 0.0)


@dataclass(frozen=True)
class Headroom:
    """The headroom of one data set and backbone in one metric.

    Holm's correction covers all methods that are compared with the reference, and all rules that
    are compared with the best constant.
    """

    metric: str
    reference: float
    units: str  # "folds" or "repetitions"
    count: int  # of the units
    best_constant: MethodScore
    constants: tuple[MethodScore, ...]  # by beta2
    rules: tuple[MethodScore, ...]
    study: str = ""
    dataset: str = ""
    backbone: str = ""
    left_out: tuple[str, ...] = ()  # candidates with runs that diverged or failed


# The score of each unit, and the candidates that the two halves chose.
Outcome = tuple[NDArray[np.float64], list[Candidate]]


def measure_headroom(
    store: Store,
    metrics: Sequence[str] | None = None,
    *,
    study: str | None = None,
    reference: float = REFERENCE,
) -> list[Headroom]:
    """Measure the headroom for each study, data set, backbone and metric of a store.

    Args:
        store: Store of a finished study; AdamW with different ``betas`` makes the constants, every
            other optimizer is a rule.
        metrics: Names of metrics; None takes accuracy, NLL and those of streams, as recorded.
        study: Name of one study of the store; None takes all.
        reference: The constant beta2 that the others are compared with.

    Raises:
        ConfigError: There is no grid of beta2, runs are missing, or there are too few units.
    """
    results = []
    for name in [study] if study else store.studies():
        runs = store.runs(name)
        tasks = dict.fromkeys((run.dataset, run.backbone) for run in runs)
        parsed = parse_study(store.studies()[name])
        entries = {entry.name: entry for entry in parsed.optimizers}
        for dataset, backbone in tasks:
            of_task = [run for run in runs if (run.dataset, run.backbone) == (dataset, backbone)]
            where = f"{name}, {dataset} × {backbone}"
            values, left_out = _read_values(store, of_task, where)
            shared_metrics = set.intersection(*(set(value) for value in values.values()))
            for metric in metrics or _default_metrics(shared_metrics):
                if metric not in shared_metrics:
                    raise ConfigError(
                        f"{where} has no metric {metric!r}. "
                        f"It has: {', '.join(sorted(shared_metrics))}."
                    )
                candidates = _candidates(of_task, entries, values, metric, left_out)
                results.append(
                    replace(
                        headroom_of(candidates, metric, reference, where, parsed.margins),
                        study=name,
                        dataset=dataset,
                        backbone=backbone,
                        left_out=tuple(sorted(left_out)),
                    )
                )
    return results


def headroom_of(
    candidates: Sequence[Candidate],
    metric: str,
    reference: float = REFERENCE,
    where: str = "the study",
    margins: Mapping[str, float] | None = None,
    family: int | None = None,
) -> Headroom:
    """Compare the candidates of one data set and backbone, as `measure_headroom` does.

    `where` names the study in messages. `family` is the number of comparisons with the reference to
    correct for, where the study makes more of them than these candidates do.
    """
    constants = sorted({c.beta2 for c in candidates if c.beta2 is not None})
    if reference not in constants or len(constants) < 2:
        raise ConfigError(
            f"{where} has no grid of beta2: it needs AdamW with betas = [0.9, {reference:g}] and "
            f"at least one other beta2; it has {', '.join(f'{b:g}' for b in constants) or 'none'}. "
            f"The preset `headroom` makes one: `afor run headroom`."
        )
    units, scores = _unit_scores(candidates, metric_style(metric).sign, where)
    count = scores.shape[1]
    halves = [np.arange(count) % 2 == 0, np.arange(count) % 2 == 1]

    def outcome(belongs: Callable[[Candidate], bool]) -> Outcome:
        """Return the score of each unit with what the other half chose, and the choices."""
        members = [i for i, candidate in enumerate(candidates) if belongs(candidate)]
        out, choices = np.empty(count), []
        for chooses, scored in (halves, halves[::-1]):
            # Of equal candidates the smaller learning rate is taken.
            best = min(members, key=lambda i: (-scores[i, chooses].mean(), candidates[i].lr))
            out[scored] = scores[best, scored]
            choices.append(candidates[best])
        return out, choices

    methods = dict.fromkeys(c.method for c in sorted(candidates, key=_place))
    outcomes = {BEST: outcome(lambda c: c.beta2 is not None)}
    outcomes |= {name: outcome(lambda c, m=name: c.method == m) for name in methods}  # type: ignore[misc]
    beta2 = {c.method: c.beta2 for c in candidates}
    base = next(name for name in methods if beta2[name] == reference)
    rules = [name for name in methods if beta2[name] is None]
    margin = margin_of(metric, margins)

    def decide(names: Sequence[str], other: str, family: int | None) -> dict[str, PairedDecision]:
        differences = [outcomes[name][0] - outcomes[other][0] for name in names]
        decisions = decide_family(differences, margin=margin, family=family)
        return dict(zip(names, decisions, strict=True))

    over_reference = decide([name for name in outcomes if name != base], base, family)
    over_best = decide(rules, BEST, None)
    scored = {
        name: MethodScore(
            name,
            beta2.get(name),
            metric_style(metric).sign * float(out.mean()),
            over_reference.get(name),
            over_best.get(name),
            _choice_texts(name, choices),
        )
        for name, (out, choices) in outcomes.items()
    }
    return Headroom(
        metric,
        reference,
        units,
        count,
        scored[BEST],
        tuple(scored[name] for name in methods if beta2[name] is not None),
        tuple(scored[name] for name in rules),
    )


def _place(candidate: Candidate) -> float:
    """Order constants by beta2 before rules, which keep their order."""
    return math.inf if candidate.beta2 is None else candidate.beta2


def _choice_texts(method: str, choices: Sequence[Candidate]) -> tuple[str, ...]:
    texts = [f"{c.lr:g}" if c.method == method else f"{c.beta2:g} at {c.lr:g}" for c in choices]
    return tuple(dict.fromkeys(texts))


def _default_metrics(shared_metrics: set[str]) -> list[str]:
    names = ("nll", "accuracy", "prequential_nll", "prequential_accuracy")
    return [name for name in names if name in shared_metrics]


def _unit_scores(
    candidates: Sequence[Candidate], sign: int, where: str
) -> tuple[str, NDArray[np.float64]]:
    """Return what is halved and the signed score of each candidate and unit, higher is better.

    Folds are halved where there are enough of them, or else repetitions.
    """
    keys = sorted(set.intersection(*(set(c.values) for c in candidates)))
    numbers = {"folds": sorted({f for f, _ in keys}), "repetitions": sorted({d for _, d in keys})}
    units = "folds" if len(numbers["folds"]) >= MIN_UNITS else "repetitions"
    if len(numbers[units]) < MIN_UNITS:
        have = f"{len(numbers['folds'])} folds and {len(numbers['repetitions'])} repetitions"
        raise ConfigError(
            f"{where} has {have}: at least {MIN_UNITS} of either are needed, two to choose on and "
            f"two to score on."
        )
    position = 0 if units == "folds" else 1
    scores = [
        [
            sign * float(np.mean([c.values[key] for key in keys if key[position] == number]))
            for number in numbers[units]
        ]
        for c in candidates
    ]
    return units, np.array(scores)


def _read_values(
    store: Store, runs: Sequence[StoredRun], where: str
) -> tuple[dict[str, dict[str, float]], set[str]]:
    """Return the metrics of each run by its key, and the optimizers that have no complete ones."""
    unfinished = [run for run in runs if run.status == "open"]
    if unfinished:
        raise ConfigError(
            f"{where}: {len(unfinished)} of {len(runs)} runs are missing. Finish the study with "
            f"`afor run` first."
        )
    values: dict[str, dict[str, float]] = {}
    left_out = {run.method for run in runs if run.status != "done"}
    for run in runs:
        finished = store.run(run.key) if run.method not in left_out else None
        if finished is None or finished.record is None:
            continue
        metrics = finished.record.metrics()
        values[run.key] = {k: v for k, v in metrics.items() if math.isfinite(v)}
    if not values:
        raise ConfigError(f"{where}: every optimizer has runs that diverged or failed.")
    return values, left_out


def _candidates(
    runs: Sequence[StoredRun],
    entries: Mapping[str, OptimizerEntry],
    values: Mapping[str, Mapping[str, float]],
    metric: str,
    left_out: set[str],
) -> list[Candidate]:
    """Group runs by method and learning rate; entries that differ in name and lr are one method."""
    names: dict[str, str] = {}  # of the first entry of each method
    grouped: dict[tuple[str, float | None, float], dict[Unit, float]] = {}
    for run in runs:
        if run.method in left_out:
            continue
        entry = entries[run.entry]
        beta2 = _constant(entry)
        identity = json.dumps(entry.model_dump(exclude={"name", "lr", "control"}), sort_keys=True)
        name = names.setdefault(identity, method_label(entry.name))
        method = name if beta2 is None else f"β₂ = {beta2:g}"
        value = values[run.key][metric]
        grouped.setdefault((method, beta2, run.rate), {})[run.fold, run.repetition] = value
    return [Candidate(*key, runs) for key, runs in grouped.items()]


def _constant(entry: OptimizerEntry) -> float | None:
    """Return the beta2 of a plain AdamW entry, or None for anything else."""
    given = entry.model_dump(exclude={"name", "settings", "lr", "control"})
    plain = OptimizerEntry(name="adamw").model_dump(exclude={"name", "settings", "lr", "control"})
    if given != plain or set(entry.settings) - {"betas"}:
        return None
    betas, default = (
        cast("tuple[float, float]", full_settings("adamw", settings)["betas"])
        for settings in (entry.settings, {})
    )
    return float(betas[1]) if betas[0] == default[0] else None
