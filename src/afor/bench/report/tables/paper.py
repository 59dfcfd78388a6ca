"""Build tables that compare our results with the paper's."""

import math
from collections.abc import Callable, Mapping, Sequence

from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.formats import Row, Table, TableCell, columns_of, text_row
from afor.bench.report.tables.parts import MISSING, condition_text, partial
from afor.bench.stats.comparisons import BASELINE
from afor.bench.stats.groups import dataset_runs
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
from afor.bench.stats.paper_numbers import published, published_results
from afor.bench.stats.results import Results
from afor.bench.study.protocol import UNKNOWN, setting
from afor.bench.study.schema import load_study, paper_backbone

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
        runs = dataset_runs(results.conditions, dataset)
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


def measured_table(
    section: str,
    title: str,
    names: Sequence[str],
    labels: Mapping[str, str],
    paper: Measured,
    ours: Measured,
    *,
    heading: Callable[[str], str] = method_label,
) -> Table:
    """Return values by measure and method: the paper's, if it has any, and ours below.

    Args:
        section: The section of the paper's numbers, and the name of the table.
        title: Title of the table.
        names: The methods, one per column.
        labels: The measures that are rows, with their labels.
        paper: The paper's values by measure and method; empty for another network than its.
        ours: Our values.
        heading: The printed name of a method.
    """
    digits, rows, records = DIGITS[section], [], []
    for source, values in (("paper", paper), ("ours", ours)):
        if paper:
            rows.append(Row(source, heading=True))
        for key in (key for key in labels if key in values):
            numbers = (values[key].get(name, math.nan) for name in names)
            texts = (f"{number:.{digits}f}".replace("-", "−") for number in numbers)
            rows.append(text_row(labels[key], (text.replace("nan", "–") for text in texts)))
        records += [
            {"source": source, "measure": key, "method": name, "value": value}
            for key, measured in values.items()
            for name, value in measured.items()
        ]
    return Table(
        name=section,
        title=title,
        columns=columns_of(*map(heading, names)),
        rows=tuple(rows),
        label="Measure",
        records=tuple(records),
    )
