"""Show the cost of steps: Table VI of the paper with ours."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.formats import Table, text_row
from afor.bench.report.tables.paper import measured_table
from afor.bench.stats.labels import backbone_label, dataset_label, method_label
from afor.bench.stats.paper_numbers import published
from afor.bench.study.schema import paper_backbone

PAPER_NETWORK = ("eegnet", "deap")  # Table VI
# Our rows in their order; some are not in the paper's table.
LABELS = {
    "kflops": "FLOPs (K)",
    "extra_kflops": "extra FLOPs vs. Adam (K)",
    "pass_mflops": "own passes (M FLOPs a step)",
    "state_kb": "state memory (KB)",
    "latency_ratio": "time / Adam's",
    "extra_ms": "extra latency vs. Adam (ms)",
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
    is_papers = (paper_backbone(ours["backbone"]), ours["dataset"]) == PAPER_NETWORK
    network = f"{backbone_label(ours['backbone'])} on {dataset_label(ours['dataset'])}"
    title = f"Cost of one step: {network}, {ours['parameters']:,} parameters in "
    title += f"{ours['tensors']} tensors"
    paper = published()["cost"]["cells"] if is_papers else {}
    table = measured_table("cost", title, names, LABELS, paper, measures, heading=column_label)
    low, high = measures["latency_ratio_low"], measures["latency_ratio_high"]
    spread = (f"{low[name]:.2f}–{high[name]:.2f}" for name in names)
    rows = list(table.rows)
    after = next(i for i, row in enumerate(rows) if row.label == LABELS["latency_ratio"]) + 1
    rows.insert(after, text_row("… quartiles of rounds", spread))
    return replace(table, rows=tuple(rows), notes=_notes(ours, names, beside=is_papers))


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
