"""Build the paper's tables, and tables that compare our results with them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.registry import PAPER_OPTIMIZERS
from afor.bench.report.tables.formats import Column, Row, Table, TableCell, columns_of, text_row
from afor.bench.report.tables.parts import MISSING, condition_text, partial
from afor.bench.stats.comparisons import compare
from afor.bench.stats.groups import Conditions
from afor.bench.stats.labels import (
    BACKBONE_LABELS,
    PAPER_METRICS,
    backbone_label,
    block_label,
    dataset_label,
    mean_sd_text,
    metric_label,
    metric_style,
    optimizer_label,
    signed,
)
from afor.bench.stats.paper_numbers import (
    TableName,
    published,
    published_results,
    same_method_twice,
)
from afor.bench.study.schema import paper_backbone

COST_LABELS = {
    "extra_kflops": "extra FLOPs vs. Adam (K)",
    "state_kb": "state memory (KB)",
    "extra_ms": "extra latency vs. Adam (ms)",
}
DIGITS = {"cost": 2, "landscape": 3}  # as printed
Measured = Mapping[str, Mapping[str, float]]


def published_table(table: TableName = "results") -> Table:
    """Return Table III or IV as printed, with its marks."""
    results = published_results(table)
    columns = list(dict.fromkeys((b, m) for _, b, _, m in results))
    rows = []
    for dataset in dict.fromkeys(d for d, _, _, _ in results):
        rows.append(Row(dataset_label(dataset), heading=True))
        for name in dict.fromkeys(o for d, _, o, _ in results if d == dataset):
            printed = [results[dataset, b, name, m] for b, m in columns]
            texts = [
                TableCell(mean_sd_text(c.mean, c.sd), c.best, c.second, c.significant)
                for c in printed
            ]
            rows.append(Row(optimizer_label(name), tuple(texts)))
    table_of_paper = published()[table]["place"]
    return Table(
        name=f"paper-{table}",
        title=f"As printed in the paper, {table_of_paper}",
        columns=tuple(Column(metric_label(m), backbone_label(b)) for b, m in columns),
        rows=tuple(rows),
        notes=("* and marks as printed in the paper.",) if table == "results" else (),
        records=tuple(dict(vars(c)) for c in results.values()),
    )


def beside_paper_table(conditions: Conditions, metrics: Sequence[str] = PAPER_METRICS) -> Table:
    """Compare our means and gains over Adam with the paper's, for each condition that both have."""
    printed = {**published_results("ablation"), **published_results("results")}
    rows: list[Row] = []
    records = []
    heading = ""
    for (dataset, backbone, name), condition in conditions.items():
        for metric in metrics:
            network = paper_backbone(backbone)
            paper = printed.get((dataset, network, name, metric))
            if paper is None or not condition.has(metric):
                continue
            scale = metric_style(metric).scale
            mean, sd, n = condition.summary(metric)
            compared = compare(conditions, dataset, backbone, metric, optimizers=[name, "adam"])
            our_gain = scale * compared[0].gain if compared else None
            paper_gain = paper.mean - printed[dataset, network, "adam", metric].mean
            if heading != (heading := block_label(dataset, backbone)):
                rows.append(Row(heading, heading=True))
            texts = [
                TableCell(condition_text(condition, metric), partial=partial(condition)),
                TableCell(mean_sd_text(paper.mean, paper.sd)),
                TableCell(signed(scale * mean - paper.mean)),
                MISSING if our_gain is None else TableCell(signed(our_gain)),
                TableCell(signed(paper_gain)) if name != "adam" else MISSING,
            ]
            rows.append(Row(f"{optimizer_label(name)}, {metric_label(metric)}", tuple(texts)))
            records.append(
                {
                    "dataset": dataset,
                    "backbone": backbone,
                    "network": "authors" if backbone != network else "original",
                    "optimizer": name,
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
                    "paper_gain_over_adam": paper_gain if name != "adam" else None,
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
            "across folds, as in the paper.",
            *_network_notes([str(record["backbone"]) for record in records]),
        ),
        records=tuple(records),
    )


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
        texts = [f"{row.adamw:.2f}", f"{row.fixed:.2f}", signed(row.between_copies)]
        texts += [f"{row.afor:.2f}", signed(row.margin)]
        *cells, margin = map(TableCell, texts)
        noisy = abs(row.between_copies) >= abs(row.margin)
        cells.append(replace(margin, mark="~" if noisy else ""))
        rows.append(Row(block_label(row.dataset, row.backbone, row.metric), tuple(cells)))
        measures = {"between_copies": row.between_copies, "margin": row.margin}
        records.append({**vars(row), **measures})
    return Table(
        name="same-method",
        title="One method printed twice: AdamW (Table III) and AFOR with β₂=0.999 (Table IV)",
        columns=columns_of("AdamW", "fixed 0.999", "apart", "AFOR", "margin"),
        rows=tuple(rows),
        label="Block",
        notes=(
            "AFOR with a fixed β₂ of 0.999 takes AdamW's steps to rounding, so what lies between "
            "the two is noise of the protocol. Margin: AFOR minus fixed 0.999, the adaptation.",
            "~ a margin no larger than the difference between the two printings of one method.",
        ),
        records=tuple(records),
    )


def learning_rates_table(ours: Measured | None = None) -> Table:
    """Return Table II with `ours`, {dataset: {backbone: rate}}, in parentheses."""
    section = published()["learning_rates"]

    def our_rate(dataset: str, backbone: str) -> float | None:
        return (ours or {}).get(dataset, {}).get(backbone)

    rows = []
    for backbone in BACKBONE_LABELS:
        texts = []
        for dataset, rates in section["cells"].items():
            rate, text = our_rate(dataset, backbone), f"{rates[backbone]:.0e}"
            text = text if rate is None else f"{text} ({rate:.0e})"
            texts.append(text.replace("e-0", "e-"))
        rows.append(text_row(backbone_label(backbone), texts))
    records = [
        {"dataset": d, "backbone": b, "paper": rate, "ours": our_rate(d, b)}
        for d, rates in section["cells"].items()
        for b, rate in rates.items()
    ]
    return Table(
        name="learning-rates",
        title=f"Learning rates chosen with Adam, {section['place']}",
        columns=columns_of(*map(dataset_label, section["cells"])),
        rows=tuple(rows),
        label="Backbone",
        notes=("In parentheses: ours.",) if ours else (),
        records=tuple(records),
    )


def paper_cost_table(ours: Measured | None = None) -> Table:
    """Return Table VI with `ours`, {measure: {optimizer: value}}, below the paper's rows."""
    measured = [name for row in (ours or {}).values() for name in row]
    names = list(dict.fromkeys([*PAPER_OPTIMIZERS, *measured]))
    return measured_table(
        "cost", "Cost of one step", names, COST_LABELS, published()["cost"]["cells"], ours
    )


def paper_datasets_table() -> Table:
    """Return Table I."""
    section = published()["datasets"]
    keys = list(next(iter(section["cells"].values())))
    return Table(
        name="paper-datasets",
        title=f"Data sets and subjects per round, {section['place']}",
        columns=columns_of(*keys),
        rows=tuple(
            text_row(dataset_label(name), (str(row[key]) for key in keys))
            for name, row in section["cells"].items()
        ),
        label="Data set",
        records=tuple({"dataset": name, **row} for name, row in section["cells"].items()),
    )


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
        columns=columns_of(*map(optimizer_label, names)),
        rows=tuple(rows),
        label="Measure",
        records=tuple(records),
    )
