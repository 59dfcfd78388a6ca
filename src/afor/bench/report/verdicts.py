"""Put the decision about a comparison into a sentence, the first of a table and of a report."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from afor.bench.stats.comparisons import BASELINE, Comparison, compare_all
from afor.bench.stats.groups import Conditions
from afor.bench.stats.inference.decisions import Decision
from afor.bench.stats.inference.margins import margin_text
from afor.bench.stats.labels import (
    block_label,
    metric_label,
    metric_style,
    optimizer_label,
    p_text,
    signed,
)

FOCUS = "afor"  # the optimizer whose sentence stands first, where it was compared


@dataclass(frozen=True)
class Answer:
    """What the box at the top of a report says of one data set and backbone."""

    sentence: str  # the verdict, the numbers that carry it and what would decide
    details: str  # verdicts by other metrics where they differ, and on the others; may be empty


def answers(
    conditions: Conditions, metrics: Sequence[str], *, baseline: str = BASELINE
) -> list[Answer]:
    """Return the verdict by the first metric, and apart from it what it leaves out."""
    comparisons = compare_all(conditions, metrics, baseline=baseline)
    by_block = []
    for members in _blocks(c for c in comparisons if c.metric == metrics[0]):
        focus = _focus(members)
        details = (_by_other_metrics(focus, comparisons), _on_others(focus, members))
        by_block.append(Answer(_verdict(focus, members), " ".join(filter(None, details))))
    return by_block


def verdicts(
    conditions: Conditions,
    metric: str = "accuracy",
    *,
    baseline: str = BASELINE,
    optimizers: Sequence[str] | None = None,
) -> list[str]:
    """Compare optimizers with the baseline and return one paragraph per data set and backbone."""
    return paragraphs(compare_all(conditions, [metric], optimizers=optimizers, baseline=baseline))


def paragraphs(comparisons: Sequence[Comparison]) -> list[str]:
    """Return one paragraph per data set, backbone and metric.

    It gives the verdict on AFOR, or else on the best optimizer, and groups the others by theirs.
    """
    return [_paragraph(members) for members in _blocks(comparisons)]


def verdict_sentence(comparison: Comparison) -> str:
    """Return the verdict on one optimizer in words, with the numbers that carry it."""
    c = comparison
    name, base = optimizer_label(c.optimizer), optimizer_label(c.baseline)
    style = metric_style(c.metric)
    scale, unit = style.gain_scale, style.gain_unit.removeprefix("absolute")
    gain = " ".join(filter(None, (signed(scale * c.gain), unit, "of", style.label)))
    if c.decision is None:
        return (
            f"No verdict yet: {c.done} of {c.expected} runs of {name} and {base} are done; so far "
            f"{name} − {base} is {gain}."
        )
    low, high = c.interval
    interval = f"95 % interval {interval_text(low, high, scale)}"
    if c.decision in (Decision.BETTER, Decision.WORSE):
        small = c.evidence.margin if c.evidence.within_margin else None
        by_less = f", by less than {margin_text(c.metric, small)}" if small is not None else ""
        return (
            f"{name} is {c.decision.value} than {base}{by_less}: {gain} ({interval}, corrected p "
            f"{p_text(c.evidence.p_different_holm)})."
        )
    if c.decision is Decision.EQUIVALENT:
        inner = interval_text(*c.evidence.inner_interval, scale)
        margin = margin_text(c.metric, c.evidence.margin or math.nan)
        return (
            f"No difference: {name} and {base} are equal within {margin} of "
            f"{metric_label(c.metric)} ({signed(scale * c.gain)}, 90 % interval {inner})."
        )
    return f"Undecided: {name} − {base} is {gain} ({interval}); {_what_would_decide(c)}."


def verdict_word(comparison: Comparison) -> str:
    """Return the verdict as a table shows it; a dash before all runs are there."""
    if comparison.decision is None:
        return "–"
    if comparison.decision is Decision.EQUIVALENT:
        scale = metric_style(comparison.metric).gain_scale
        return f"equal ±{scale * (comparison.evidence.margin or math.nan):.4g}"
    return comparison.decision.value


def interval_text(low: float, high: float, scale: float) -> str:
    """Format an interval; one without ends needs more folds.

    >>> interval_text(-0.0144, 0.005, 100), interval_text(-math.inf, math.inf, 100)
    ('−1.44 to +0.50', 'unbounded')
    """
    if math.isinf(low) or math.isinf(high):
        return "unbounded"
    return f"{signed(scale * low)} to {signed(scale * high)}"


def _blocks(comparisons: Iterable[Comparison]) -> list[list[Comparison]]:
    blocks: dict[tuple[str, str, str], list[Comparison]] = {}
    for c in comparisons:
        blocks.setdefault((c.dataset, c.backbone, c.metric), []).append(c)
    return list(blocks.values())


def _focus(comparisons: Sequence[Comparison]) -> Comparison:
    """Return the comparison of AFOR, or else of the best optimizer."""
    ours = (c for c in comparisons if c.optimizer == FOCUS)
    return next(ours, None) or max(comparisons, key=lambda c: c.gain)


def _paragraph(comparisons: Sequence[Comparison]) -> str:
    focus = _focus(comparisons)
    return f"{_verdict(focus, comparisons)} {_on_others(focus, comparisons)}".rstrip()


def _verdict(focus: Comparison, comparisons: Sequence[Comparison]) -> str:
    folds = max(c.folds for c in comparisons)
    where = block_label(focus.dataset, focus.backbone)
    return f"{where}, {folds} fold{'s' * (folds != 1)}. {verdict_sentence(focus)}"


def _by_other_metrics(focus: Comparison, comparisons: Sequence[Comparison]) -> str:
    """Name the metrics by which the same optimizer has another verdict."""
    condition = (focus.dataset, focus.backbone, focus.optimizer)
    parts = [
        f"by {metric_label(c.metric)}: {_titles(c)[c.decision]}"
        for c in comparisons
        if (c.dataset, c.backbone, c.optimizer) == condition and c.decision is not focus.decision
    ]
    return f"{optimizer_label(focus.optimizer)} {'; '.join(parts)}." if parts else ""


def _on_others(focus: Comparison, comparisons: Sequence[Comparison]) -> str:
    """Group the other optimizers by their verdicts."""
    others = [c for c in comparisons if c is not focus]
    parts = [
        f"{title}: {', '.join(names)}"
        for decision, title in _titles(focus).items()
        if (names := [optimizer_label(c.optimizer) for c in others if c.decision is decision])
    ]
    return f"Others: {'; '.join(parts)}." if parts else ""


def _titles(comparison: Comparison) -> dict[Decision | None, str]:
    """Return the words for each verdict by this metric, in the order in which they are listed."""
    c, base = comparison, optimizer_label(comparison.baseline)
    margin = "" if c.evidence.margin is None else margin_text(c.metric, c.evidence.margin)
    return {
        Decision.BETTER: f"better than {base}",
        Decision.WORSE: f"worse than {base}",
        Decision.UNDECIDED: "undecided",
        None: "incomplete",
        Decision.EQUIVALENT: f"equal within {margin}",
    }


def _what_would_decide(c: Comparison) -> str:
    needed, margin = c.folds_to_decide(), c.evidence.margin
    if needed is None or margin is None:
        return f"{metric_label(c.metric)} has no margin of equivalence, which a study can state"
    size = margin_text(c.metric, margin)
    unit = "subjects" if c.subjects_per_fold <= 1 else "folds"
    if needed <= c.folds:
        return (
            f"{c.folds} {unit} decide with a probability of at least 80 % whether there is a "
            f"difference of {size} or none, and a difference in between needs more"
        )
    draws = c.draws_to_decide()
    by_draws = f", or {draws} draws instead of {c.draws}," if draws else ""
    return (
        f"at this noise {needed} {unit} instead of {c.folds}{by_draws} would decide with a "
        f"probability of 80 % whether there is a difference of {size} or none"
    )
