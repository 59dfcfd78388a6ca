"""Sec. VI as a table: assumptions, constants, and the bound beside the measured value."""

from collections.abc import Mapping
from typing import Any

from afor.bench.report.tables.formats import Row, Table, columns_of, text_row
from afor.bench.training.controller_trace import layer_group

# Each quantity with its name and symbol; of the constants also where they come from.
ASSUMED = {
    "smoothness": "smoothness L",
    "gradient_bound": "largest gradient element G",
    "noise_sq": "noise σ²",
    "drift_sq": "drift Δ², largest",
    "gap": "loss above its infimum",
}
CONSTANTS = {
    "alpha": ("smallest factor α", "1/(G + ε)"),
    "largest_factor": ("largest factor M", "1/ε"),
    "tracking_sq": ("tracking error κ², largest", "2Δ² + 2Σω²σ²"),
    "descent": ("descent a₀", "α/2"),
    "growth": ("growth b₀", "2M²(1 + κ²)"),
    "decay_norm": ("weight decay χ", "λ max(|θ₀|, √N G/(ελ)), or 0"),
}
STEP_SIZE = {
    "lr": ("learning rate η", "used"),
    "largest_lr": ("largest permitted", "(a₀/2)/(L(2b₀ + 2χ²))"),
    "lr_factor": ("how many times too large", "1 or less: permitted"),
}
BOUNDS = {"bound_at_largest_lr": "at the largest permitted η", "bound_at_lr": "at the η used"}
TERMS = {
    "start": "start",
    "tracking": "noise and drift",
    "decay": "weight decay",
    "curvature": "curvature",
}
UPDATES = {
    "update_bound_paper": ("largest update / η, paper", "G/ε"),
    "update_bound_weights": ("largest update / η, from the weights", "√Σω²/π"),
}


def theory_table(values: Mapping[str, Any]) -> Table:
    """Return the table of a report; a symbol of the paper stands beside its name."""
    sources = values["sources"]
    rows: list[Row] = []
    records: list[dict[str, object]] = []

    def heading(text: str) -> None:
        rows.append(Row(text, heading=True))

    def line(label: str, key: str, value: float, origin: str = "") -> None:
        rows.append(text_row(label, [_number(value), origin]))
        records.append({"quantity": key, "value": value, "origin": origin})

    def lines(quantities: Mapping[str, tuple[str, str]]) -> None:
        for key, (label, origin) in quantities.items():
            line(label, key, values[key], origin)

    heading("Assumed")
    lines({key: (label, sources[key]) for key, label in ASSUMED.items()})
    heading("Constants")
    lines(CONSTANTS)
    heading("Step size")
    lines(STEP_SIZE)
    heading(f"Bound on the mean squared gradient after {values['steps']:,} steps")
    for bound, label in BOUNDS.items():
        claimed = bound == "bound_at_largest_lr" or values["condition_holds"]
        line(label, bound, values[bound]["total"], "claimed" if claimed else "not claimed")
        for term, text in TERMS.items():
            line(f"… {text}", f"{bound}_{term}", values[bound][term])
    line("without a theorem", "trivial_bound", values["trivial_bound"], "N G²")
    line("what happened", "measured", values["measured"], sources["measured"])
    heading("Memory (Lemma 1), at the last step")
    for group, length in _by_group(values["memory_length"]).items():
        line(f"memory of {group}, steps", f"memory_{group}", length, "mean age of the weights + 1")
    lines(UPDATES)
    return Table(
        name="theory",
        title=f"Theorem 1: {values['title']}",
        columns=columns_of("value", "from"),
        rows=tuple(rows),
        label="Quantity",
        notes=tuple(values["verdict"]),
        records=tuple(records),
    )


def _by_group(lengths: Mapping[str, float]) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for name, length in lengths.items():
        groups.setdefault(layer_group(name), []).append(length)
    return {group: sum(values) / len(values) for group, values in groups.items()}


def _number(value: float) -> str:
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e+").replace("e+", "e")
