"""Measure how often the verdicts err on the very data of a study.

    python docs/figures/calibration.py docs/results/physionet/runs.csv physionet

Replicates of one method under several seeds are equal by construction. In every fold and repetition
their names are exchanged at random; every relabelled study then compares a method with itself, and
each difference that is declared is a false positive. The same differences moved by the margin are
those of methods that are just not equivalent: each equivalence that is declared is a false one.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from simulated_studies import equivalence_p_rows, two_sided_p_rows

from afor.bench.stats.comparisons import tasks_of
from afor.bench.stats.design.seed_noise import SAME_METHOD, replicate_groups
from afor.bench.stats.groups import Condition, Conditions, complete_folds, task_conditions
from afor.bench.stats.inference.decisions import LEVEL
from afor.bench.stats.inference.paired_tests import holm, two_sided_p
from afor.bench.stats.labels import margin_of, method_label, metric_style, p_text
from afor.bench.stats.results import Results

RELABELLINGS = 1000

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Share:
    """How many of the relabelled studies declare something, with the 95 % interval of the share."""

    count: int
    total: int

    @property
    def value(self) -> float:
        """The share."""
        return self.count / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """The Clopper-Pearson interval of the share.

        >>> [round(end, 3) for end in Share(5, 100).interval]
        [0.016, 0.113]
        """
        from scipy.stats import binomtest

        ends = binomtest(self.count, self.total).proportion_ci(method="exact")
        return float(ends.low), float(ends.high)


@dataclass(frozen=True)
class Calibration:
    """The error rates of the procedure on the replicates of one method."""

    dataset: str
    backbone: str
    metric: str
    replicates: tuple[str, ...]  # names of the method and its replicates
    folds: int
    repetitions: int  # repetitions per fold
    margin: float | None  # of equivalence, in the metric's unit; None for a metric without one
    level: float  # level of the decisions
    run_sd: float  # SD of one run's value between replicates, within fold and repetition
    false_positives: Share  # of equal methods, declared different, Holm-corrected
    false_equivalences: Share | None  # of methods one margin apart, declared equivalent
    equivalences: Share | None  # of equal methods, declared equivalent, which is no error
    p_values: FloatArray  # two-sided p of the first comparison of each relabelled study
    trained: tuple[tuple[str, str, float], ...]  # pairs of replicates as trained, two-sided p


def calibrate(
    conditions: Conditions,
    metrics: Sequence[str],
    *,
    level: float = LEVEL,
    relabellings: int = RELABELLINGS,
    seed: int = 0,
) -> list[Calibration]:
    """Calibrate the procedure on every method that ran under two or more seeds.

    AdamW and AFOR with a fixed beta2 of 0.999 are one method as well, under equal seeds. Replicates
    that are equal to the last bit ran under one seed and count once.
    """
    calibrations = []
    for dataset, backbone in tasks_of(conditions):
        task = task_conditions(conditions, dataset, backbone)
        for metric in metrics:
            usable = [c for c in task if c.has(metric)]
            for names in [*replicate_groups(usable), *SAME_METHOD.items()]:
                replicates = [c for c in usable if c.method in names]
                if len(replicates) < 2:
                    continue
                kept, values = _values(replicates, metric)
                if len(kept) > 1 and len(values):
                    rng = np.random.default_rng(seed)
                    where = (dataset, backbone, metric)
                    margin = margin_of(metric, replicates[0].margins)
                    calibrations.append(
                        _calibrate(where, kept, values, margin, level, relabellings, rng)
                    )
    return calibrations


def _calibrate(
    where: tuple[str, str, str],
    names: tuple[str, ...],
    values: FloatArray,
    margin: float | None,
    level: float,
    relabellings: int,
    rng: np.random.Generator,
) -> Calibration:
    folds, repetitions, replicates = values.shape
    differences = relabelled_differences(values, relabellings, rng)
    p_two_sided = [two_sided_p_rows(rows) for rows in differences]
    trained = tuple(
        (names[i], names[j], two_sided_p((values[..., j] - values[..., i]).mean(axis=1)))
        for i, j in combinations(range(replicates), 2)
    )
    return Calibration(
        *where,
        replicates=names,
        folds=folds,
        repetitions=repetitions,
        margin=margin,
        level=level,
        run_sd=math.sqrt(float(values.var(axis=2, ddof=1).mean())),
        false_positives=_declared(p_two_sided, level),
        false_equivalences=_equivalences(differences, margin, level, apart=True),
        equivalences=_equivalences(differences, margin, level, apart=False),
        p_values=p_two_sided[0],
        trained=trained,
    )


def relabelled_differences(
    values: FloatArray, relabellings: int, rng: np.random.Generator
) -> list[FloatArray]:
    """Exchange the replicates within each fold and repetition, and compare all with the first.

    Takes values by (fold, repetition, replicate). Returns the fold differences by (study, fold) for
    each replicate but the first.
    """
    replicates = values.shape[2]
    studies = np.empty((replicates - 1, relabellings, len(values)))
    for study in range(relabellings):
        shuffled = rng.permuted(values, axis=2)
        studies[:, study] = (shuffled[..., 1:] - shuffled[..., :1]).mean(axis=1).T
    return list(studies)


def _equivalences(
    differences: Sequence[FloatArray], margin: float | None, level: float, *, apart: bool
) -> Share | None:
    """Count the studies that declare equivalence, of equal methods or of some a margin apart."""
    if margin is None:
        return None
    moved = margin if apart else 0.0
    return _declared([equivalence_p_rows(rows + moved, margin) for rows in differences], level)


def _declared(p_values: Sequence[FloatArray], level: float) -> Share:
    """Count the studies in which a comparison is below the level after Holm's correction."""
    studies = list(zip(*p_values, strict=True))
    return Share(sum(min(holm(study)) < level for study in studies), len(studies))


def _values(replicates: Sequence[Condition], metric: str) -> tuple[tuple[str, ...], FloatArray]:
    """Return the replicates that differ and their values by (fold, repetition, replicate)."""
    folds, repetitions = complete_folds([set.intersection(*(set(c.runs) for c in replicates))])
    arrays: dict[str, FloatArray] = {}
    for replicate in replicates:
        values = np.array([[replicate.value((f, d), metric) for d in repetitions] for f in folds])
        if not any(np.array_equal(values, other) for other in arrays.values()):
            arrays[replicate.method] = values
    return tuple(arrays), np.stack(list(arrays.values()), axis=-1)


def print_table(calibrations: Sequence[Calibration]) -> None:
    """Print the error rates as Markdown."""
    print("| Replicates | folds × repetitions | SD of a run | false positives | "
          "false equivalences | found equivalent | p as trained |")  # fmt: skip
    print("|---|---:|---:|---:|---:|---:|---:|")
    for made in calibrations:
        same = set(made.replicates) in map(set, SAME_METHOD.items())
        names = " = ".join(map(method_label, made.replicates))
        cells = [
            f"{names} ({'equal' if same else 'other'} seeds)",
            f"{made.folds} × {made.repetitions}",
            f"{metric_style(made.metric).gain_scale * made.run_sd:.2f}",
            *map(_share, (made.false_positives, made.false_equivalences, made.equivalences)),
            ", ".join(p_text(p) for *_, p in made.trained),
        ]
        print(f"| {' | '.join(cells)} |")


def _share(share: Share | None) -> str:
    if share is None:
        return "–"
    low, high = share.interval
    return f"{100 * share.value:.1f} % ({100 * low:.1f}–{100 * high:.1f})"


if __name__ == "__main__":
    opened = Results.open([sys.argv[1]], studies=sys.argv[2:])
    print_table(calibrate(opened.conditions, ["accuracy"]))
