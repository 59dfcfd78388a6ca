"""Table V of the paper: the loss landscape, ours below the paper's."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from afor.bench.analyses.landscape.record import Landscape, read_landscape
from afor.bench.report.tables.formats import Table
from afor.bench.report.tables.paper import measured_table
from afor.bench.stats.labels import optimizer_label
from afor.bench.stats.paper_numbers import published

LANDSCAPE_LABELS = {"minimum_loss": "minimum projected loss", "path_length": "path length"}
# Measures of our landscapes that the paper does not print.
MORE_LANDSCAPE_LABELS = {
    "minimum_true_loss": "minimum true loss",
    "path_length_full": "path length, all dimensions",
    "explained_percent": "path in the plane (%)",
    "step_percent": "steps in the plane (%)",
}


def landscape_table(ours: Mapping[str, Any] | None = None) -> Table:
    """Return Table V, with our values below the paper's.

    `ours` is {optimizer: {measure: value}}, the JSON object of a landscape, or None.
    """
    paper = published()["landscape"]["cells"]
    measures, notes = dict(ours or {}), tuple[str, ...]()
    if "landscape" in measures:
        measures, notes = _landscape_measures(read_landscape(measures, "the file of ours"))
    names = list(dict.fromkeys([*paper, *measures]))
    labels = LANDSCAPE_LABELS | MORE_LANDSCAPE_LABELS
    paper_rows = {key: {o: paper[o][key] for o in paper} for key in LANDSCAPE_LABELS}
    our_rows = {
        key: row
        for key in labels
        if (row := {o: measures[o][key] for o in measures if key in measures[o]})
        or key in LANDSCAPE_LABELS
    }
    table = measured_table(
        "landscape", "Loss landscape", names, labels, paper_rows, our_rows if ours else None
    )
    return replace(table, notes=notes)


def _landscape_measures(result: Landscape) -> tuple[dict[str, dict[str, float]], tuple[str, ...]]:
    measures = {
        name: {
            **{key: getattr(path, key) for key in LANDSCAPE_LABELS},
            "minimum_true_loss": path.minimum_true_loss,
            "path_length_full": path.path_length_full,
            "explained_percent": 100 * path.explained_share,
            "step_percent": 100 * path.step_share,
        }
        for name, path in result.paths.items()
    }
    note = (
        f"ours: {result.label}; {result.directions} directions, seed {result.seed}, around "
        f"{optimizer_label(result.center)}'s solution; {result.windows:,} training windows; batch "
        f"norm {result.batch_norm}. In the plane: share of the squared displacement."
    )
    return measures, (note,)
