"""Format what several tables share: means, missing runs, notes."""

from afor.bench.report.tables.formats import TableCell
from afor.bench.stats.groups import Condition, Conditions
from afor.bench.stats.labels import metric_text

MISSING = TableCell("–")
NOISE_NOTE = (
    "~ within what identical methods differ by in this study (A/A controls, 95 %): "
    "not distinguishable from noise."
)
NO_CONTROLS_NOTE = (
    "No A/A controls here: how far identical methods come out apart is not known. "
    "The preset controls measures it (afor run controls)."
)


def incomplete_note(conditions: Conditions) -> list[str]:
    """Return a note on missing runs, or nothing if all are finished."""
    sentence = incomplete_sentence(conditions)
    how = "Where a table shows them they are marked (done/expected), never starred, and not ranked."
    return [f"{sentence} {how}"] if sentence else []


def incomplete_sentence(conditions: Conditions) -> str:
    """Count incomplete conditions (controls too) and their missing runs; empty if complete."""
    missing = [c for c in conditions.values() if not c.complete]
    if not missing:
        return ""
    runs = sum(c.expected - c.done for c in missing)
    return f"Incomplete: {len(missing)} of {len(conditions)} conditions lack {runs} runs."


def partial(condition: Condition) -> str:
    """Return done/expected of an incomplete condition; empty for a complete one."""
    return "" if condition.complete else f"{condition.done}/{condition.expected}"


def condition_text(condition: Condition, metric: str) -> str:
    """Return mean ± SD over folds."""
    mean, sd, _ = condition.summary(metric)
    return metric_text(metric, mean, sd)
