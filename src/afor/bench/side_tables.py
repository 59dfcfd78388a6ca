"""The tables that stand beside the main one: variants, ranks, noise floor, data sets."""

import math
from collections.abc import Sequence
from dataclasses import asdict

from afor.bench.errors import ConfigError
from afor.bench.fold_values import Cell, Cells, paired_fold_values
from afor.bench.names import (
    PAPER_METRICS,
    backbone_label,
    dataset_label,
    metric_label,
    metric_scale,
    optimizer_label,
)
from afor.bench.noise_floor import noise_floor
from afor.bench.number_text import p_text, signed
from afor.bench.optimizers.registry import OPTIMIZERS
from afor.bench.paired_tests import sign_flip_p, two_sided_p
from afor.bench.statistics import blocks_of, mean_ranks
from afor.bench.table_formats import Column, Row, Table, TableCell
from afor.bench.table_parts import (
    MISSING,
    NO_CONTROLS_NOTE,
    NOISE_NOTE,
    cell_text,
    incomplete_note,
    partial,
)


def ablation_table(
    cells: Cells, metrics: Sequence[str] = PAPER_METRICS, *, reference: str = "afor"
) -> Table:
    """Return the variants of one optimizer with their change against it, as Table IV."""
    variants = [
        name
        for name in dict.fromkeys(o for _, _, o in cells)
        if name in OPTIMIZERS and OPTIMIZERS[name].variant_of == reference
    ]
    blocks = [(d, b) for d, b in blocks_of(cells) if (d, b, reference) in cells]
    if not variants or not blocks:
        raise ConfigError(
            f"No variant of {reference!r} stands beside it here. The preset `ablation` runs them: "
            "`afor run ablation`."
        )
    columns = [(d, b, m) for d, b in blocks for m in metrics]
    rows, records = [], []
    for name in [reference, *variants]:
        texts = []
        for dataset, backbone, metric in columns:
            cell, base = cells.get((dataset, backbone, name)), cells[dataset, backbone, reference]
            if cell is None or not cell.has(metric):
                texts.append(MISSING)
                continue
            change = _change(cells, cell, base, metric)
            text = cell_text(cell, metric)
            if name != reference and change["folds"]:
                text += f" ({signed(metric_scale(metric) * float(str(change['change'])))})"
            inside = name != reference and change["inside_noise"] is True
            texts.append(TableCell(text, inside_noise=inside, partial=partial(cell)))
            records.append(change)
        rows.append(Row(optimizer_label(name), tuple(texts), rule=name == variants[0]))
    floors = [noise_floor(cells, d, b, m) for d, b, m in columns]
    return Table(
        name="ablation",
        title=f"Variants of {optimizer_label(reference)}: mean ± SD (change)",
        columns=tuple(
            Column(metric_label(m), f"{dataset_label(d)}, {backbone_label(b)}")
            for d, b, m in columns
        ),
        rows=tuple(rows),
        label="Variant",
        notes=(NOISE_NOTE if any(floors) else NO_CONTROLS_NOTE, *incomplete_note(cells)),
        records=tuple(records),
    )


def ranks_table(
    cells: Cells,
    metrics: Sequence[str] = PAPER_METRICS,
    *,
    optimizers: Sequence[str] | None = None,
) -> Table:
    """Return mean ranks over all blocks that are complete, best first."""
    ranks = mean_ranks(cells, metrics, optimizers)
    order = sorted(zip(ranks.mean_ranks, ranks.optimizers, strict=True))
    return Table(
        name="ranks",
        title=f"Mean rank, 1 is best; blocks of data set, backbone and metric: {len(ranks.blocks)}",
        columns=(Column("mean rank"),),
        rows=tuple(Row(optimizer_label(o), (TableCell(f"{rank:.2f}"),)) for rank, o in order),
        notes=(
            *(
                [
                    f"Critical difference (Nemenyi, 5 %): {ranks.critical_difference:.2f}; "
                    f"Friedman p {p_text(ranks.friedman_p)}. Blocks share subjects, so both are "
                    "optimistic."
                ]
                if len(ranks.blocks) > 1
                else []
            ),
            *incomplete_note(cells),
        ),
        records=tuple({"optimizer": o, "mean_rank": rank} for rank, o in order),
    )


def noise_table(cells: Cells, metrics: Sequence[str] = PAPER_METRICS) -> Table:
    """Return the noise floor of every block that has A/A controls."""
    rows, records, identical = [], [], []
    for dataset, backbone in blocks_of(cells):
        for metric in metrics:
            floor = noise_floor(cells, dataset, backbone, metric)
            if floor is None:
                continue
            scale = metric_scale(metric)
            label = f"{dataset_label(dataset)}, {backbone_label(backbone)}, {metric_label(metric)}"
            copies = "; ".join(" = ".join(optimizer_label(n) for n in g) for g in floor.copies)
            values = [
                f"{scale * floor.spread:.2f}",
                str(floor.folds),
                f"±{scale * floor.bound:.2f}",
            ]
            texts = [*values, f"{scale * floor.largest:.2f}", copies]
            rows.append(Row(label, tuple(map(TableCell, texts))))
            records.append({**asdict(floor), "copies": copies, "identical": str(floor.identical)})
            identical += list(floor.identical)
    if not rows:
        raise ConfigError(
            "No A/A controls here: no optimizer ran twice under other seeds. "
            "The preset `controls` does that: `afor run controls`."
        )
    pairs = ", ".join(f"{a} = {b}" for a, b in dict.fromkeys(identical))
    return Table(
        name="noise",
        title="Noise floor: how far identical methods come out apart (points)",
        columns=tuple(
            Column(text) for text in ("SD of a fold", "folds", "bound", "largest", "copies")
        ),
        rows=tuple(rows),
        label="Block",
        notes=(
            "SD of a fold: of the difference between two copies in one fold. bound: 95 % of mean "
            "differences between two copies lie within it. largest: the largest mean difference "
            "that was seen.",
            *([f"Equal to the last bit, so the same method: {pairs}."] if pairs else []),
        ),
        records=tuple(records),
    )


def datasets_table(cells: Cells) -> Table:
    """Return what was tested on: folds, draws, subjects, windows, classes, majority class."""
    rows, records = [], []
    for dataset in dict.fromkeys(d for d, _, _ in cells):
        runs = [run for (d, _, _), c in cells.items() if d == dataset for run in c.runs.values()]
        if not runs:
            continue
        windows = {(run.fold): run.test_windows for run in runs}
        majority = {(run.fold, run.draw): run.majority_accuracy for run in runs}
        record = {
            "dataset": dataset,
            "classes": runs[0].classes,
            "subjects": len({subject for run in runs for subject in run.test_subjects}),
            "folds": len(windows),
            "draws": len({run.draw for run in runs}),
            "test_windows": sum(windows.values()),
            "majority_accuracy": math.fsum(majority.values()) / len(majority),
        }
        records.append(record)
        texts = [f"{v:,}" if isinstance(v, int) else f"{100 * float(str(v)):.2f}"
                 for v in list(record.values())[1:]]  # fmt: skip
        rows.append(Row(dataset_label(dataset), tuple(map(TableCell, texts))))
    labels = ("classes", "subjects", "folds", "draws", "test windows", "majority %")
    return Table(
        name="datasets",
        title="Data sets as tested",
        columns=tuple(Column(label) for label in labels),
        rows=tuple(rows),
        label="Data set",
        records=tuple(records),
    )


def _change(cells: Cells, cell: Cell, base: Cell, metric: str) -> dict[str, object]:
    folds, ours, theirs = paired_fold_values(cell, base, metric)
    mean, sd, _ = cell.summary(metric)
    d = ours - theirs
    floor = noise_floor(cells, cell.dataset, cell.backbone, metric)
    change = float(d.mean()) if folds else math.nan
    return {
        "dataset": cell.dataset,
        "backbone": cell.backbone,
        "variant": cell.optimizer,
        "metric": metric,
        "mean": mean,
        "sd": sd,
        "change": change,
        "p_lower": sign_flip_p(-d) if folds else math.nan,
        "p_two_sided": two_sided_p(d) if folds else math.nan,
        "noise_floor": floor.bound if floor else None,
        "inside_noise": abs(change) <= floor.bound if floor and folds else None,
        "folds": len(folds),
        "done": cell.done,
        "expected": cell.expected,
    }
