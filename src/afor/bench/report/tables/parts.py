"""Format what several tables share: means, missing runs, notes."""

from collections.abc import Sequence

from afor.bench.report.tables.formats import TableCell
from afor.bench.stats.comparisons import Comparison
from afor.bench.stats.groups import Condition
from afor.bench.stats.inference.decisions import Decision
from afor.bench.stats.labels import metric_style

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
        metric_style(metric).margin_text(margin)
        for metric, margin in margins.items()
        if margin is not None
    )
    margin = " or ".join(stated)
    equal = f", ≈ equal within {margin}" if stated else ""
    signs = f"↑ better, ↓ worse{equal}, no sign: undecided. " if has_signs else ""
    tests = "an exact paired permutation test over folds (better, worse)"
    tests += f" and two one-sided tests with a margin of {margin} (equal)" if stated else ""
    corrected = f"Holm-corrected over {family} comparisons" if family > 1 else "not corrected"
    return f"{signs}Verdicts use {tests}, {corrected}, at 5 %."


def gain_units(metrics: Sequence[str]) -> str:
    """Return the units in which differences of these metrics are printed."""
    return " or ".join(dict.fromkeys(metric_style(metric).gain_unit for metric in metrics))


def partial(condition: Condition) -> str:
    """Return done/expected of an incomplete condition; empty for a complete one."""
    return "" if condition.complete else f"{condition.done}/{condition.expected}"


def condition_record(condition: Condition, metric: str) -> dict[str, object]:
    """Return what a record of a condition holds: its names, its mean and SD, its runs."""
    mean, sd, folds = condition.summary(metric)
    return {
        "dataset": condition.dataset,
        "backbone": condition.backbone,
        "method": condition.method,
        "metric": metric,
        "mean": mean,
        "sd": sd,
        "folds": folds,
        "done": condition.done,
        "expected": condition.expected,
    }


def condition_text(condition: Condition, metric: str) -> str:
    """Return mean ± SD over folds."""
    mean, sd, _ = condition.summary(metric)
    return metric_style(metric).text(mean, sd)
