"""The commands ``afor calibrate | variance | power``: what a study can decide."""

import json
import math
import shlex
from typing import Annotated

import typer

from afor.bench.cli.options import (
    AllowDifferent,
    FigureFile,
    Json,
    OnlyStudies,
    ResultsList,
    TableFormat,
    option,
)
from afor.bench.cli.printing import FORMATS, check_figures, choose, render
from afor.bench.cli.results.reading import Margins, find_all, load_conditions
from afor.bench.cli.results.tables import Baseline, Metrics, ResultOptions, selection
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.common.errors import ConfigError
from afor.bench.common.text import without_nan
from afor.bench.execution.timing.run_times import clock
from afor.bench.report.figures.planning import calibration_figure, power_figure
from afor.bench.report.figures.style import save_figure
from afor.bench.report.tables import planning as tables
from afor.bench.report.tables.formats import Table, to_json
from afor.bench.stats.comparisons import BASELINE, main_optimizers
from afor.bench.stats.design.calibration import RELABELLINGS
from afor.bench.stats.design.calibration import calibrate as calibrate_copies
from afor.bench.stats.design.power import (
    POWER,
    Assessment,
    Design,
    Goal,
    assess,
    cheapest_design,
    power_grid,
)
from afor.bench.stats.groups import Conditions, default_metrics
from afor.bench.stats.inference.decisions import LEVEL
from afor.bench.stats.inference.margins import margin_of
from afor.bench.stats.labels import gain_scale

GRID_FOLDS = (6, 8, 10, 15, 20, 30, 40, 60, 80, 100)
MORE_FOLDS = (150, 200, 300, 500, 1000, 2000)  # shown as far as a design needs them
GRID_DRAWS = (1, 2, 3, 5, 10)

OneMetric = Annotated[str, option("Metric to plan for.", "--metric", "-m")]


def calibrate(
    results: ResultsList = None,
    metric: Metrics = None,
    study: OnlyStudies = None,
    margin: Margins = None,
    relabellings: Annotated[
        int, option("Number of relabelled studies.", min=100, max=1_000_000)
    ] = RELABELLINGS,
    seed: Annotated[int, option("Seed of the relabelling.", min=0)] = 0,
    output: FigureFile = None,
    form: TableFormat = None,
    as_json: Json = False,
) -> None:
    """Measure how often the verdicts err on copies of one method.

    Copies of one method under several seeds exchange their names at random in every fold and draw.
    Each difference that is then declared is a false positive. The same differences moved by the
    margin show false equivalences. --output draws the distribution of the p-values.

    Example:
        afor calibrate demo --metric accuracy --output p-values.png
    """
    check_figures([output])
    paths = find_all(results)
    conditions = load_conditions(paths, study, margin)
    metrics = metric or default_metrics(conditions)
    _check_metrics(conditions, metrics)
    made = calibrate_copies(conditions, metrics, relabellings=relabellings, seed=seed)
    _print([tables.calibration_table(made)], form, as_json)
    if output is not None:
        save_figure(calibration_figure(made), output)
        typer.echo(str(output), err=as_json or form is not None)
    print_next(f"afor variance {selection(ResultOptions(results, metric, study=study))}")


def variance(
    results: ResultsList = None,
    metric: Metrics = None,
    baseline: Baseline = BASELINE,
    optimizer: Annotated[list[str] | None, option("Show only this optimizer; repeatable.")] = None,
    study: OnlyStudies = None,
    form: TableFormat = None,
    as_json: Json = False,
) -> None:
    """Show where the variance of a difference comes from.

    Splits the variance of each paired difference into what subjects, draws of validation subjects
    and seeds add, and into the rest, which is rounding that training amplifies. The text says what
    the design of a study cannot tell apart.

    Example:
        afor variance demo --metric accuracy
    """
    paths = find_all(results)
    conditions = load_conditions(paths, study, None)
    metrics = metric or default_metrics(conditions)
    _check_metrics(conditions, metrics)
    _check_optimizers(conditions, [baseline, *(optimizer or ())])
    table = tables.variance_table(conditions, metrics, baseline=baseline, optimizers=optimizer)
    _print([table], form, as_json)
    if not metric or len(metric) == 1:  # power plans for one
        chosen = ResultOptions(results, metric, baseline, (optimizer or [])[:1], study)
        print_next(f"afor power {selection(chosen)}")


def power(
    results: ResultsList = None,
    optimizer: Annotated[
        str, option("The comparison to plan for.", show_default="afor, or the first of the study")
    ] = "",
    baseline: Baseline = BASELINE,
    metric: OneMetric = "accuracy",
    effect: Annotated[
        float | None,
        option("True difference that the study shall show, in points.", show_default="the margin"),
    ] = None,
    margin: Margins = None,
    allow_different: AllowDifferent = None,
    wanted: Annotated[float, option("Wanted power, between 0.05 and 0.99.", "--power")] = POWER,
    family: Annotated[
        int,
        option(
            "Number of comparisons that Holm's correction covers; 1 for a single one.",
            min=0,
            max=1000,
            show_default="as in the study",
        ),
    ] = 0,
    dataset: Annotated[str, option("Data set to plan for.", show_default="the first")] = "",
    backbone: Annotated[str, option("Backbone to plan for.", show_default="the first")] = "",
    study: OnlyStudies = None,
    output: FigureFile = None,
    form: TableFormat = None,
    as_json: Json = False,
) -> None:
    """Tell what a study can decide, and how many subjects it takes.

    From a finished pilot: the smallest difference and the smallest margin that its design decides
    on, the power over folds and draws, and the cheapest design for the wanted effect and for
    equivalence. --output draws the power.

    Example:
        afor power demo --optimizer afor --effect 2 --output power.png
    """
    check_figures([output])
    if not 0.05 <= wanted <= 0.99:
        raise ConfigError(f"--power {wanted:g}: expected a number between 0.05 and 0.99.")
    if effect is not None and not 0 < effect < math.inf:
        raise ConfigError(f"--effect {effect:g}: expected a difference in points, more than 0.")
    paths = find_all(results)
    conditions = load_conditions(paths, study, margin, allow_different)
    _check_metrics(conditions, [metric])
    asked = [optimizer] if optimizer else []
    _check_optimizers(conditions, [baseline, *asked])
    names = [name for name in main_optimizers(conditions) if name != baseline]
    family = family or max(1, len(names))
    level = LEVEL / family
    listed = list(dict.fromkeys([*names, *asked]))
    assessments = assess(conditions, metric, baseline=baseline, optimizers=listed)
    made = _pick(assessments, conditions, optimizer, baseline, dataset, backbone)
    goals = _goals(made, conditions, effect, level)
    designs = [
        cheapest_design(made.noise, goal, seconds=made.seconds, power=wanted) for goal in goals
    ]
    folds = _grid_folds(made, designs)
    draws = sorted({*GRID_DRAWS, made.noise.draws}) if made.noise.draws > 1 else [1]
    grids = [power_grid(made.noise, goal, folds, draws) for goal in goals]
    built = [tables.assessment_table(assessments, family=family, power=wanted)]
    built += [
        tables.power_table(made, goal, folds, draws, grid, power=wanted)
        for goal, grid in zip(goals, grids, strict=True)
    ]
    sentences = [
        _design_sentence(made, goal, design, wanted)
        for goal, design in zip(goals, designs, strict=True)
    ]
    if as_json:
        content = {
            "comparisons": [dict(record) for record in built[0].records],
            "chosen": {
                **{k: v for k, v in vars(made).items() if k not in ("noise", "seconds")},
                "family": family,
                "power": wanted,
            },
            "goals": [
                {
                    "effect": goal.effect,
                    "margin": goal.margin,
                    "grid": [dict(record) for record in table.records],
                    "cheapest": None if design is None else vars(design),
                    "sentence": sentence,
                }
                for goal, table, design, sentence in zip(
                    goals, built[1:], designs, sentences, strict=True
                )
            ],
        }
        print_json(without_nan(content))
    else:
        _print(built, form, as_json=False)
        typer.echo("\n".join(sentences))
        if made.noise.draws == 1:
            typer.echo("The pilot has one draw per fold and cannot tell what further draws bring.")
    if output is not None:
        texts = [tables.goal_text(metric, goal) for goal in goals]
        panels = dict(zip(texts, grids, strict=True))
        title, pilot = tables.comparison_text(made), made.noise.folds
        figure = power_figure(panels, folds, draws, title=title, pilot=pilot, power=wanted)
        save_figure(figure, output)
        typer.echo(str(output), err=as_json or form is not None)
    if metric == "accuracy" and len(paths) == 1 and not study:  # what a pilot is read for
        base = "" if baseline == BASELINE else f" --baseline {shlex.quote(baseline)}"
        print_next(f"afor plan STUDY --pilot {shlex.quote(str(paths[0]))}{base}")


def _grid_folds(made: Assessment, designs: list[Design | None]) -> list[int]:
    """Return the numbers of folds to show: up to those of the designs that are enough."""
    most = max((design.folds for design in designs if design is not None), default=0)
    needed = [n for n, fewer in zip(MORE_FOLDS, (GRID_FOLDS[-1], *MORE_FOLDS), strict=False)
              if fewer < most]  # fmt: skip
    return sorted({*GRID_FOLDS, *needed, made.noise.folds})


def _goals(
    made: Assessment, conditions: Conditions, effect: float | None, level: float
) -> list[Goal]:
    """Return what to plan for: a difference, and equivalence where the metric has a margin."""
    condition = conditions[made.dataset, made.backbone, made.baseline]
    margin = margin_of(made.metric, condition.margins)
    if effect is None and margin is None:
        raise ConfigError(
            f"The metric {made.metric!r} has no margin of its own; give the difference to show "
            f"with --effect, or a margin with --margin {made.metric}=NUMBER."
        )
    size = margin if effect is None else effect / gain_scale(made.metric)
    goals = [Goal(float(size or 0.0), level=level)]
    return goals if margin is None else [*goals, Goal(0.0, margin, level)]


def _pick(
    assessments: list[Assessment],
    conditions: Conditions,
    optimizer: str,
    baseline: str,
    dataset: str,
    backbone: str,
) -> Assessment:
    """Return the comparison to plan for: the one named, else AFOR's, else the first."""
    matching = [
        made
        for made in assessments
        if optimizer in ("", made.optimizer)
        and dataset in ("", made.dataset)
        and backbone in ("", made.backbone)
    ]
    if not matching:
        present = ", ".join(f"{d}/{b}/{o}" for d, b, o in conditions)
        raise ConfigError(
            f"No comparison of {optimizer or 'an optimizer'} with {baseline!r} on "
            f"{dataset or '*'}/{backbone or '*'} has two or more complete folds. Here: {present}."
        )
    return next((made for made in matching if made.optimizer == "afor"), matching[0])


def _design_sentence(made: Assessment, goal: Goal, design: Design | None, power: float) -> str:
    words = f"To show {tables.goal_text(made.metric, goal)} with {100 * power:g} % power"
    if design is None:
        return f"{words} no design of up to 2000 folds is enough."
    time = "" if math.isnan(design.seconds) else f", about {clock(design.seconds)} of training"
    runs = 2 * design.folds * design.draws
    return (
        f"{words}, the cheapest design has {design.folds} folds × {design.draws} "
        f"draw{'s' * (design.draws > 1)}: {runs} runs of the two methods{time}. What the pilot "
        f"leaves open about the noise puts its power between {100 * design.power_range[0]:.0f} and "
        f"{100 * design.power_range[1]:.0f} %."
    )


def _check_metrics(conditions: Conditions, metrics: list[str]) -> None:
    recorded = dict.fromkeys(
        m for c in conditions.values() for run in c.runs.values() for m in run.metrics
    )
    for metric in metrics:
        choose(metric, tuple(recorded), "--metric")


def _check_optimizers(conditions: Conditions, names: list[str]) -> None:
    present = tuple(dict.fromkeys(o for _, _, o in conditions))
    for name, word in zip(names, ("--baseline", *["--optimizer"] * len(names)), strict=False):
        choose(name, present, word)


def _print(built: list[Table], form: str | None, as_json: bool) -> None:
    if as_json:
        content = [json.loads(to_json(table)) for table in built]
        print_json(content[0] if len(content) == 1 else content)
        return
    table_format = choose(form or "terminal", FORMATS, "--format")
    for table in built:
        typer.echo(render(table, table_format))
