"""Show the cost of steps: Table VI of the paper with ours, and time over parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.report.figures import style
from afor.bench.report.tables.formats import Row, Table, columns_of, text_row
from afor.bench.report.tables.paper import COST_LABELS, paper_cost_table
from afor.bench.stats.labels import backbone_label, dataset_label, optimizer_label
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
    """Return the table of the values that `afor analyse cost -o FILE.json` wrote.

    Values without the description of a network, {measure: {optimizer: value}}, are shown below
    the paper's.
    """
    if "measures" not in ours:
        return paper_cost_table(ours)
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
            return optimizer_label(name.removesuffix(suffix)) + suffix
    return optimizer_label(name)


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
    threads = ours["threads"]
    clock = "processor time of one thread" if threads == 1 else f"wall time on {threads} threads"
    source = f"paper: {published()['cost']['place']}; how it counted is not stated."
    notes = [
        *([source] if beside else []),
        "FLOPs: operations on tensors, counted while a step ran.",
        f"A forward and backward pass on {ours['batch']} windows takes "
        f"{ours['network_flops'] / 1e6:,.1f} M FLOPs (torch's counter: matrix products and "
        f"convolutions), so the dearest step is {100 * share:.2g} % of it.",
        f"Time: {clock}, median of {ours['rounds']} rounds "
        "in which all take turns; ratios are taken within rounds.",
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


HEIGHT_MM = 112


@style.house_style()
def growth_figure(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Draw the rows of `measure_growth`: microseconds above, ratios with their quartiles below."""
    names = list(dict.fromkeys(row["optimizer"] for row in rows))
    figure, axes = style.new_figure(HEIGHT_MM, rows=2, sharex=True)
    time, ratio = axes[:, 0]
    for position, name in enumerate(names):
        of_optimizer = [row for row in rows if row["optimizer"] == name]
        sizes = [row["parameters"] for row in of_optimizer]
        base, _, implementation = name.partition(" ")
        look = {
            "color": style.color_of(base, position),
            "marker": style.marker_of(base, position),
            "linestyle": (0, (3, 1.5)) if implementation else "-",
            "markerfacecolor": "white" if implementation else style.color_of(base, position),
            "markersize": 3,
            "markeredgewidth": 0.7,
            # Parameters alone, without a network, so Sophia's second pass is not in it.
            "label": column_label(name) + (" (step alone)" if name == "sophia" else ""),
        }
        time.plot(sizes, [row["step_us"] for row in of_optimizer], **look)
        if name == "adam":
            ratio.axhline(1.0, color=look["color"], linewidth=0.8)
            continue
        ratio.plot(sizes, [row["latency_ratio"] for row in of_optimizer], **look)
        low = [row["latency_ratio_low"] for row in of_optimizer]
        high = [row["latency_ratio_high"] for row in of_optimizer]
        ratio.fill_between(sizes, low, high, color=look["color"], alpha=0.12, linewidth=0)
    _guide(time, rows)
    time.set(ylabel="time of a step (µs)", xscale="log", yscale="log")
    time.set_title("a  Time of a step")
    ratio.set(xlabel="parameters (in 12 tensors)", ylabel="time / Adam's", yscale="log")
    ratio.set_yticks([0.1, 1, 10], labels=["0.1", "1", "10"])
    ratio.set_title("b  Beside Adam's (band: quartiles of the rounds)")
    for axis in (time, ratio):
        axis.grid(True)
    style.legend_below(figure, time, 3)
    return figure


def _guide(axis: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw the slope of a time that is proportional to the parameters, below all curves."""
    last = max(row["parameters"] for row in rows)
    floor = min(row["step_us"] for row in rows if row["parameters"] == last) / 3
    first = last / 30
    axis.plot(
        [first, last], [floor * first / last, floor], color=style.GREY, linewidth=0.7, linestyle=":"
    )
    axis.annotate(
        "∝ parameters", (first, floor * first / last), xytext=(-2, 0), textcoords="offset points",
        ha="right", va="center", color=style.GREY, fontsize=6,
    )  # fmt: skip
