"""Every table and figure of results by its name, with what it is made from.

`afor table`, `afor figure`, the report and the notebook build them here, so that the same question
has the same answer everywhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.report.figures import curves
from afor.bench.report.figures.noise import noise_figure
from afor.bench.report.figures.results import folds_figure, gain_figure, rank_figure
from afor.bench.report.tables import comparisons, main, paper, side, variants
from afor.bench.report.tables.formats import Table
from afor.bench.report.verdicts import FOCUS, focus_of
from afor.bench.stats.comparisons import Comparison
from afor.bench.stats.labels import PAPER_METRICS
from afor.bench.stats.results import Results


def _beside_paper(results: Results) -> Table:
    shown = tuple(metric for metric in results.metrics if metric in PAPER_METRICS)
    return paper.beside_paper_table(results.showing(shown or PAPER_METRICS))


def focus(results: Results, metric: str | None = None) -> Comparison:
    """Return the comparison that a figure of folds shows: AFOR's, else the best one's."""
    metric = metric or results.metrics[0]
    found = results.needed_comparisons(metric)
    first = [c for c in found if (c.dataset, c.backbone) == (found[0].dataset, found[0].backbone)]
    return focus_of(first, (*results.chosen, FOCUS))


def _ablation_figure(results: Results) -> Any:
    metric = results.metrics[0]
    variants.ablation_table(results)  # refuses results without variants
    names = list(results.chosen) or variants.variants_of(results.conditions)
    compared = [c for t in results.tasks for c in results.against(FOCUS, names, *t, metric)]
    if not compared:
        raise ConfigError(f"No run of {', '.join(names)} has a counterpart of {FOCUS!r} here.")
    return gain_figure(compared)


def _sensitivity_figure(results: Results) -> Any:
    return curves.sensitivity_figure(
        variants.sensitivity_table(results.showing(results.metrics[:1]))
    )


def _forgetting_figure(results: Results) -> Any:
    return curves.forgetting_figure(*curves.run_traces(results, (*results.chosen, FOCUS)[0]))


FROM_RESULTS: Mapping[str, Callable[[Results], Table]] = {
    "main": main.main_table,
    "comparisons": comparisons.comparison_table,
    "pooled": comparisons.pooled_table,
    "ablation": variants.ablation_table,
    "sensitivity": variants.sensitivity_table,
    "ranks": side.ranks_table,
    "noise": side.noise_table,
    "datasets": side.datasets_table,
    "beside-paper": _beside_paper,
    "convergence": side.convergence_table,  # from a store: files of results hold no curves
}
FIGURES: Mapping[str, Callable[[Results], Any]] = {
    "gain": lambda results: gain_figure(results.needed_comparisons(results.metrics[0])),
    "folds": lambda results: folds_figure(focus(results)),
    "ranks": lambda results: rank_figure(results.ranks[results.metrics[0]]),
    "ablation": _ablation_figure,
    "sensitivity": _sensitivity_figure,
    "noise": noise_figure,
    "convergence": lambda results: curves.convergence_figure(curves.loss_curves(results)),
    "learning": curves.learning_figure,
    "forgetting": _forgetting_figure,
}


def build_table(name: str, results: Results) -> Table:
    """Build one table of results, with the notes that every table carries."""
    table = FROM_RESULTS[name](results)
    return replace(table, notes=(*table.notes, *results.notes))


def draw_figure(name: str, results: Results) -> Any:
    """Draw one figure of results."""
    return FIGURES[name](results)
