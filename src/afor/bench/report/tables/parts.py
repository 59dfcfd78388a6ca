"""What several tables print alike: a cell's mean, its missing runs, the notes below."""

from afor.bench.report.tables.formats import TableCell
from afor.bench.stats.groups import Cell, Cells
from afor.bench.stats.labels import mean_sd_text, metric_scale

MISSING = TableCell("–")
NOISE_NOTE = (
    "~ within what identical methods differ by in this study (A/A controls, 95 %): "
    "not distinguishable from noise."
)
NO_CONTROLS_NOTE = (
    "No A/A controls here: how far identical methods come out apart is not known. "
    "The preset controls measures it (afor run controls)."
)


def incomplete_note(cells: Cells) -> list[str]:
    """Return what is missing and how tables show it, or nothing."""
    sentence = incomplete_sentence(cells)
    how = "Where a table shows them they are marked (done/expected), never starred, and not ranked."
    return [f"{sentence} {how}"] if sentence else []


def incomplete_sentence(cells: Cells) -> str:
    """Count the incomplete cells, A/A controls too, and their missing runs; empty if complete."""
    missing = [c for c in cells.values() if not c.complete]
    if not missing:
        return ""
    runs = sum(c.expected - c.done for c in missing)
    return f"Incomplete: {len(missing)} of {len(cells)} cells lack {runs} runs."


def partial(cell: Cell) -> str:
    """Return done/expected of an incomplete cell, and nothing of a complete one."""
    return "" if cell.complete else f"{cell.done}/{cell.expected}"


def cell_text(cell: Cell, metric: str) -> str:
    """Return mean ± SD over folds, shares as percent."""
    mean, sd, _ = cell.summary(metric)
    scale = metric_scale(metric)
    return mean_sd_text(scale * mean, scale * sd)
