"""Format what several tables share: means, missing runs, notes."""

from collections.abc import Sequence

from afor.bench.report.tables.formats import TableCell
from afor.bench.stats.comparisons import Comparison
from afor.bench.stats.groups import Condition, Conditions
from afor.bench.stats.inference.decisions import Decision
from afor.bench.stats.inference.margins import margin_text
from afor.bench.stats.labels import metric_style, metric_text

MISSING = TableCell("–")
MARKS = {Decision.BETTER: "↑", Decision.WORSE: "↓", Decision.EQUIVALENT: "≈"}


def verdict_mark(comparison: Comparison | None) -> str:
    """Return the sign of a verdict; empty if undecided, incomplete or not compared."""
    return MARKS.get(comparison.decision, "") if comparison and comparison.decision else ""


def verdict_note(comparisons: Sequence[Comparison], *, has_signs: bool = True) -> str:
    """Explain the signs of verdicts, if a table has them, and the tests behind them."""
    family = max(c.family for c in comparisons)
    margins = {c.metric: c.evidence.margin for c in comparisons}
    stated = dict.fromkeys(
        margin_text(metric, margin) for metric, margin in margins.items() if margin is not None
    )
    margin = " or ".join(stated)
    equal = f", ≈ equal within {margin}" if stated else ""
    signs = f"↑ better, ↓ worse{equal}, no sign: undecided. " if has_signs else ""
    tests = "exact two-sided sign flips over folds"
    tests += f" and, for equal, two one-sided tests at {margin}, each" if stated else ","
    return f"{signs}Verdicts: {tests} with Holm over {family} comparison{'s' * (family > 1)}, 5 %."


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


def gain_units(metrics: Sequence[str]) -> str:
    """Return the units in which differences of these metrics are printed."""
    return " or ".join(dict.fromkeys(metric_style(metric).gain_unit for metric in metrics))


def partial(condition: Condition) -> str:
    """Return done/expected of an incomplete condition; empty for a complete one."""
    return "" if condition.complete else f"{condition.done}/{condition.expected}"


def condition_text(condition: Condition, metric: str) -> str:
    """Return mean ± SD over folds."""
    mean, sd, _ = condition.summary(metric)
    return metric_text(metric, mean, sd)
