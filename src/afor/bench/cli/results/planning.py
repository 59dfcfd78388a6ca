"""The command ``afor power``, and what ``afor plan --pilot`` says: what a study can decide."""

import math
from typing import Any

from afor.bench.cli.options import TableFormat
from afor.bench.cli.printing import OutputOptions, choose, render
from afor.bench.cli.results.reading import ResultOptions
from afor.bench.cli.terminal import print_next
from afor.bench.common.errors import ConfigError
from afor.bench.common.text import counted
from afor.bench.execution.run_times import clock
from afor.bench.report.figures.planning import power_figure
from afor.bench.report.tables import planning as tables
from afor.bench.report.verdicts import verdict_of
from afor.bench.stats.comparisons import Comparison
from afor.bench.stats.design.power import (
    POWER,
    Design,
    Goal,
    cheapest_design,
    fewest_folds,
    noise_of,
    power_grid,
    smallest_effect,
    smallest_margin,
)
from afor.bench.stats.inference.decisions import LEVEL
from afor.bench.stats.labels import metric_style
from afor.bench.stats.results import Results
from afor.bench.study.planned_runs import StudyPlan

GRID_FOLDS = (6, 8, 10, 15, 20, 30, 40, 60, 80, 100)
MORE_FOLDS = (150, 200, 300, 500, 1000, 2000)  # shown as far as a design needs them
GRID_REPETITIONS = (1, 2, 3, 5, 10)


def power(
    results: list[str] | None = None,
    *,
    outputs: OutputOptions,
    method: str = "",
    baseline: str | None = None,
    metric: str = "accuracy",
    effect: float | None = None,
    margin: list[str] | None = None,
    allow_different: list[str] | None = None,
    wanted: float = POWER,
    family: int = 0,
    dataset: str | None = None,
    backbone: str | None = None,
    study: list[str] | None = None,
    form: TableFormat | None = None,
) -> None:
    """Tell what a study can decide, and how many subjects it takes.

    From a finished pilot: where the noise comes from, the minimum detectable effect and the
    smallest margin of its design, the power over folds and repetitions, and the cheapest design for
    the wanted effect and for equivalence. --output draws the power.

    Args:
        results: The results: study names, TOML files, store files, or .csv, .json and .parquet
            files of results or of any scores.
        method: The comparison to plan for. [default: afor, or the first of the study]
        metric: Metric to plan for.
        effect: True difference that the study shall show, in points. [default: the margin]
        wanted: Wanted power, between 0.05 and 0.99.
        family: Number of comparisons that Holm's correction covers; 1 for a single one. [default:
            as in the study]
        dataset: Use only this data set. [default: the first]
        backbone: Use only this backbone. [default: the first]

    Example:
        afor power demo --method afor --effect 2 --output power.png
    """
    outputs.check()
    if not 0.05 <= wanted <= 0.99:
        raise ConfigError(f"--power {wanted:g}: expected a number between 0.05 and 0.99.")
    if effect is not None and not 0 < effect < math.inf:
        raise ConfigError(f"--effect {effect:g}: expected a difference in points, more than 0.")
    options = ResultOptions(
        results,
        metric=[metric],
        baseline=baseline,
        study=study,
        margin=margin,
        allow_different=allow_different,
    )
    opened = options.open().only(dataset, backbone)
    baseline = opened.baseline
    _check_methods(opened, [baseline, *([method] if method else [])])
    listed = _planned_for(opened, method)
    family = family or max(1, len([name for name in opened.methods if name != baseline]))
    made = _pick(listed, opened, method)
    if made.is_blind:
        raise ConfigError(
            "\n".join([f"{tables.comparison_text(made)}.", *verdict_of(made).lines])
            + "\nA study cannot be planned from methods that guess."
        )
    noise = noise_of(made)
    goals = _goals(made, effect, LEVEL / family)
    seconds = _seconds(opened, made)
    designs = [cheapest_design(noise, goal, seconds=seconds, power=wanted) for goal in goals]
    folds = _grid_folds(noise.folds, designs)
    repetitions = sorted({*GRID_REPETITIONS, noise.repetitions}) if noise.repetitions > 1 else [1]
    grids = [power_grid(noise, goal, folds, repetitions) for goal in goals]
    shown = [c for c in listed if not c.is_blind]
    built = [tables.assessment_table(shown, family=family, power=wanted)]
    built += [
        tables.power_table(made, goal, folds, repetitions, grid, power=wanted)
        for goal, grid in zip(goals, grids, strict=True)
    ]
    sentences = [
        _design_sentence(made, goal, design, wanted)
        for goal, design in zip(goals, designs, strict=True)
    ]
    names = ("dataset", "backbone", "metric", "method", "baseline")
    chosen = {name: getattr(made, name) for name in names}
    content = {
        "comparisons": built[0].records,
        "chosen": {**chosen, "family": family, "power": wanted},
        "goals": [
            {
                "effect": goal.effect,
                "margin": goal.margin,
                "grid": table.records,
                "cheapest": None if design is None else vars(design),
                "sentence": sentence,
            }
            for goal, table, design, sentence in zip(
                goals, built[1:], designs, sentences, strict=True
            )
        ],
    }
    if noise.repetitions == 1:
        sentences.append(
            "The pilot has one repetition per fold and cannot tell what further ones bring."
        )

    def draw() -> Any:
        texts = [tables.goal_text(metric, goal) for goal in goals]
        return power_figure(
            dict(zip(texts, grids, strict=True)),
            folds,
            repetitions,
            title=tables.comparison_text(made),
            pilot=noise.folds,
            power=wanted,
        )

    text = "\n".join([*(render(table, form or "terminal") for table in built), *sentences])
    outputs.show(text, content, draw)
    plannable = len(results or ()) == 1 and not (study or margin or opened.remarks)
    if metric == "accuracy" and plannable:
        words = options.words(metric=None)
        print_next(f"afor plan STUDY --pilot {words}")  # it reads the accuracy of one pilot


def pilot_sentences(planned: StudyPlan, pilot: str) -> list[str]:
    """Say what a planned study can decide about accuracy at the noise of a pilot.

    Returns one sentence per data set, backbone and method of the plan. A task that the pilot
    does not hold is judged by the noise of those that it holds, and the sentence says so.
    """
    opened = Results.open([pilot], baseline=None, metrics=["accuracy"])
    baseline, expected = opened.baseline, planned.expected()
    replicates = {row.method for row in expected if row.role is not None and row.role.replicate_of}
    listed = dict.fromkeys(row.method for row in expected if row.method not in replicates)
    others = [name for name in listed if name != baseline]
    compared = [
        c
        for task in opened.tasks
        for c in opened.against(baseline, others, *task, "accuracy")
        if c.noise is not None
    ]
    level = LEVEL / max(1, len(others))
    sentences = []
    for dataset, backbone, folds, repetitions in dict.fromkeys(
        (row.dataset, row.backbone, row.folds, row.repetitions) for row in expected
    ):
        same = [c for c in compared if (c.dataset, c.backbone) == (dataset, backbone)]
        if compared and folds < fewest_folds(level):
            sentences.append(
                f"{dataset} × {backbone}: {folds} folds are too few to show a difference; with "
                f"Holm's correction over {len(others)} comparisons it takes {fewest_folds(level)}."
            )
            continue
        for c in same or compared:
            if c.is_blind:
                sentences.append(
                    f"{dataset} × {backbone}, {c.method} − {baseline}: {verdict_of(c).what}"
                )
                continue
            sd = math.sqrt(noise_of(c).fold_variance(repetitions))
            borrowed = "" if same else f", noise of {c.dataset} × {c.backbone}"
            sentences.append(
                f"{dataset} × {backbone}, {c.method} − {baseline}{borrowed}: {folds} folds × "
                f"{counted(repetitions, 'repetition')} show with {100 * POWER:g} % power a "
                f"difference of {100 * smallest_effect(sd, folds, level):.2f} points, or "
                f"equivalence within {100 * smallest_margin(sd, folds, level):.2f} points."
            )
    if not sentences:
        present = ", ".join(dict.fromkeys(o for _, _, o in opened.conditions))
        raise ConfigError(
            f"--pilot {pilot}: no method of the study shares two or more folds with the "
            f"baseline {baseline!r} there. It holds {present}."
        )
    return sentences


def _planned_for(opened: Results, asked: str) -> list[Comparison]:
    """Return the comparisons with two or more folds; one that is asked for may be a control."""
    found = list(opened.comparisons)
    if asked and asked not in opened.methods:
        metric = opened.metrics[0]
        found += [
            c for t in opened.tasks for c in opened.against(opened.baseline, [asked], *t, metric)
        ]
    return [c for c in found if c.noise is not None]


def _seconds(opened: Results, made: Comparison) -> float:
    """Return the mean time of a run of two methods; NaN where no time is known."""
    times = [
        run.elapsed_s
        for method in (made.method, made.baseline)
        for run in opened.conditions[made.dataset, made.backbone, method].runs.values()
        if run.elapsed_s is not None
    ]
    return math.fsum(times) / len(times) if times else math.nan


def _grid_folds(pilot: int, designs: list[Design | None]) -> list[int]:
    """Return the numbers of folds to show: up to those of the designs that are enough."""
    most = max((design.folds for design in designs if design is not None), default=0)
    needed = [n for n, fewer in zip(MORE_FOLDS, (GRID_FOLDS[-1], *MORE_FOLDS), strict=False)
              if fewer < most]  # fmt: skip
    return sorted({*GRID_FOLDS, *needed, pilot})


def _goals(made: Comparison, effect: float | None, level: float) -> list[Goal]:
    """Return what to plan for: a difference, and equivalence where the metric has a margin."""
    margin = made.evidence.margin
    if effect is None and margin is None:
        raise ConfigError(
            f"The metric {made.metric!r} has no margin of its own; give the difference to show "
            f"with --effect, or a margin with --margin {made.metric}=NUMBER."
        )
    size = margin if effect is None else effect / metric_style(made.metric).gain_scale
    goals = [Goal(float(size or 0.0), level=level)]
    return goals if margin is None else [*goals, Goal(0.0, margin, level)]


def _pick(listed: list[Comparison], opened: Results, method: str) -> Comparison:
    """Return the comparison to plan for: the one named, else AFOR's, else the first."""
    matching = [c for c in listed if method in ("", c.method)]
    if not matching:
        present = ", ".join(f"{d}/{b}/{o}" for d, b, o in opened.conditions)
        raise ConfigError(
            f"No comparison of {method or 'a method'} with {opened.baseline!r} has two or more "
            f"complete folds. Here: {present}."
        )
    return next((c for c in matching if c.method == "afor"), matching[0])


def _design_sentence(made: Comparison, goal: Goal, design: Design | None, power: float) -> str:
    words = f"To show {tables.goal_text(made.metric, goal)} with {100 * power:g} % power"
    if design is None:
        return f"{words} no design of up to 2000 folds is enough."
    time = "" if math.isnan(design.seconds) else f", about {clock(design.seconds)} of training"
    runs = 2 * design.folds * design.repetitions
    return (
        f"{words}, the cheapest design has {design.folds} folds × "
        f"{counted(design.repetitions, 'repetition')}: {runs} runs of the two methods{time}. What "
        f"the pilot leaves open of the noise puts its power between "
        f"{100 * design.power_range[0]:.0f} and {100 * design.power_range[1]:.0f} %."
    )


def _check_methods(opened: Results, names: list[str]) -> None:
    present = tuple(dict.fromkeys(o for _, _, o in opened.conditions))
    for name, word in zip(names, ("--baseline", "--method"), strict=False):
        choose(name, present, word)
