"""Build tables that compare our results with the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.registry import PAPER_OPTIMIZERS
from afor.bench.report.tables.formats import Row, Table, TableCell, columns_of, text_row
from afor.bench.report.tables.parts import MISSING, condition_text, partial
from afor.bench.stats.comparisons import BASELINE
from afor.bench.stats.labels import (
    BACKBONE_LABELS,
    backbone_label,
    dataset_label,
    mean_sd_text,
    method_label,
    metric_style,
    signed,
    task_label,
)
from afor.bench.stats.paper_numbers import published, published_results, same_method_twice
from afor.bench.stats.results import Results
from afor.bench.study.protocol import UNKNOWN, setting
from afor.bench.study.schema import load_study, paper_backbone

COST_LABELS = {
    "extra_kflops": "extra FLOPs vs. Adam (K)",
    "state_kb": "state memory (KB)",
    "extra_ms": "extra latency vs. Adam (ms)",
}
DIGITS = {"cost": 2, "landscape": 3}  # as printed
Measured = Mapping[str, Mapping[str, float]]


def beside_paper_table(results: Results) -> Table:
    """Compare our means and gains over Adam with the paper's, for each condition that both have.

    Stars are the paper's: better than Adam in a one-sided test, Holm-corrected.
    """
    printed = {**published_results("ablation"), **published_results("results")}
    methods = [name for name in results.methods if name != BASELINE]
    stars = {
        (*task, metric, c.method): c.significant
        for task in results.tasks
        if any(key[:2] == (task[0], paper_backbone(task[1])) for key in printed)
        for metric in results.metrics
        for c in results.against(BASELINE, methods, *task, metric)
    }
    rows: list[Row] = []
    records = []
    heading = ""
    for (dataset, backbone, name), condition in results.conditions.items():
        for metric in results.metrics:
            network = paper_backbone(backbone)
            paper = printed.get((dataset, network, name, metric))
            if paper is None or not condition.has(metric):
                continue
            scale = metric_style(metric).scale
            mean, sd, n = condition.summary(metric)
            compared = results.against(BASELINE, [name], dataset, backbone, metric)
            our_gain = scale * compared[0].gain if compared else None
            paper_gain = paper.mean - printed[dataset, network, BASELINE, metric].mean
            if heading != (heading := task_label(dataset, backbone)):
                rows.append(Row(heading, heading=True))
            star = stars.get((dataset, backbone, metric, name), False)
            texts = [
                TableCell(condition_text(condition, metric), star=star, partial=partial(condition)),
                TableCell(mean_sd_text(paper.mean, paper.sd), star=paper.significant),
                TableCell(signed(scale * mean - paper.mean)),
                MISSING if our_gain is None else TableCell(signed(our_gain)),
                TableCell(signed(paper_gain)) if name != BASELINE else MISSING,
            ]
            rows.append(Row(f"{method_label(name)}, {metric_style(metric).label}", tuple(texts)))
            records.append(
                {
                    "dataset": dataset,
                    "backbone": backbone,
                    "network": "authors" if backbone != network else "original",
                    "method": name,
                    "metric": metric,
                    "ours_mean": scale * mean,
                    "ours_sd": scale * sd,
                    "ours_folds": n,
                    "done": condition.done,
                    "expected": condition.expected,
                    "paper_mean": paper.mean,
                    "paper_sd": paper.sd,
                    "difference": scale * mean - paper.mean,
                    "ours_gain_over_adam": our_gain,
                    "paper_gain_over_adam": paper_gain if name != BASELINE else None,
                    "ours_star": star,
                    "paper_star": paper.significant,
                }
            )
    if not rows:
        raise ConfigError(
            "No condition here is also in the paper: it printed deap, bci2a and isruc with "
            f"{', '.join(BACKBONE_LABELS)}. The preset `paper` runs them all."
        )
    return Table(
        name="beside-paper",
        title="Ours beside the paper: mean ± SD over folds, percent",
        columns=columns_of("ours", "paper", "difference", "our gain", "paper's gain"),
        rows=tuple(rows),
        label="Condition",
        notes=(
            "gain: over Adam, in points; ours is paired over the folds that both have. SDs are "
            "across folds, as in the paper. * better than Adam by the paper's test: one-sided, "
            "Holm-corrected, p < 0.05.",
            *_extent_notes(results),
            *_network_notes([str(record["backbone"]) for record in records]),
        ),
        records=tuple(records),
    )


def _extent_notes(results: Results) -> list[str]:
    """Say how many of the paper's subjects, repetitions and epochs the results have."""
    paper = load_study("paper")
    notes = []
    for dataset in dict.fromkeys(d for d, _ in results.tasks):
        sizes = published()["datasets"]["cells"].get(dataset)
        if sizes is None:
            continue
        runs = [
            run
            for (d, _, _), condition in results.conditions.items()
            if d == dataset
            for run in condition.runs.values()
        ]
        subjects = len({subject for run in runs for subject in run.test_subjects})
        of_paper = sum(sizes[part] for part in ("train", "validation", "test"))
        repetitions = len({run.repetition for run in runs})
        known = [run.protocol for run in runs if UNKNOWN not in run.protocol]
        epochs = " or ".join(dict.fromkeys(setting(protocol, "max_epochs") for protocol in known))
        trained = f", at most {epochs} of {paper.training.max_epochs} epochs" if epochs else ""
        notes.append(
            f"{dataset_label(dataset)}: {subjects} of the paper's {of_paper} subjects, "
            f"{repetitions} of {paper.protocol.repetitions} repetitions{trained}."
        )
    return notes


def _network_notes(backbones: Sequence[str]) -> list[str]:
    """State which networks our numbers come from."""
    released: list[str] = []
    original: list[str] = []
    for name in dict.fromkeys(backbones):
        (released if paper_backbone(name) != name else original).append(backbone_label(name))
    notes = []
    if released:
        notes.append(f"ours: {', '.join(released)}: the networks that the AFOR authors released.")
    if original:
        notes.append(
            f"ours: {', '.join(original)}: by the network's own publication, which is not the one "
            "that the AFOR authors released; other sizes, so Table II's learning rates do not "
            "carry over."
        )
    return notes


def same_method_table() -> Table:
    """Compare the paper's two results of one method with the gain it claims."""
    rows, records = [], []
    for row in same_method_twice():
        texts = [f"{row.adamw:.2f}", f"{row.fixed:.2f}", signed(row.between_replicates)]
        texts += [f"{row.afor:.2f}", signed(row.margin)]
        *cells, margin = map(TableCell, texts)
        noisy = abs(row.between_replicates) >= abs(row.margin)
        cells.append(replace(margin, mark="~" if noisy else ""))
        rows.append(Row(task_label(row.dataset, row.backbone, row.metric), tuple(cells)))
        measures = {"between_replicates": row.between_replicates, "margin": row.margin}
        records.append({**vars(row), **measures})
    return Table(
        name="same-method",
        title="One method printed twice: AdamW (Table III) and AFOR with β₂=0.999 (Table IV)",
        columns=columns_of("AdamW", "fixed 0.999", "apart", "AFOR", "margin"),
        rows=tuple(rows),
        label="Task",
        notes=(
            "AFOR with a fixed β₂ of 0.999 takes AdamW's steps to rounding, so what lies between "
            "the two is noise of the protocol. Margin: AFOR minus fixed 0.999, the adaptation.",
            "~ a margin no larger than the difference between the two printings of one method.",
        ),
        records=tuple(records),
    )


def paper_cost_table() -> Table:
    """Return Table VI as the paper prints it."""
    paper = published()["cost"]["cells"]
    return measured_table("cost", "Cost of one step", PAPER_OPTIMIZERS, COST_LABELS, paper, None)


def measured_table(
    section: str,
    title: str,
    names: Sequence[str],
    labels: Mapping[str, str],
    paper: Measured,
    ours: Measured | None,
) -> Table:
    """Return the paper's values by measure and optimizer, with ours below."""
    rows, records = [], []
    for source, values in (("paper", paper), ("ours", ours or {})):
        if not values:
            continue
        if ours:
            rows.append(Row(source, heading=True))
        digits = DIGITS[section]
        for key, measured in values.items():
            texts = [f"{measured[o]:.{digits}f}" if o in measured else "–" for o in names]
            rows.append(text_row(labels.get(key, key), texts))
            records += [
                {"source": source, "measure": key, "optimizer": o, "value": v}
                for o, v in measured.items()
            ]
    return Table(
        name=section,
        title=f"{title}, {published()[section]['place']}",
        columns=columns_of(*map(method_label, names)),
        rows=tuple(rows),
        label="Measure",
        records=tuple(records),
    )
