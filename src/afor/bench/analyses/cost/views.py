"""Show the cost of steps: Table VI of the paper with ours."""

from collections.abc import Mapping
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.formats import Row, Table, columns_of, text_row
from afor.bench.report.tables.paper import COST_LABELS
from afor.bench.stats.labels import backbone_label, dataset_label, method_label
from afor.bench.stats.paper_numbers import published
from afor.bench.study.schema import paper_backbone

PAPER_NETWORK = ("eegnet", "deap")  # Table VI
# Our rows in their order; some are not in the paper's table.
LABELS = {
    "kflops": "FLOPs (K)",
    "extra_kflops": COST_LABELS["extra_kflops"],
    "pass_mflops": "own passes (M FLOPs a step)",
    "state_kb": COST_LABELS["state_kb"],
    "latency_ratio": "time / Adam's",
    "extra_ms": COST_LABELS["extra_ms"],
}
IMPLEMENTATIONS = (" fused", " for-loop")


def cost_table(ours: Mapping[str, Any]) -> Table:
    """Return the table of the values that `afor analyse cost -o FILE.json` wrote."""
    try:
        return _measured(ours)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"These are not the values that `afor analyse cost -o FILE.json` writes ({error!r}). "
            "Write them anew."
        ) from error


def column_label(name: str) -> str:
    """Return the heading of an optimizer or of one of its implementations.

    >>> column_label("afor for-loop")
    'AFOR for-loop'
    """
    for suffix in IMPLEMENTATIONS:
        if name.endswith(suffix):
            return method_label(name.removesuffix(suffix)) + suffix
    return method_label(name)


def _measured(ours: Mapping[str, Any]) -> Table:
    measures: Mapping[str, Mapping[str, float]] = ours["measures"]
    names = list(measures["kflops"])
    beside = (paper_backbone(ours["backbone"]), ours["dataset"]) == PAPER_NETWORK
    rows, records = [], []
    if beside:
        section = published()["cost"]
        rows.append(Row("paper", heading=True))
        for key, values in section["cells"].items():
            rows.append(_row(COST_LABELS[key], values, names))
            records += _records("paper", key, values)
        rows.append(Row("ours", heading=True))
    for key, label in LABELS.items():
        if key in measures:
            rows.append(_row(label, measures[key], names))
        if key == "latency_ratio":
            low, high = measures["latency_ratio_low"], measures["latency_ratio_high"]
            spread = (f"{low[name]:.2f}–{high[name]:.2f}" for name in names)
            rows.append(text_row("… quartiles of rounds", spread))
    for key, values in measures.items():
        records += _records("ours", key, values)
    network = f"{backbone_label(ours['backbone'])} on {dataset_label(ours['dataset'])}"
    return Table(
        name="cost",
        title=f"Cost of one step: {network}, {ours['parameters']:,} parameters in "
        f"{ours['tensors']} tensors",
        columns=columns_of(*map(column_label, names)),
        rows=tuple(rows),
        label="Measure",
        notes=_notes(ours, names, beside=beside),
        records=tuple(records),
    )


def _notes(ours: Mapping[str, Any], names: list[str], *, beside: bool) -> tuple[str, ...]:
    flops = ours["measures"]["kflops"]
    share = 1e3 * max(flops.values()) / ours["network_flops"]
    state_kb = ours["measures"]["state_kb"].get("afor")
    needed_kb = ours["measures"]["needed_state_kb"].get("afor")
    source = f"paper: {published()['cost']['place']}; how it counted is not stated."
    notes = [
        *([source] if beside else []),
        "FLOPs: operations on tensors, counted while a step ran.",
        f"A forward and backward pass on {ours['batch']} windows takes "
        f"{ours['network_flops'] / 1e6:,.1f} M FLOPs (torch's counter: matrix products and "
        f"convolutions), so the dearest step is {100 * share:.2g} % of it.",
        f"Time: processor time of one thread, median of {ours['rounds']} rounds in which all take "
        "turns; ratios are taken within rounds.",
    ]
    if "adam fused" in names:
        notes.append(
            "Adam is torch's default (a for-loop on CPU), AFOR its native kernel: compare AFOR "
            "with Adam fused, and AFOR for-loop with Adam."
        )
    if state_kb is not None:
        notes.append(
            f"State: all tensors kept; Python counters count as nothing. AFOR keeps "
            f"{state_kb:.2f} KB, of which score, standardised score and β₂ of the last step are "
            f"only a record; {needed_kb:.2f} KB without them."
        )
    for name, operators in ours["unknown_operators"].items():
        notes.append(f"{name}: operators without a rule, not counted: {', '.join(operators)}.")
    if "sophia" in names:
        notes.append("Sophia: its second pass, every 10 steps, is in its time.")
    return tuple(notes)


def _row(label: str, values: Mapping[str, float], names: list[str]) -> Row:
    texts = [f"{values[n]:.2f}".replace("-", "−") if n in values else "–" for n in names]
    return text_row(label, texts)


def _records(source: str, key: str, values: Mapping[str, float]) -> list[dict[str, object]]:
    return [
        {"source": source, "measure": key, "optimizer": name, "value": value}
        for name, value in values.items()
    ]
