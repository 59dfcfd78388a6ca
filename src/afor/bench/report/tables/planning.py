"""Build the tables on what a study can decide: calibration, variance components, power."""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.formats import Column, Row, Table, TableCell, columns_of, text_row
from afor.bench.report.tables.parts import gain_units
from afor.bench.stats.comparisons import BASELINE, blocks_of, main_optimizers
from afor.bench.stats.design.calibration import Calibration, Share
from afor.bench.stats.design.power import POWER, Assessment, Goal, smallest_effect, smallest_margin
from afor.bench.stats.design.published_power import CORRELATIONS, PLAUSIBLE, published_power
from afor.bench.stats.design.seed_noise import NO_COPIES, SAME_METHOD
from afor.bench.stats.design.variance import (
    DRAW,
    REST,
    SEED,
    SUBJECT,
    VarianceComponents,
    estimate_components,
    paired_differences,
    rest_component,
    split_off_rest,
)
from afor.bench.stats.groups import Conditions, block_of
from afor.bench.stats.inference.decisions import LEVEL
from afor.bench.stats.inference.margins import margin_text
from afor.bench.stats.labels import (
    PAPER_METRICS,
    backbone_label,
    block_label,
    dataset_label,
    gain_scale,
    metric_label,
    metric_style,
    optimizer_label,
    p_text,
    signed,
)

NOT_PAIRED = (
    "Variance components need two optimizers that share two or more folds; no other optimizer has "
    "that with the baseline {baseline!r}. Optimizers here: {present}. Choose with --baseline."
)


def calibration_table(calibrations: Sequence[Calibration]) -> Table:
    """Return the error rates of the procedure on each method that ran more than once."""
    if not calibrations:
        raise ConfigError(NO_COPIES)
    rows, records = [], []
    heading = ""
    for made in calibrations:
        scale = gain_scale(made.metric)
        if heading != (heading := block_label(made.dataset, made.backbone, made.metric)):
            rows.append(Row(heading, heading=True))
        is_same_seed = made.copies in _same_method_pairs()
        seeds = "equal seeds" if is_same_seed else "other seeds"
        pairs = " = ".join(optimizer_label(name) for name in made.copies)
        shares = {
            "false_positives": made.false_positives,
            "false_equivalences": made.false_equivalences,
            "equivalences": made.equivalences,
        }
        texts = [
            f"{made.folds} × {made.draws}",
            f"{scale * made.run_sd:.2f}",
            *map(_share_text, shares.values()),
            ", ".join(p_text(p) for *_, p in made.trained),
        ]
        rows.append(text_row(f"{pairs} ({seeds})", texts))
        record = {k: v for k, v in vars(made).items() if k not in ("p_values", "trained")}
        record |= {"copies": " = ".join(made.copies), "equal_seeds": is_same_seed}
        for name, share in shares.items():
            record |= _share_record(name, share)
        trained = "; ".join(f"{a} - {b}: {p:.6g}" for a, b, p in made.trained)
        records.append({**record, "trained": trained})
    margins = dict.fromkeys(
        margin_text(c.metric, c.margin) for c in calibrations if c.margin is not None
    )
    total = calibrations[0].false_positives.total
    return Table(
        name="calibration",
        title="Error rates of the verdicts on copies of one method, with 95 % intervals",
        columns=columns_of(
            *("folds × draws", "SD of a run", "false positives", "false equivalences"),
            *("found equivalent", "p as trained"),
        ),
        rows=tuple(rows),
        label="Copies",
        notes=(
            f"{total} relabelled studies each: copies exchange their names at random in every fold "
            "and draw. False positives: a difference is declared, Holm-corrected; at most 5 % are "
            "allowed. False equivalences: the same differences moved by one margin "
            f"({' or '.join(margins) or 'none'}) are declared equivalent; at most 5 % are allowed.",
            "Found equivalent: the copies, equal by construction, are declared equivalent; this is "
            "no error but what the noise allows. SD of a run: in "
            f"{gain_units([c.metric for c in calibrations])}, of one run over the copies of its "
            "fold and draw; the difference of two copies has √2 times as much.",
            "p as trained: two-sided, of each pair under its own names. Relabelling makes folds "
            "independent; these p-values alone would show a dependence between folds.",
        ),
        records=tuple(records),
    )


def variance_table(
    conditions: Conditions,
    metrics: Sequence[str] = PAPER_METRICS,
    *,
    baseline: str = BASELINE,
    optimizers: Sequence[str] | None = None,
) -> Table:
    """Return the variance components of every comparison with the baseline, and of copies."""
    rows: list[Row] = []
    records: list[dict[str, object]] = []
    names = list(optimizers or main_optimizers(conditions))
    merged: set[str] = set()
    for dataset, backbone in blocks_of(conditions):
        block = block_of(conditions, dataset, backbone)
        copies = [(c.optimizer, c.method) for c in block if c.is_copy]
        for metric in metrics:
            rest = rest_component(conditions, dataset, backbone, metric)
            pairs = [(name, baseline, "") for name in names if name != baseline]
            pairs += [(copy, original, "other seeds") for copy, original in copies]
            pairs += [(*pair, "equal seeds") for pair in SAME_METHOD.items()]
            shown = []
            for one, other, same in pairs:
                differences = paired_differences(conditions, dataset, backbone, metric, one, other)
                if len(differences) < 2:
                    continue
                noise = estimate_components(differences)
                if rest is not None and not same:
                    noise = split_off_rest(noise, rest)
                merged |= {c.name for c in noise.components if len(c.sources) > 1}
                label = f"{optimizer_label(one)} − {optimizer_label(other)}"
                cells = _component_cells(noise, gain_scale(metric))
                shown.append(Row(f"{label} ({same})" if same else label, cells))
                records += _component_records(noise, dataset, backbone, metric, one, other)
            if shown:
                rows += [Row(block_label(dataset, backbone, metric), heading=True), *shown]
    if not rows:
        present = ", ".join(dict.fromkeys(o for _, _, o in conditions))
        raise ConfigError(NOT_PAIRED.format(baseline=baseline, present=present))
    notes = [
        "design: folds × draws × seeds that both have. fold: SD of the fold differences, over "
        "these draws and seeds. subject, draw, seed: what each adds to one run's difference "
        "(its interaction with the method). draws reduce: the share of the variance of a fold "
        "difference, at this number of draws, that further draws average out.",
        "other seeds, equal seeds: one method against itself, so that the mean is zero in "
        "truth. All other rows compare two methods under equal seeds.",
    ]
    if any(record["component"] == REST for record in records):
        notes.append(
            f"{REST}: rounding that training amplifies, measured on AFOR with β₂ fixed at 0.999 "
            "against AdamW, one method under equal seeds; taken off the component before it."
        )
    if merged:
        notes.append(
            f"with draw, with subject: not told apart ({'; '.join(sorted(merged))}). Draw and seed "
            "are apart where both methods have a copy under the same other seed; subject and draw "
            "where a fold has two or more draws."
        )
    if lower := " or ".join(metric_label(m) for m in metrics if metric_style(m).lower_is_better):
        notes.append(f"mean: of the difference as it is labelled. Less {lower} is better.")
    notes.append("Not estimated: the covariance between folds, which share most training subjects.")
    return Table(
        name="variance",
        title="Where the variance of a paired difference comes from: SDs in "
        f"{gain_units(metrics)} (95 % interval)",
        columns=columns_of(
            "design", "mean", "fold", "subject", "draw", "seed", "rest", "draws reduce"
        ),
        rows=tuple(rows),
        label="Difference",
        notes=tuple(notes),
        records=tuple(records),
    )


def assessment_table(
    assessments: Sequence[Assessment], *, family: int, power: float = POWER
) -> Table:
    """Return the smallest difference and margin that each comparison can decide on."""
    rows, records = [], []
    level = LEVEL / family
    heading = ""
    for made in assessments:
        scale = gain_scale(made.metric)
        folds, draws = made.noise.folds, made.noise.draws
        sds = made.fold_sd(draws)
        measures = {
            "fold_sd": sds,
            "smallest_effect": [smallest_effect(sd, folds, level, power=power) for sd in sds],
            "smallest_margin": [smallest_margin(sd, folds, level, power=power) for sd in sds],
        }
        if heading != (heading := block_label(made.dataset, made.backbone, made.metric)):
            rows.append(Row(heading, heading=True))
        texts = [f"{folds} × {draws}", *(_interval_text(scale, v) for v in measures.values())]
        rows.append(text_row(_methods(made), texts))
        records.append(
            {
                **{k: v for k, v in vars(made).items() if k != "noise"},
                "folds": folds,
                "draws": draws,
                "family": family,
                "power": power,
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
        f"{gain_units([made.metric for made in assessments])}",
        columns=columns_of(
            "folds × draws", "SD of a fold", "smallest difference", "smallest margin"
        ),
        rows=tuple(rows),
        label="Comparison",
        notes=(
            "smallest difference: the smallest true mean difference that is found. smallest "
            "margin: the smallest margin within which equal methods are found equivalent. In "
            "parentheses: over the 95 % interval of the SD that a pilot of this size leaves open.",
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
    made: Assessment,
    goal: Goal,
    folds: Sequence[int],
    draws: Sequence[int],
    grid: NDArray[np.float64],
    *,
    power: float = POWER,
) -> Table:
    """Return the power over folds and draws for one goal; cells with the wanted one are marked."""
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
        title=f"{comparison_text(made)}: power to show {goal_text(made.metric, goal)}",
        columns=columns_of(*(f"{n} draw{'s' * (n > 1)}" for n in draws)),
        rows=tuple(rows),
        label="Folds",
        notes=(f"✓ {100 * power:g} % or more.",) if enough.any() else (),
        records=tuple(
            {"folds": n, "draws": r, "power": float(grid[i, j]), **asdict(goal)}
            for i, n in enumerate(folds)
            for j, r in enumerate(draws)
        ),
    )


def comparison_text(made: Assessment) -> str:
    """Return the two methods and where they are compared."""
    return f"{_methods(made)}, {block_label(made.dataset, made.backbone, made.metric)}"


def goal_text(metric: str, goal: Goal) -> str:
    """Return what a goal shows, such as ``a difference of 1 point``."""
    if goal.margin is None:
        return f"a difference of {margin_text(metric, abs(goal.effect))}"
    return f"equivalence within {margin_text(metric, goal.margin)}"


def published_power_table() -> Table:
    """Return the power of the paper's 24 comparisons, if its printed gains were the true ones."""
    rows_of_paper = published_power()
    rows, records = [], []
    heading = ""
    for row in rows_of_paper:
        if heading != (heading := dataset_label(row.dataset)):
            rows.append(Row(f"{heading}, {row.folds} folds", heading=True))
        needed = row.needed_correlation
        texts = [
            signed(row.gain),
            f"{row.sds[0]:.2f}, {row.sds[1]:.2f}",
            "*" if row.significant else "",
            *(f"{100 * power:.0f}" for power in row.powers),
            "any" if needed < 0 else "none" if math.isinf(needed) else f"{needed:.2f}",
            row.judgement,
        ]
        label = f"{backbone_label(row.backbone)}, {metric_label(row.metric)}"
        rows.append(text_row(label, texts))
        records.append({**asdict(row), "judgement": row.judgement})
    expected = [sum(row.powers[i] for row in rows_of_paper) for i in range(len(CORRELATIONS))]
    stars = sum(row.significant for row in rows_of_paper)
    sums = ["", "", str(stars), *(f"{value:.1f}" for value in expected), "–", "–"]
    rows.append(replace(text_row("Stars in all", sums), rule=True))
    judged = [row.judgement for row in rows_of_paper if row.significant]
    lowest, highest = PLAUSIBLE
    return Table(
        name="published-power",
        title="AFOR over Adam in Table III: power to earn a star, if the printed gain were true",
        columns=(
            *columns_of("gain", "SDs", "star"),
            *(Column(f"{rho:g}", "power (%) at") for rho in CORRELATIONS),
            *columns_of("80 % from", "a star"),
        ),
        rows=tuple(rows),
        label="Comparison",
        notes=(
            "The test is paired, and the SD of the paired differences is not printed: it follows "
            "from the printed SDs (of Adam and AFOR over folds) and the correlation of the two "
            "over folds, which only the per-fold values tell. 80 % from: the smallest correlation "
            "with a power of 80 %.",
            f"A star: expected if the power is 80 % from a correlation of {lowest:g} on, not "
            f"expected if it is below at {highest:g}, else it needs the fold values. Of the "
            f"{stars} stars, {judged.count('expected')} are expected, "
            f"{judged.count('needs fold values')} need the fold values and "
            f"{judged.count('not expected')} are not expected.",
            "One-sided exact sign-flip test at 5 % / 6, the strictest step of Holm's correction "
            "over six optimizers. Printed gains that were selected for being large overstate the "
            "true ones, and with them this power.",
        ),
        records=tuple(records),
    )


def _component_cells(noise: VarianceComponents, scale: float) -> tuple[TableCell, ...]:
    cells = {}
    for component in noise.components:
        sds = [math.sqrt(v) for v in (component.variance, component.low, component.high)]
        first, *others = component.sources
        cells[first] = _interval_text(scale, sds)
        cells |= dict.fromkeys(others, f"with {first.split()[0]}")
    runs = noise.draws
    averaged = [c.variance / runs for c in noise.components if c.is_averaged_by_draws]
    total = noise.fold_variance(runs)
    texts = [
        f"{noise.folds} × {noise.draws} × {noise.seeds}",
        signed(scale * noise.mean),
        f"{scale * noise.fold_sd:.2f}",
        *(cells.get(source, "–") for source in (SUBJECT, DRAW, SEED, REST)),
        f"{100 * sum(averaged) / total:.0f} %" if averaged and total else "–",
    ]
    return tuple(map(TableCell, texts))


def _component_records(
    noise: VarianceComponents, dataset: str, backbone: str, metric: str, one: str, other: str
) -> list[dict[str, object]]:
    names = {"dataset": dataset, "backbone": backbone, "metric": metric}
    design = {k: v for k, v in vars(noise).items() if k != "components"}
    return [
        {
            **names,
            "optimizer": one,
            "baseline": other,
            **design,
            "component": component.name,
            "variance": component.variance,
            "low": component.low,
            "high": component.high,
        }
        for component in noise.components
    ]


def _methods(made: Assessment) -> str:
    return f"{optimizer_label(made.optimizer)} − {optimizer_label(made.baseline)}"


def _same_method_pairs() -> set[tuple[str, ...]]:
    return {tuple(pair) for items in SAME_METHOD.items() for pair in (items, items[::-1])}


def _interval_text(scale: float, values: Sequence[float]) -> str:
    value, low, high = (scale * v for v in values)
    return f"{value:.2f} ({low:.1f}–{high:.1f})".replace("inf", "∞")


def _share_text(share: Share | None) -> str:
    if share is None:
        return "–"
    low, high = share.interval
    return f"{100 * share.value:.1f} % ({100 * low:.1f}–{100 * high:.1f})"


def _share_record(name: str, share: Share | None) -> dict[str, object]:
    low, high = share.interval if share else (None, None)
    return {name: share.value if share else None, f"{name}_low": low, f"{name}_high": high}
