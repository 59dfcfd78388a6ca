"""Build the tables on what a study can decide: where its noise comes from, and its power."""

import math
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from afor.bench.report.tables.formats import Row, Table, columns_of, text_row
from afor.bench.report.tables.parts import gain_units
from afor.bench.stats.comparisons import Comparison
from afor.bench.stats.design.power import (
    POWER,
    Goal,
    fold_sd,
    noise_of,
    smallest_effect,
    smallest_margin,
)
from afor.bench.stats.design.variance import SUBJECT, VarianceComponents
from afor.bench.stats.inference.decisions import LEVEL
from afor.bench.stats.labels import method_label, metric_style, task_label


def assessment_table(
    comparisons: Sequence[Comparison], *, family: int, power: float = POWER
) -> Table:
    """Return the noise of each comparison, and the smallest difference and margin it can decide."""
    rows, records = [], []
    level = LEVEL / family
    heading = ""
    for c in comparisons:
        noise = noise_of(c)
        scale = metric_style(c.metric).gain_scale
        sds = fold_sd(noise, noise.repetitions)
        measures = {
            "sd": sds,
            "minimum_effect": [smallest_effect(sd, noise.folds, level, power=power) for sd in sds],
            "minimum_margin": [smallest_margin(sd, noise.folds, level, power=power) for sd in sds],
        }
        parts = _component_sds(noise)
        if heading != (heading := task_label(c.dataset, c.backbone, c.metric)):
            rows.append(Row(heading, heading=True))
        texts = [
            f"{noise.folds} × {noise.repetitions}",
            *(text.replace("nan", "–") for text in (f"{scale * sd:.2f}" for sd in parts.values())),
            *(_interval_text(scale, values) for values in measures.values()),
        ]
        rows.append(text_row(_methods(c), texts))
        records.append(
            {
                "dataset": c.dataset,
                "backbone": c.backbone,
                "metric": c.metric,
                "method": c.method,
                "baseline": c.baseline,
                "folds": noise.folds,
                "repetitions": noise.repetitions,
                "family": family,
                "power": power,
                **parts,
                **{
                    f"{name}{end}": value
                    for name, three in measures.items()
                    for end, value in zip(("", "_low", "_high"), three, strict=True)
                },
            }
        )
    return Table(
        name="power",
        title=f"What this design decides with a power of {100 * power:g} %, in "
        f"{gain_units([c.metric for c in comparisons])}",
        columns=columns_of(
            *("folds × repetitions", "SD, subjects", "SD, repetitions"),
            *("SD of the differences", "minimum effect", "minimum margin"),
        ),
        rows=tuple(rows),
        label="Comparison",
        notes=(
            "SD, subjects and SD, repetitions: what each adds to the paired difference of one run; "
            "further repetitions average out the second alone. SD of the differences: of the "
            "paired differences over folds, at this number of repetitions and one seed. minimum "
            "effect: the smallest true mean difference that is found. minimum margin: the smallest "
            "margin within which equal methods are found equivalent. In parentheses: over the 95 % "
            "interval of the SD that a pilot of this size leaves open.",
            f"Exact tests at {100 * level:.3g} %, two-sided for a difference"
            + (
                f": 5 % at the strictest step of Holm's correction over {family} comparisons."
                if family > 1
                else ", not corrected: one comparison."
            ),
        ),
        records=tuple(records),
    )


def power_table(
    c: Comparison,
    goal: Goal,
    folds: Sequence[int],
    repetitions: Sequence[int],
    grid: NDArray[np.float64],
    *,
    power: float = POWER,
) -> Table:
    """Return the power over folds and repetitions for one goal; enough of it is marked."""
    enough = np.round(grid, 2) >= power
    rows = [
        text_row(
            f"{n} folds",
            (
                f"{100 * value:.0f} %{' ✓' if marked else ''}"
                for value, marked in zip(grid[i], enough[i], strict=True)
            ),
        )
        for i, n in enumerate(folds)
    ]
    return Table(
        name="power-grid",
        title=f"{comparison_text(c)}: power to show {goal_text(c.metric, goal)}",
        columns=columns_of(*(f"{n} repetition{'s' * (n > 1)}" for n in repetitions)),
        rows=tuple(rows),
        label="Folds",
        notes=(f"✓ {100 * power:g} % or more.",) if enough.any() else (),
        records=tuple(
            {"folds": n, "repetitions": r, "power": float(grid[i, j]), **asdict(goal)}
            for i, n in enumerate(folds)
            for j, r in enumerate(repetitions)
        ),
    )


def comparison_text(c: Comparison) -> str:
    """Return the two methods and where they are compared."""
    return f"{_methods(c)}, {task_label(c.dataset, c.backbone, c.metric)}"


def goal_text(metric: str, goal: Goal) -> str:
    """Return what a goal shows, such as ``a difference of 1 point``."""
    if goal.margin is None:
        return f"a difference of {metric_style(metric).margin_text(abs(goal.effect))}"
    return f"equivalence within {metric_style(metric).margin_text(goal.margin)}"


def _component_sds(noise: VarianceComponents) -> dict[str, float]:
    """Return the SDs of subjects and of repetitions, with seeds; NaN if not told apart."""
    by_source = {c.sources: math.sqrt(c.variance) for c in noise.components}
    below = [c.variance for c in noise.components if c.is_averaged_by_repetitions]
    told_apart = (SUBJECT,) in by_source
    return {
        "subject_sd": by_source[SUBJECT,] if told_apart else math.nan,
        "repetition_sd": math.sqrt(sum(below)) if told_apart else math.nan,
    }


def _methods(c: Comparison) -> str:
    return f"{method_label(c.method)} − {method_label(c.baseline)}"


def _interval_text(scale: float, values: Sequence[float]) -> str:
    value, low, high = (scale * v for v in values)
    return f"{value:.2f} ({low:.1f}–{high:.1f})".replace("inf", "∞")
