"""Write the tables and figures of the page on beta2 from the stores of its studies, or its runs.

    python studies/beta2/results.py results docs/results/when-beta2-matters
    python studies/beta2/results.py docs/results/when-beta2-matters docs/results/when-beta2-matters

The first folder holds a store (`bursts.db`) or the exported runs (`bursts.csv`) of each study. From
a store the runs of all folds and repetitions that every method has finished are exported. A study
that is not there, or has too few such folds, is left out.
"""

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from methods import REFERENCE, Method, runs_by_method, study_of
from rates import chosen_rates, rate_table

from afor.bench.analyses.headroom.compute import Candidate, Headroom, headroom_of
from afor.bench.analyses.headroom.views import headroom_tables
from afor.bench.report.figures.style import (
    BLACK,
    COLOR_CYCLE,
    MARKER_CYCLE,
    house_style,
    new_figure,
    plain,
    save_figure,
)
from afor.bench.report.tables.formats import to_markdown
from afor.bench.stats.inference.decisions import Decision, PairedDecision, decide_family
from afor.bench.stats.labels import (
    margin_of,
    method_label,
    metric_style,
    signed,
)
from afor.bench.store.database import open_store
from afor.bench.store.files import export_rows, to_csv
from afor.bench.store.results import RunResult

CHOOSING = tuple(
    f"{name}-choose" for name in ("clean", "bursts", "amplitude", "stream", "adaptation", "awake")
)
JUDGING = (
    "clean", "bursts", "original", "amplitude", "stream", "adaptation", "awake", "variants",
    "step-size", "bursts-confirm", "clean-confirm", "adaptation-confirm", "awake-confirm",
)  # fmt: skip
CHOSEN_IN = {"original": "bursts-choose"}  # the rates of the other studies are in NAME-choose
LEFT_OUT = ("reason", "epochs", "best_epoch", "best_validation_accuracy", "replicate_of", "seed")
MIN_FOLDS = 6  # fewer cannot reach 5 % in an exact two-sided test
TRACED = ("beta2", "beta2_sd", "awake")
STEPS_PER_EPOCH = 360  # of the study `awake`
FINAL, NEXT = ("nll", "accuracy"), ("prequential_nll", "prequential_accuracy")


@dataclass(frozen=True)
class Regime:
    """A study, its metrics in nats and in points, and the methods that vary in beta2 alone."""

    title: str
    study: str
    metrics: tuple[str, str] = FINAL
    is_clipped: bool = False

    @property
    def file(self) -> str:
        """The name of its files, without a suffix."""
        held_out = "-held-out" * (self.study == "stream" and self.metrics == FINAL)
        return self.study + "-clip" * self.is_clipped + held_out

    def contains(self, method: Method) -> bool:
        """Tell whether a method takes part: of the clipped ones, 0.999 also beside the others."""
        is_clipped_reference = method.is_clipped and method.beta2 == REFERENCE
        return method.is_clipped == self.is_clipped or is_clipped_reference

    def constant(self, method: Method) -> float | None:
        """Return the constant beta2 of a method, or None for a rule or another way to train."""
        return None if method.is_clipped != self.is_clipped or method.is_reset else method.beta2


CLEAN = Regime("clean, shuffled", "clean")
CLEAN_CLIPPED = Regime("clean, clipped at 0.5", "clean", is_clipped=True)
STREAM = Regime("stream, next subject", "stream", NEXT)
HELD_OUT = Regime("stream, held-out subjects at the end", "stream")
BURSTS = Regime("bursts of wrong labels", "bursts")
CLIPPED = Regime("bursts, clipped at 0.5", "bursts", is_clipped=True)
NEW_SUBJECT = Regime("new subject, state kept", "adaptation")
ORIGINAL = Regime("bursts, original EEGNet", "original")
AMPLITUDE = Regime("5 % of windows × 30, no batch norm", "amplitude")
BURSTS_AGAIN = Regime("bursts again, three new repetitions", "bursts-confirm")
CLEAN_AGAIN = Regime("clean again, three new repetitions", "clean-confirm")
NEW_SUBJECT_AGAIN = Regime("new subject again, three new repetitions", "adaptation-confirm")
AGAIN = {BURSTS: BURSTS_AGAIN, CLEAN: CLEAN_AGAIN, NEW_SUBJECT: NEW_SUBJECT_AGAIN}
# One regime for each study, with all its methods.
STUDIES = (CLEAN, BURSTS, ORIGINAL, AMPLITUDE, STREAM, NEW_SUBJECT)
REGIMES = (
    CLEAN, CLEAN_CLIPPED, STREAM, HELD_OUT, BURSTS, CLIPPED, ORIGINAL, AMPLITUDE, NEW_SUBJECT,
)  # fmt: skip
MEASURED = (*REGIMES, *AGAIN.values())
# What wrong labels add, from runs with and without them.
INTERACTIONS = {
    "bursts-minus-clean": ("bursts", "clean"),
    "bursts-minus-clean-confirm": ("bursts-confirm", "clean-confirm"),
}


@dataclass(frozen=True)
class Claim:
    """A difference that the pilot printed, in the units of the tables."""

    regime: Regime
    difference: str
    metric: str
    value: float
    low: float
    high: float


BEST, AFOR_LEFT, RESET = "best constant − 0.999", "AFOR − best constant", "state reset − kept"
# The pilot of the issue: 109 people, networks of its own. NaN stands for an interval that it does
# not print.
NAN = float("nan")
PILOT = (
    Claim(CLEAN, BEST, "nll", 0.8, -0.3, 1.9),
    Claim(CLEAN, BEST, "accuracy", 0.1, -0.1, 0.2),
    Claim(CLEAN, AFOR_LEFT, "nll", -0.3, -0.8, 0.3),
    Claim(CLEAN, AFOR_LEFT, "accuracy", 0.0, NAN, NAN),
    Claim(STREAM, BEST, "prequential_nll", 1.7, 0.0, 3.4),
    Claim(STREAM, BEST, "prequential_accuracy", 0.9, 0.6, 1.1),
    Claim(STREAM, AFOR_LEFT, "prequential_nll", -1.5, -2.8, -0.3),
    Claim(STREAM, AFOR_LEFT, "prequential_accuracy", -0.6, -0.9, -0.4),
    Claim(BURSTS, BEST, "nll", 13.1, 6.5, 21.5),
    Claim(BURSTS, BEST, "accuracy", 1.0, 0.5, 1.7),
    Claim(BURSTS, AFOR_LEFT, "nll", -11.3, -18.3, -5.7),
    Claim(BURSTS, AFOR_LEFT, "accuracy", -0.7, -1.2, -0.3),
    Claim(CLIPPED, BEST, "nll", -0.4, -1.1, 0.2),
    Claim(CLIPPED, BEST, "accuracy", -0.1, NAN, NAN),
    Claim(CLIPPED, AFOR_LEFT, "nll", 0.6, 0.2, 1.1),
    Claim(CLIPPED, AFOR_LEFT, "accuracy", 0.1, NAN, NAN),
    Claim(AMPLITUDE, BEST, "nll", 38.7, 15.0, 67.0),
    Claim(AMPLITUDE, BEST, "accuracy", 3.7, 1.5, 6.4),
    Claim(AMPLITUDE, AFOR_LEFT, "nll", -21.0, -36.0, -7.0),
    Claim(AMPLITUDE, AFOR_LEFT, "accuracy", -2.2, NAN, NAN),
    Claim(NEW_SUBJECT, BEST, "nll", 1.5, 0.7, 2.4),
    Claim(NEW_SUBJECT, BEST, "accuracy", -0.1, NAN, NAN),
    Claim(NEW_SUBJECT, AFOR_LEFT, "nll", -1.3, -2.1, -0.4),
    Claim(NEW_SUBJECT, AFOR_LEFT, "accuracy", 0.1, NAN, NAN),
    Claim(NEW_SUBJECT, RESET, "nll", 8.3, 2.6, 14.0),
)


def write_runs(store: Path, target: Path, least: int) -> None:
    """Export the runs of the folds and repetitions that every method has finished."""
    with open_store(store) as opened:
        rows = export_rows(opened)
    methods = {row["method"] for row in rows}
    done = {
        (row["fold"], row["repetition"], row["method"]) for row in rows if row["status"] == "done"
    }
    paired = [
        {
            key: value
            for key, value in row.items()
            if key not in LEFT_OUT and not key.startswith("trial_")
        }
        for row in rows
        if all((row["fold"], row["repetition"], method) in done for method in methods)
    ]
    folds = len({row["fold"] for row in paired})
    if folds < least:
        sys.stderr.write(f"{store}: {folds} complete folds, {least} are needed; left out\n")
        return
    target.write_text(to_csv(paired), "utf-8")


def measure(regime: Regime, folder: Path) -> list[Headroom]:
    """Measure the headroom of one regime in its two metrics."""
    runs = runs_by_method(folder / f"{regime.study}.csv")
    methods = {method for method, _ in runs}  # of the study: all but 0.999, and the best constant
    measured = []
    for metric in regime.metrics:
        candidates = []
        for (method, rate), group in runs.items():
            if regime.contains(method):
                constant = regime.constant(method)
                label = method.label if constant is None else f"β₂ = {constant:g}"
                values = {(run.fold, run.repetition): run.metrics[metric] for run in group}
                candidates.append(Candidate(label, constant, rate, values))
        study = study_of(regime.study)
        headroom = headroom_of(candidates, metric, margins=study.margins, family=len(methods))
        backbone = study.backbones[0].name
        measured.append(replace(headroom, study=regime.title, dataset="eyes", backbone=backbone))
    return measured


def our_decision(claim: Claim, headroom: Headroom) -> PairedDecision | None:
    """Return our difference for a claim of the pilot; None if its method was not run."""
    if claim.difference == BEST:
        return headroom.best_constant.over_reference
    rules = {rule.method: rule for rule in headroom.rules}
    if claim.difference == RESET:
        rule = rules.get(Method("adamw", REFERENCE, is_reset=True).label)
        return rule.over_reference if rule else None
    rule = rules.get(Method("afor", None, claim.regime.is_clipped).label)
    return rule.over_best_constant if rule else None


def verdict(claim: Claim, ours: PairedDecision) -> str:
    """Say whether our differences confirm the pilot, refute it, or leave it undecided.

    The pilot claims an effect if its interval excludes zero, else that there is none. An effect is
    confirmed by a difference of its sign (exact, two-sided, 5 %), and refuted by one of the other
    sign or by equivalence within the margin. No effect is confirmed by equivalence, and refuted by
    a difference. The tests are not corrected for the number of claims.
    """
    claims_effect = claim.low > 0 or claim.high < 0
    differs = ours.p_two_sided < ours.level
    equal = ours.p_equivalent < ours.level
    if claims_effect and differs:
        return "confirmed" if (ours.mean > 0) == (claim.value > 0) else "refuted"
    if equal:
        return "refuted" if claims_effect else "confirmed"
    return "refuted" if differs else "undecided"


Runs = Mapping[tuple[Method, float], Sequence[RunResult]]


def fold_differences(
    runs: Runs, metric: str, one: tuple[Method, float], other: tuple[Method, float]
) -> list[float]:
    """Return one minus the other in every fold, mean of repetitions; positive is better."""
    means: list[dict[int, float]] = []
    for group in (runs[one], runs[other]):
        folds = sorted({run.fold for run in group})
        means.append(
            {
                fold: float(np.mean([run.metrics[metric] for run in group if run.fold == fold]))
                for fold in folds
            }
        )
    return [metric_style(metric).sign * (means[0][fold] - means[1][fold]) for fold in means[0]]


def decisions_at(
    runs: Runs, study: str, metric: str, rates: Mapping[Method, float]
) -> dict[Method, PairedDecision]:
    """Compare every method at its rate with AdamW of 0.999 at its own; Holm over the methods."""
    reference = Method("adamw", REFERENCE)
    methods = [method for method in rates if method != reference]
    differences = [
        fold_differences(runs, metric, (method, rates[method]), (reference, rates[reference]))
        for method in methods
    ]
    decisions = decide_family(differences, margin=margin_of(metric, study_of(study).margins))
    return dict(zip(methods, decisions, strict=True))


def decision_text(decision: PairedDecision, metric: str) -> str:
    """Return a gain with its interval, and what it shows if that is decided."""
    scale = metric_style(metric).gain_scale
    gain = _interval_text(*(scale * value for value in (decision.mean, *decision.interval)))
    if decision.decision == Decision.UNDECIDED:
        return gain
    return f"{gain} **{decision.decision}**"


def rate_grid(runs: Runs) -> list[float]:
    """Return the learning rates of a study."""
    return sorted({rate for _, rate in runs})


def same_rate_table(regime: Regime, runs: Runs) -> str:
    """Return what every method gains over 0.999 at the same learning rate, as Markdown."""
    grid = rate_grid(runs)
    methods = list(dict.fromkeys(method for method, _ in runs))
    lines = []
    for metric in regime.metrics:
        unit, level_is_nats = metric_style(metric).gain_unit, "nll" in metric
        lines += [
            f"| {regime.study}: {metric_style(metric).label}, gain over 0.999 ({unit}) at | "
            + " | ".join(f"{rate:g}" for rate in grid)
            + " |",
            "|---|" + "---:|" * len(grid),
        ]
        levels = [
            np.mean([run.metrics[metric] for run in runs[Method("adamw", REFERENCE), rate]])
            for rate in grid
        ]
        texts = [f"{level:.4f}" if level_is_nats else f"{100 * level:.2f} %" for level in levels]
        lines.append(f"| *β₂ = 0.999 itself* | {' | '.join(f'*{text}*' for text in texts)} |")
        columns = [
            decisions_at(runs, regime.study, metric, dict.fromkeys(methods, rate)) for rate in grid
        ]
        lines += [
            f"| {method.label} | "
            + " | ".join(decision_text(column[method], metric) for column in columns)
            + " |"
            for method in methods
            if method in columns[0]
        ]
        lines.append("")
    return "\n".join(lines)


def interaction_table(bursts: Runs, clean: Runs) -> str:
    """Return how much more every method gains over 0.999 under bursts than with clean labels."""
    reference = Method("adamw", REFERENCE)
    grid = [rate for rate in rate_grid(bursts) if rate in rate_grid(clean)]
    methods = [m for m in dict.fromkeys(m for m, _ in clean) if m != reference]
    lines = []
    for metric in FINAL:
        unit = metric_style(metric).gain_unit
        lines += [
            f"| {metric_style(metric).label}: gain under bursts minus gain with clean labels "
            f"({unit}) at | " + " | ".join(f"{rate:g}" for rate in grid) + " |",
            "|---|" + "---:|" * len(grid),
        ]
        margin = margin_of(metric, study_of("bursts").margins)
        columns = []
        for rate in grid:
            gains = [
                [
                    fold_differences(runs, metric, (method, rate), (reference, rate))
                    for method in methods
                ]
                for runs in (bursts, clean)
            ]
            more = [np.subtract(ours, theirs) for ours, theirs in zip(*gains, strict=True)]
            columns.append(decide_family(more, margin=margin))
        lines += [
            f"| {method.label} | "
            + " | ".join(decision_text(column[row], metric) for column in columns)
            + " |"
            for row, method in enumerate(methods)
        ]
        lines.append("")
    return "\n".join(lines)


def step_size_table(runs: Runs) -> str:
    """Return what AFOR loses without its correction, and with steps that are as small."""
    afor, no_correction, smaller = (
        Method(name, None) for name in ("afor", "afor_no_ec", "smaller_steps:SmallerSteps")
    )
    pairs = {
        "w/o EC − AFOR": (no_correction, afor),
        "AFOR with smaller steps − AFOR": (smaller, afor),
        "w/o EC − AFOR with smaller steps": (no_correction, smaller),
    }
    grid = rate_grid(runs)
    lines = []
    for metric in FINAL:
        style = metric_style(metric)
        lines += [
            f"| {style.label} ({style.gain_unit}) at | "
            + " | ".join(f"{rate:g}" for rate in grid)
            + " |",
            "|---|" + "---:|" * len(grid),
        ]
        columns = [
            decide_family(
                [fold_differences(runs, metric, (a, rate), (b, rate)) for a, b in pairs.values()],
                margin=margin_of(metric, study_of("step-size").margins),
            )
            for rate in grid
        ]
        lines += [
            f"| {name} | "
            + " | ".join(decision_text(column[row], metric) for column in columns)
            + " |"
            for row, name in enumerate(pairs)
        ]
        lines.append("")
    return "\n".join(lines)


def chosen_table(regimes: Sequence[Regime], folder: Path) -> str:
    """Return what every method gains over 0.999, each at the rate chosen on other subjects."""
    lines = [
        "| study | method | rate | NLL, 10⁻³ nats | accuracy, points |",
        "|---|---|---:|---:|---:|",
    ]
    for regime in regimes:
        runs = runs_by_method(folder / f"{regime.study}.csv")
        choosing = CHOSEN_IN.get(regime.study, f"{regime.study}-choose")
        chosen = chosen_rates(folder / f"{choosing}.csv", rate_grid(runs))
        rates = {method: chosen[method] for method in dict.fromkeys(method for method, _ in runs)}
        pair = [decisions_at(runs, regime.study, metric, rates) for metric in regime.metrics]
        for method in pair[0]:
            texts = [
                decision_text(decisions[method], metric)
                for decisions, metric in zip(pair, regime.metrics, strict=True)
            ]
            cells = [regime.title, method.label, f"{rates[method]:g}", *texts]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def pilot_rows(headrooms: dict[str, list[Headroom]]) -> list[dict[str, Any]]:
    """Return each claim of the pilot beside what was found here, also in the repeated studies."""
    claims = [
        replace(claim, regime=regime)
        for claim in PILOT
        for regime in (claim.regime, AGAIN.get(claim.regime))
        if regime
    ]
    rows = []
    for claim in claims:
        measured = [h for h in headrooms.get(claim.regime.title, []) if h.metric == claim.metric]
        ours = our_decision(claim, measured[0]) if measured else None
        if ours is None:
            continue
        scale = metric_style(claim.metric).gain_scale
        rows.append(
            {
                "regime": claim.regime.title,
                "difference": claim.difference,
                "metric": claim.metric,
                "pilot": [claim.value, claim.low, claim.high],
                "ours": [scale * value for value in (ours.mean, *ours.interval)],
                "verdict": verdict(claim, ours),
            }
        )
    return rows


def pilot_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the claims of the pilot and what was found as Markdown."""
    lines = [
        "| regime | difference | in | pilot | here | |",
        "|---|---|---|---:|---:|---|",
    ]
    for row in rows:
        unit = metric_style(row["metric"]).gain_unit
        cells = [_interval_text(*row[name]) for name in ("pilot", "ours")]
        words = [row["regime"], row["difference"], unit, *cells, row["verdict"]]
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines) + "\n"


def _interval_text(value: float, low: float, high: float) -> str:
    value, low, high = (number + 0.0 for number in (value, low, high))  # no negative zero
    if math.isnan(low):
        return signed(value)
    return f"{signed(value)} [{signed(low)}, {signed(high)}]"


def beta2_figure(headrooms: dict[str, list[Headroom]]) -> Any:
    """Draw the gain over 0.999 against the constant beta2, a row of panels per regime."""
    constants = {m.beta2 for pair in headrooms.values() for m in pair[0].constants}
    ticks = {beta2: tick for tick, beta2 in enumerate(sorted(filter(None, constants)))}
    with house_style():
        figure, axes = new_figure(22 * len(headrooms), rows=len(headrooms), columns=2, sharex=True)
        for row, (title, pair) in zip(axes, headrooms.items(), strict=True):
            for axis, headroom in zip(row, pair, strict=True):
                _beta2_panel(axis, headroom, ticks)
            row[0].set_title(plain(title), loc="left")
        for axis, unit in zip(axes[-1], ("10⁻³ nats of NLL", "points of accuracy"), strict=True):
            axis.set_xticks(list(ticks.values()), [f"{beta2:g}" for beta2 in ticks])
            axis.set_xlabel(f"constant β₂\n({unit})")
    return figure


def _beta2_panel(axis: Any, headroom: Headroom, ticks: Mapping[float, int]) -> None:
    scale = metric_style(headroom.metric).gain_scale
    places = [ticks[method.beta2 or REFERENCE] for method in headroom.constants]
    gains = [scale * method.gain for method in headroom.constants]
    axis.axhline(0, color=BLACK, linewidth=0.7)
    axis.plot(
        places, gains, color=COLOR_CYCLE[0], marker=MARKER_CYCLE[0], markersize=3, linewidth=0.7
    )
    for place, method in zip(places, headroom.constants, strict=True):
        ends = [scale * end for end in method.interval]
        axis.plot([place] * 2, ends, color=COLOR_CYCLE[0], linewidth=0.9)


def gain_figure(folder: Path, position: int) -> Any:
    """Draw the gain of every method over 0.999 at each learning rate, one panel per study.

    Args:
        folder: Folder of the exported runs.
        position: 0 for NLL, 1 for accuracy.
    """
    studies = {
        regime: runs_by_method(folder / f"{regime.study}.csv")
        for regime in STUDIES
        if (folder / f"{regime.study}.csv").is_file()
    }
    counts = [len({method for method, _ in runs}) for runs in studies.values()]
    grid = sorted({rate for runs in studies.values() for rate in rate_grid(runs)})
    with house_style():
        figure, axes = new_figure(
            10 * len(counts) + 3.6 * sum(counts),
            rows=len(counts),
            gridspec_kw={"height_ratios": [count + 1.5 for count in counts]},
        )
        for axis, (regime, runs) in zip(axes[:, 0], studies.items(), strict=True):
            _gain_panel(axis, regime, runs, position, grid)
        name, unit = (("NLL", "10⁻³ nats"), ("accuracy", "points"))[position]
        axes[-1, 0].set_xlabel(
            f"{name} gain over 0.999 at the same learning\nrate ({unit}), with exact 95 % intervals"
        )
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _gain_panel(
    axis: Any, regime: Regime, runs: Runs, position: int, grid: Sequence[float]
) -> None:
    metric = regime.metrics[position]
    margin = study_of(regime.study).margins[metric]
    scale = metric_style(metric).gain_scale
    methods = list(dict.fromkeys(method for method, _ in runs))
    axis.axvspan(-margin, margin, color="#E8E8E8", linewidth=0)
    axis.axvline(0, color=BLACK, linewidth=0.7)
    for number, rate in enumerate(grid):
        color, shape = COLOR_CYCLE[number], MARKER_CYCLE[number]
        axis.plot([], [], shape, color=color, markersize=3, label=f"rate {rate:g}")
        if rate not in rate_grid(runs):
            continue
        decisions = decisions_at(runs, regime.study, metric, dict.fromkeys(methods, rate))
        for place, decision in enumerate(decisions.values()):
            height = place + 0.22 * (number - (len(grid) - 1) / 2)
            ends = [scale * end for end in decision.interval]
            axis.plot(ends, [height] * 2, color=color, linewidth=0.8)
            axis.plot(scale * decision.mean, height, shape, color=color, markersize=2.5)
    labels = [plain(method.label) for method in methods if method != Method("adamw", REFERENCE)]
    axis.set_yticks(range(len(labels)), labels)
    axis.invert_yaxis()
    axis.set_title(plain(regime.title))


def awake_traces(store: Path) -> dict[str, dict[str, list[float]]]:
    """Return beta2 and the share awake per epoch of AFOR's runs, mean of layer groups and runs."""
    traces: dict[str, list[Mapping[str, list[float]]]] = {}  # one per run and layer group
    with open_store(store) as opened:
        for result in opened.results():
            run = opened.run(result.key)
            if run is not None and run.record is not None:
                traces.setdefault(result.method, []).extend(run.record.traces.values())
    return {
        name: {key: np.mean([group[key] for group in groups], axis=0).tolist() for key in TRACED}
        for name, groups in traces.items()
        if groups
    }


def awake_figure(traces: dict[str, dict[str, list[float]]], steps_per_epoch: int) -> Any:
    """Draw beta2, its spread and the share awake over the steps of the study `awake`."""
    with house_style():
        figure, axes = new_figure(80, rows=2, sharex=True)
        for number, (name, trace) in enumerate(traces.items()):
            steps = [steps_per_epoch * (epoch + 0.5) for epoch in range(len(trace["beta2"]))]
            label, color = plain(method_label(name)), COLOR_CYCLE[number % len(COLOR_CYCLE)]
            beta2, spread = np.array(trace["beta2"]), np.array(trace["beta2_sd"])
            axes[0, 0].plot(steps, beta2, color=color, label=label)
            axes[0, 0].fill_between(
                steps, beta2 - spread, beta2 + spread, color=color, alpha=0.2, linewidth=0
            )
            axes[1, 0].plot(steps, [100 * share for share in trace["awake"]], color=color)
        axes[0, 0].set_ylabel("β₂: mean ± SD of\ntensors and steps")
        axes[0, 0].legend()
        axes[1, 0].set_ylabel("tensors and steps\nwith |ζ| > 0.5 (%)")
        axes[1, 0].set_xlabel("step")
        axes[1, 0].set_ylim(bottom=0)
    return figure


def present_regimes(regimes: Sequence[Regime], folder: Path) -> list[Regime]:
    """Return the regimes whose runs are there."""
    return [regime for regime in regimes if (folder / f"{regime.study}.csv").is_file()]


def measure_all(folder: Path) -> dict[str, list[Headroom]]:
    """Measure the headroom of every regime whose runs are there."""
    return {regime.title: measure(regime, folder) for regime in present_regimes(MEASURED, folder)}


def tables(folder: Path, headrooms: dict[str, list[Headroom]]) -> dict[str, str]:
    """Return the tables that no command of `afor` prints, by the names of their files."""
    rows = pilot_rows(headrooms)
    studies = present_regimes(STUDIES, folder)
    texts = {
        "pilot.md": pilot_table(rows),
        "chosen.md": chosen_table(studies, folder),
    }
    for name, pair in INTERACTIONS.items():
        files = [folder / f"{study}.csv" for study in pair]
        if all(file.is_file() for file in files):
            texts[f"{name}.md"] = interaction_table(*map(runs_by_method, files))
    for regime in present_regimes(MEASURED, folder):
        (table,) = headroom_tables(headrooms[regime.title])
        texts[f"headroom-{regime.file}.md"] = to_markdown(table)
    for regime in (*studies, *present_regimes(tuple(AGAIN.values()), folder)):
        runs = runs_by_method(folder / f"{regime.study}.csv")
        texts[f"{regime.study}.md"] = same_rate_table(regime, runs)
    for name in CHOOSING:
        if (folder / f"{name}.csv").is_file():
            texts[f"{name}.md"] = rate_table(folder / f"{name}.csv")
    if (folder / "step-size.csv").is_file():
        texts["step-size.md"] = step_size_table(runs_by_method(folder / "step-size.csv"))
    return texts


def commands(folder: Path) -> list[list[str]]:
    """Return the commands of `afor` that make the other tables, one per file."""
    made = []
    for name, outputs in {
        "awake": {"awake": ["table", "comparisons", "--baseline", "adam"]},
        "awake-confirm": {"awake-confirm": ["table", "comparisons", "--baseline", "adam"]},
        "variants": {name: ["table", name] for name in ("ablation", "sensitivity")},
    }.items():
        runs = folder / f"{name}.csv"
        if not runs.is_file():
            continue
        margins = study_of(name).margins
        words = [str(runs)]
        words += [word for metric in FINAL for word in ("--metric", metric)]
        words += [
            word for metric in FINAL for word in ("--margin", f"{metric}={margins[metric]:g}")
        ]
        made += [
            [*first, *words, "--output", str(folder / f"{file}.md")]
            for file, first in outputs.items()
        ]
        if name == "variants":
            made += [
                ["figure", file, str(runs), "--output", str(folder / f"{file}.png")]
                for file in outputs
            ]
    return made


def commands_of_stores(source: Path, folder: Path) -> list[list[str]]:
    """Return the commands that need a store, because exported runs hold no curves."""
    store = source / "awake.db"
    if not store.is_file():
        return []
    target = str(folder / "convergence")
    return [
        ["table", "convergence", str(store), "--output", f"{target}.md"],
        ["figure", "convergence", str(store), "--output", f"{target}.png"],
    ]


def main(source: Path, folder: Path) -> None:
    """Write all files; stop at the first that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*CHOOSING, *JUDGING):
        if (source / f"{name}.db").is_file():
            least = 1 if name in CHOOSING else MIN_FOLDS
            write_runs(source / f"{name}.db", folder / f"{name}.csv", least)
    traces = folder / "awake-traces.json"
    if (source / "awake.db").is_file():
        traces.write_text(json.dumps(awake_traces(source / "awake.db")) + "\n", "utf-8")
    if traces.is_file():
        figure = awake_figure(json.loads(traces.read_text("utf-8")), STEPS_PER_EPOCH)
        save_figure(figure, folder / "awake.png", dpi=200)
    headrooms = measure_all(folder)
    for name, text in tables(folder, headrooms).items():
        (folder / name).write_text(text, "utf-8")
    shown = {r.title: headrooms[r.title] for r in present_regimes(REGIMES, folder)}
    save_figure(beta2_figure(shown), folder / "beta2.png", dpi=200)
    for position, name in enumerate(("gains-nll", "gains-accuracy")):
        save_figure(gain_figure(folder, position), folder / f"{name}.png", dpi=200)
    afor = Path(sys.executable).with_name("afor")
    for command in [*commands(folder), *commands_of_stores(source, folder)]:
        sys.stderr.write(f"afor {' '.join(command)}\n")
        subprocess.run([str(afor), *command], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
