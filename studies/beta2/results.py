"""Write the tables and figures of the page on beta2 from the stores of its studies, or its runs.

    python studies/beta2/results.py results docs/results/when-beta2-matters
    python studies/beta2/results.py docs/results/when-beta2-matters docs/results/when-beta2-matters

The first folder holds a store (`bursts.db`) or the exported runs (`bursts.csv`) of each study. From
a store the runs of all folds and draws that every method has finished are exported. A study that is
not there, or has fewer than six such folds, is left out.
"""

import csv
import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from afor.bench.analyses.headroom.compute import REFERENCE, Candidate, Gap, Headroom, headroom_of
from afor.bench.analyses.headroom.table import headroom_table
from afor.bench.report.figures.style import (
    BLACK,
    CYCLE,
    GREY,
    SHAPES,
    house_style,
    new_figure,
    plain,
    save_figure,
)
from afor.bench.report.tables.formats import to_markdown
from afor.bench.stats.inference.decisions import decide_family
from afor.bench.stats.inference.margins import margin_of
from afor.bench.stats.inference.paired_tests import equivalence_p, exact_interval, two_sided_p
from afor.bench.stats.labels import gain_scale, metric_style, optimizer_label, signed
from afor.bench.store.database import open_store
from afor.bench.store.files import export_rows, load_records, load_results, to_csv
from afor.bench.store.results import RunResult
from afor.bench.study.schema import OptimizerEntry, Study, load_study

FOLDER = Path(__file__).parents[1]
STUDIES = {
    "bursts-clean": "bursts/judge-clean",
    "bursts": "bursts/judge-bursts",
    "bursts-rate": "bursts/rate",
    "stream": "stream/judge",
    "stream-rate": "stream/rate",
    "adaptation": "adaptation/judge",
    "awake": "awake/judge",
    "awake-variants": "awake/variants",
}
LEFT_OUT = ("reason", "epochs", "best_epoch", "best_validation_accuracy", "copy_of", "seed")
MIN_FOLDS = 6  # fewer cannot reach 5 % in an exact two-sided test
TRACED = ("beta2", "awake")
STEPS_PER_EPOCH = 180  # of the study `awake`
FINAL, NEXT = ("nll", "accuracy"), ("prequential_nll", "prequential_accuracy")


@dataclass(frozen=True)
class Regime:
    """One row of the pilot: a study, its metrics, and the entries that vary in beta2 alone."""

    title: str
    study: str
    metrics: tuple[str, str] = FINAL  # in nats, in points
    suffix: str = ""  # of the names of the entries

    def entries(self, results: Sequence[RunResult]) -> list[OptimizerEntry]:
        """Return the entries that take part and were run: those with the suffix, or all."""
        done = {result.optimizer for result in results}
        entries = study_of(self.study).optimizers
        return [e for e in entries if e.name in done and e.name.endswith(self.suffix)]

    def beta2(self, entry: OptimizerEntry) -> float | None:
        """Return the constant beta2 of an entry of AdamW, or None for a rule."""
        name = entry.name.removesuffix(self.suffix)
        if name == "adamw":
            return REFERENCE
        is_constant = re.fullmatch(r"adamw_0\.\d+", name)
        return float(entry.settings["betas"][1]) if is_constant else None


CLEAN = Regime("clean, shuffled", "bursts-clean")
STREAM = Regime("stream, next person", "stream", NEXT)
STREAM_ONE_RATE = Regime("stream at one rate, next person", "stream-rate", NEXT)
HELD_OUT = Regime("stream, held-out people at the end", "stream")
BURSTS = Regime("bursts of wrong labels", "bursts")
CLIPPED = Regime("bursts, clipped at 0.5", "bursts", suffix="_clip")
BURSTS_ONE_RATE = Regime("bursts at one rate", "bursts-rate")
NEW_PERSON = Regime("new person, state kept", "adaptation")
REGIMES = (
    CLEAN, STREAM, STREAM_ONE_RATE, HELD_OUT, BURSTS, BURSTS_ONE_RATE, CLIPPED, NEW_PERSON,
)  # fmt: skip


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
    Claim(NEW_PERSON, BEST, "nll", 1.5, 0.7, 2.4),
    Claim(NEW_PERSON, BEST, "accuracy", -0.1, NAN, NAN),
    Claim(NEW_PERSON, AFOR_LEFT, "nll", -1.3, -2.1, -0.4),
    Claim(NEW_PERSON, AFOR_LEFT, "accuracy", 0.1, NAN, NAN),
    Claim(NEW_PERSON, RESET, "nll", 8.3, 2.6, 14.0),
)


def study_of(name: str) -> Study:
    """Return a study of this repository by its name."""
    return load_study(str(FOLDER / f"{STUDIES[name]}.toml"))


def write_runs(store: Path, target: Path) -> None:
    """Export the runs of the folds and draws that every method has finished."""
    with open_store(store) as opened:
        rows = export_rows(opened)
    methods = {row["optimizer"] for row in rows}
    done = {(row["fold"], row["draw"], row["optimizer"]) for row in rows if row["status"] == "done"}
    paired = [
        {
            key: value
            for key, value in row.items()
            if key not in LEFT_OUT and not key.startswith("trial_")
        }
        for row in rows
        if all((row["fold"], row["draw"], method) in done for method in methods)
    ]
    folds = len({row["fold"] for row in paired})
    if folds < MIN_FOLDS:
        sys.stderr.write(f"{store}: {folds} complete folds, {MIN_FOLDS} are needed; left out\n")
        return
    target.write_text(to_csv(paired), "utf-8")


def measure(regime: Regime, folder: Path) -> list[Headroom]:
    """Measure the headroom of one regime in its two metrics; [] without two constants."""
    runs = folder / f"{regime.study}.csv"
    results, _ = load_results([runs])
    with runs.open(newline="", encoding="utf-8") as file:
        rates = {row["optimizer"]: float(row["lr"]) for row in csv.DictReader(file)}
    entries = {entry.name: regime.beta2(entry) for entry in regime.entries(results)}
    if len({REFERENCE, *entries.values()} - {None}) < 2:
        return []
    measured = []
    for metric in regime.metrics:
        candidates = [
            Candidate(
                optimizer_label(name) if beta2 is None else f"β₂ = {beta2:g}",
                beta2,
                rates[name],
                {(r.fold, r.draw): r.metrics[metric] for r in results if r.optimizer == name},
            )
            for name, beta2 in entries.items()
        ]
        headroom = headroom_of(candidates, metric, units="folds")
        measured.append(
            replace(headroom, study=regime.title, dataset="eyes", backbone="eegnet_authors")
        )
    return measured


def our_gap(claim: Claim, headroom: Headroom) -> Gap | None:
    """Return our difference for a claim of the pilot; None if its method was not run."""
    if claim.difference == BEST:
        return headroom.best_constant.over_reference
    rules = {rule.method: rule for rule in headroom.rules}
    if claim.difference == RESET:
        rule = rules.get(optimizer_label("adamw_reset"))
        return rule.over_reference if rule else None
    rule = rules.get(optimizer_label(f"afor{claim.regime.suffix}"))
    return rule.over_best_constant if rule else None


def verdict(claim: Claim, differences: Sequence[float], margin: float) -> str:
    """Say whether our differences confirm the pilot, refute it, or leave it undecided.

    The pilot claims an effect if its interval excludes zero, else that there is none. An effect is
    confirmed by a difference of its sign (exact, two-sided, 5 %), and refuted by one of the other
    sign or by equivalence within the margin. No effect is confirmed by equivalence, and refuted by
    a difference.
    """
    claims_effect = claim.low > 0 or claim.high < 0
    mean = sum(differences) / len(differences)
    differs = two_sided_p(differences) <= 0.05
    equal = equivalence_p(differences, margin) <= 0.05
    if claims_effect and differs:
        return "confirmed" if (mean > 0) == (claim.value > 0) else "refuted"
    if equal:
        return "refuted" if claims_effect else "confirmed"
    return "refuted" if differs else "undecided"


def rule_rows(headrooms: dict[str, list[Headroom]]) -> list[dict[str, Any]]:
    """Return what every method has over the best constant of its regime, with decisions.

    Holm's correction covers the methods of a regime, in each metric.
    """
    rows = []
    studies = {regime.title: study_of(regime.study) for regime in REGIMES}
    for title, pair in headrooms.items():
        for headroom in pair:
            differences = [rule.over_best_constant.differences for rule in headroom.rules]
            margin = margin_of(headroom.metric, studies[title].margins)
            decisions = decide_family(differences, margin=margin)
            scale = gain_scale(headroom.metric)
            rows += [
                {
                    "regime": title,
                    "metric": headroom.metric,
                    "method": rule.method,
                    "folds": decision.folds,
                    "over_best_constant": [scale * decision.mean]
                    + [scale * end for end in decision.interval],
                    "decision": str(decision.decision),
                }
                for rule, decision in zip(headroom.rules, decisions, strict=True)
            ]
    return rows


def rule_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rules beside the best constant as Markdown, NLL and accuracy side by side."""
    lines = [
        "| regime | method | NLL, 10⁻³ nats | | accuracy, points | |",
        "|---|---|---:|---|---:|---|",
    ]
    cells: dict[tuple[str, str], list[str]] = {}
    for row in rows:  # of a regime first those of NLL, then those of accuracy
        cells.setdefault((row["regime"], row["method"]), []).extend(
            [_interval_text(*row["over_best_constant"]), row["decision"]]
        )
    lines += [f"| {' | '.join([*key, *texts])} |" for key, texts in cells.items()]
    return "\n".join(lines).replace("_", "\\_") + "\n"


def pilot_rows(headrooms: dict[str, list[Headroom]]) -> list[dict[str, Any]]:
    """Return each claim of the pilot beside what was found here."""
    rows = []
    for claim in PILOT:
        measured = [h for h in headrooms.get(claim.regime.title, []) if h.metric == claim.metric]
        gap = our_gap(claim, measured[0]) if measured else None
        if gap is None:
            continue
        scale = gain_scale(claim.metric)
        margin = margin_of(claim.metric, study_of(claim.regime.study).margins)
        differences = gap.differences
        low, high = exact_interval(differences)
        rows.append(
            {
                "regime": claim.regime.title,
                "difference": claim.difference,
                "metric": claim.metric,
                "pilot": [claim.value, claim.low, claim.high],
                "ours": [scale * sum(differences) / len(differences), scale * low, scale * high],
                "folds": len(differences),
                "chosen": list(measured[0].best_constant.choices),
                "verdict": verdict(claim, differences, margin or 0.0),
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
    if math.isnan(low):
        return signed(value)
    return f"{signed(value)} [{signed(low)}, {signed(high)}]"


def beta2_figure(headrooms: dict[str, list[Headroom]]) -> Any:
    """Draw the gain over 0.999 against the constant beta2, one line per regime."""
    constants = {m.beta2 for pair in headrooms.values() for m in pair[0].constants}
    ticks = {beta2: tick for tick, beta2 in enumerate(sorted(filter(None, constants)))}
    with house_style():
        figure, axes = new_figure(105, rows=2)
        for row, axis in enumerate(axes[:, 0]):
            axis.axhline(0, color=BLACK, linewidth=0.7)
            for number, (title, pair) in enumerate(headrooms.items()):
                _beta2_line(axis, pair[row], title, number, ticks)
            axis.set_xticks(list(ticks.values()), [f"{beta2:g}" for beta2 in ticks])
            axis.set_ylabel(f"gain over 0.999\n({('10⁻³ nats', 'points')[row]})")
            axis.grid(axis="y")
        axes[1, 0].set_xlabel("constant β₂ of AdamW; bars: exact 95 % over folds")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=1)
    return figure


def _beta2_line(
    axis: Any, headroom: Headroom, title: str, number: int, ticks: Mapping[float, int]
) -> None:
    scale = gain_scale(headroom.metric)
    color, shape = CYCLE[number % len(CYCLE)], SHAPES[number % len(SHAPES)]
    gaps = {method.beta2 or REFERENCE: method.over_reference for method in headroom.constants}
    places = [ticks[beta2] + 0.07 * (number - 2.5) for beta2 in gaps]
    gains = [scale * gap.gain for gap in gaps.values()]
    axis.plot(
        places, gains, color=color, marker=shape, markersize=3, linewidth=0.7, label=plain(title)
    )
    for place, gap in zip(places, gaps.values(), strict=True):
        ends = [scale * end for end in exact_interval(gap.differences)]
        axis.plot([place] * 2, ends, color=color, linewidth=0.9)


def forest_figure(headrooms: dict[str, list[Headroom]]) -> Any:
    """Draw the gain of each rule and constant over 0.999 in nats, one panel per regime."""
    counts = [len(pair[0].constants) + len(pair[0].rules) for pair in headrooms.values()]
    with house_style():
        figure, axes = new_figure(
            12 * len(counts) + 3.4 * sum(counts),
            rows=len(counts),
            gridspec_kw={"height_ratios": [count + 1.5 for count in counts]},
        )
        for axis, (title, pair) in zip(axes[:, 0], headrooms.items(), strict=True):
            headroom = pair[0]
            scale = gain_scale(headroom.metric)
            margin = 3.0
            axis.axvspan(-margin, margin, color="#E8E8E8", linewidth=0)
            axis.axvline(0, color=BLACK, linewidth=0.7)
            methods = [m for m in (*headroom.constants, *headroom.rules) if m.beta2 != REFERENCE]
            for place, method in enumerate(methods):
                color = GREY if method.beta2 is not None else CYCLE[0]
                gap = method.over_reference
                ends = [scale * end for end in exact_interval(gap.differences)]
                axis.plot(ends, [place] * 2, color=color, linewidth=1.1)
                axis.plot(scale * gap.gain, place, "o", color=color, markersize=3)
            axis.set_yticks(range(len(methods)), [plain(method.method) for method in methods])
            axis.invert_yaxis()
            axis.set_title(plain(title))
        axes[-1, 0].set_xlabel("NLL gain over 0.999 (10⁻³ nats), exact 95 %")
    return figure


def awake_traces(store: Path) -> dict[str, dict[str, list[float]]]:
    """Return beta2 and the share awake per epoch of AFOR's runs, mean of layer groups and runs."""
    traces: dict[str, list[Mapping[str, list[float]]]] = {}  # one per run and layer group
    for run, record in load_records([store]):
        traces.setdefault(run.optimizer, []).extend(record.traces.values())
    return {
        name: {key: np.mean([group[key] for group in groups], axis=0).tolist() for key in TRACED}
        for name, groups in traces.items()
        if groups
    }


def awake_figure(traces: dict[str, dict[str, list[float]]], steps_per_epoch: int) -> Any:
    """Draw beta2 and the share awake over the steps of the study `awake`."""
    with house_style():
        figure, axes = new_figure(80, rows=2, sharex=True)
        for number, (name, trace) in enumerate(traces.items()):
            steps = [steps_per_epoch * (epoch + 0.5) for epoch in range(len(trace["beta2"]))]
            label, color = plain(optimizer_label(name)), CYCLE[number % len(CYCLE)]
            axes[0, 0].plot(steps, trace["beta2"], color=color, label=label)
            axes[1, 0].plot(steps, [100 * share for share in trace["awake"]], color=color)
        axes[0, 0].set_ylabel("mean β₂")
        axes[0, 0].legend()
        axes[1, 0].set_ylabel("tensors and steps\nwith |ζ| > 0.5 (%)")
        axes[1, 0].set_xlabel("step")
        axes[1, 0].set_ylim(bottom=0)
    return figure


def measure_all(folder: Path) -> dict[str, list[Headroom]]:
    """Measure the headroom of every regime whose runs are there."""
    present = [regime for regime in REGIMES if (folder / f"{regime.study}.csv").is_file()]
    measured = {regime.title: measure(regime, folder) for regime in present}
    return {title: headrooms for title, headrooms in measured.items() if headrooms}


def tables(headrooms: dict[str, list[Headroom]]) -> dict[str, str]:
    """Return the tables that no command of `afor` prints, by the names of their files."""
    rows = pilot_rows(headrooms)
    texts = {
        "pilot.md": pilot_table(rows),
        "rules.md": rule_table(rule_rows(headrooms)),
        "pilot.json": json.dumps(rows, indent=1, ensure_ascii=False).replace("NaN", "null") + "\n",
    }
    for regime in REGIMES:
        if regime.title in headrooms:
            name = f"headroom-{regime.study}{regime.suffix.replace('_', '-')}"
            name += "-held-out" if regime is HELD_OUT else ""
            texts[f"{name}.md"] = to_markdown(headroom_table(headrooms[regime.title]))
    return texts


def commands(folder: Path) -> list[list[str]]:
    """Return the commands of `afor` that make the other tables, one per file."""
    made = []
    for name in STUDIES:
        runs = folder / f"{name}.csv"
        if not runs.is_file():
            continue
        study = study_of(name)
        metrics = NEXT if name.startswith("stream") else FINAL
        margins = [f"{metric}={study.margins[metric]:g}" for metric in metrics]
        words = [str(runs)]
        words += [word for metric in metrics for word in ("--metric", metric)]
        words += [word for margin in margins for word in ("--margin", margin)]
        if name == "awake-variants":
            analyses = ("ablation", "sensitivity")
            names = {f"{analysis}.md": ["table", analysis] for analysis in analyses}
            made += [
                ["figure", analysis, str(runs), "--output", str(folder / f"{analysis}.png")]
                for analysis in analyses
            ]
        else:
            baseline = "adam" if name == "awake" else "adamw"
            table = ["table", "comparisons", "--baseline", baseline]
            names = {f"{name}.md": table, f"{name}.json": table}
        made += [[*first, *words, "--output", str(folder / file)] for file, first in names.items()]
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
    for name in STUDIES:
        if (source / f"{name}.db").is_file():
            write_runs(source / f"{name}.db", folder / f"{name}.csv")
    traces = folder / "awake-traces.json"
    if (source / "awake.db").is_file():
        traces.write_text(json.dumps(awake_traces(source / "awake.db")) + "\n", "utf-8")
    if traces.is_file():
        figure = awake_figure(json.loads(traces.read_text("utf-8")), STEPS_PER_EPOCH)
        save_figure(figure, folder / "awake.png", dpi=200)
    headrooms = measure_all(folder)
    for name, text in tables(headrooms).items():
        (folder / name).write_text(text, "utf-8")
    save_figure(beta2_figure(headrooms), folder / "beta2.png", dpi=200)
    save_figure(forest_figure(headrooms), folder / "forest.png", dpi=200)
    afor = Path(sys.executable).with_name("afor")
    for command in [*commands(folder), *commands_of_stores(source, folder)]:
        sys.stderr.write(f"afor {' '.join(command)}\n")
        subprocess.run([str(afor), *command], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
