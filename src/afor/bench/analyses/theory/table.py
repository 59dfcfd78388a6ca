"""Sec. VI as a table: assumptions, constants, and the bound beside the measured value."""

from collections.abc import Mapping
from typing import Any

from afor.bench.report.tables.formats import Column, Row, Table, TableCell
from afor.bench.training.controller_trace import layer_group


def theory_table(values: Mapping[str, Any]) -> Table:
    """Return the table of a report; a symbol of the paper stands beside its name."""
    sources = values["sources"]
    rows: list[Row] = []
    records: list[dict[str, object]] = []

    def heading(text: str) -> None:
        rows.append(Row(text, heading=True))

    def line(label: str, key: str, value: float, origin: str = "") -> None:
        rows.append(Row(label, (TableCell(_number(value)), TableCell(origin))))
        records.append({"quantity": key, "value": value, "origin": origin})

    heading("Assumed")
    for key, label in (
        ("smoothness", "smoothness L"),
        ("gradient_bound", "largest gradient element G"),
        ("noise_sq", "noise σ²"),
        ("drift_sq", "drift Δ², largest"),
        ("gap", "loss above its infimum"),
    ):
        line(label, key, values[key], sources[key])
    heading("Constants")
    for key, label, origin in (
        ("alpha", "smallest factor α", "1/(G + ε)"),
        ("largest_factor", "largest factor M", "1/ε"),
        ("tracking_sq", "tracking error κ², largest", "2Δ² + 2Σω²σ²"),
        ("descent", "descent a₀", "α/2"),
        ("growth", "growth b₀", "2M²(1 + κ²)"),
        ("decay_norm", "weight decay χ", "λ max(|θ₀|, √N G/(ελ)), or 0"),
    ):
        line(label, key, values[key], origin)
    heading("Step size")
    line("learning rate η", "lr", values["lr"], "used")
    line("largest permitted", "largest_lr", values["largest_lr"], "(a₀/2)/(L(2b₀ + 2χ²))")
    line("how many times too large", "lr_factor", values["lr_factor"], "1 or less: permitted")
    heading(f"Bound on the mean squared gradient after {values['steps']:,} steps")
    for bound, label in (
        ("bound_at_largest_lr", "at the largest permitted η"),
        ("bound_at_lr", "at the η used"),
    ):
        terms = values[bound]
        line(label, bound, terms["total"], "claimed" if _claims(values, bound) else "not claimed")
        for term, text in (
            ("start", "start"),
            ("tracking", "noise and drift"),
            ("decay", "weight decay"),
            ("curvature", "curvature"),
        ):
            line(f"… {text}", f"{bound}_{term}", terms[term])
    line("without a theorem", "trivial_bound", values["trivial_bound"], "N G²")
    line("what happened", "measured", values["measured"], sources["measured"])
    heading("Memory (Lemma 1), at the last step")
    for group, length in _by_group(values["memory_length"]).items():
        line(f"memory of {group}, steps", f"memory_{group}", length, "mean age of the weights + 1")
    line("largest update / η, paper", "update_bound_paper", values["update_bound_paper"], "G/ε")
    line(
        "largest update / η, from the weights",
        "update_bound_weights",
        values["update_bound_weights"],
        "√Σω²/π",
    )
    return Table(
        name="theory",
        title=f"Theorem 1: {values['title']}",
        columns=(Column("value"), Column("from")),
        rows=tuple(rows),
        label="Quantity",
        notes=tuple(values["verdict"]),
        records=tuple(records),
    )


def _claims(values: Mapping[str, Any], bound: str) -> bool:
    return bound == "bound_at_largest_lr" or bool(values["condition_holds"])


def _by_group(lengths: Mapping[str, float]) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for name, length in lengths.items():
        groups.setdefault(layer_group(name), []).append(length)
    return {group: sum(values) / len(values) for group, values in groups.items()}


def _number(value: float) -> str:
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e+").replace("e+", "e")
