"""Put the decision about a comparison into words, the first of a table and of a report."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from afor.bench.stats.comparisons import Comparison
from afor.bench.stats.design.power import fewest_folds, needed_folds
from afor.bench.stats.guessing import FREQUENCIES, MAJORITY, Learned
from afor.bench.stats.inference.decisions import LEVEL, Decision
from afor.bench.stats.labels import (
    block_label,
    margin_text,
    metric_style,
    metric_text,
    optimizer_label,
    p_text,
    signed,
)
from afor.bench.stats.pooling import PooledComparison, pool_tasks

FOCUS = "afor"  # the optimizer whose verdict comes first, where it was compared


@dataclass(frozen=True)
class Verdict:
    """A verdict in three short lines; a line may be empty."""

    what: str  # better, worse, equal or undecided, and the difference that was seen
    sure: str  # how sure: the interval and p
    then: str  # what stands between the result and a verdict, and what would settle it

    @property
    def lines(self) -> list[str]:
        """The lines that are not empty."""
        return [line for line in (self.what, self.sure, self.then) if line]


@dataclass(frozen=True)
class Answer:
    """What a report, a table and a notebook say first of one data set and backbone."""

    where: str
    verdict: Verdict
    others: str  # verdicts by other metrics where they differ, and on the others; may be empty

    @property
    def text(self) -> str:
        """All of it as one paragraph."""
        return " ".join(filter(None, [f"{self.where}.", *self.verdict.lines, self.others]))


def answers(
    comparisons: Sequence[Comparison],
    metric: str,
    pooled: Sequence[PooledComparison] | None = None,
) -> list[Answer]:
    """Return the verdict by one metric on AFOR, or else on the best optimizer, for each task.

    Where there are several tasks, the verdict over all of them comes first.

    Args:
        comparisons: Those of all tasks, with one baseline.
        metric: The metric.
        pooled: The comparisons pooled over tasks, where they are known.
    """
    if pooled is None:
        pooled = pool_tasks(c for c in comparisons if c.metric == metric)
    found = _over_tasks([made for made in pooled if made.metric == metric])
    for members in _by_task(c for c in comparisons if c.metric == metric):
        focus = _focus(members)
        folds = max(c.folds for c in members)
        where = f"{block_label(focus.dataset, focus.backbone)}, {folds} fold{'s' * (folds != 1)}"
        others = (_by_other_metrics(focus, comparisons), _on_others(focus, members))
        found.append(Answer(where, verdict_of(focus), " ".join(filter(None, others))))
    return found


def verdict_of(comparison: Comparison) -> Verdict:
    """Return the verdict on one optimizer in words, with the numbers that carry it."""
    c = comparison
    name, base = optimizer_label(c.optimizer), optimizer_label(c.baseline)
    label, difference = metric_style(c.metric).label, difference_text(c)
    if c.decision is None:
        what = f"No verdict yet: {c.done} of {c.expected} runs of {name} and {base} are done."
        return Verdict(what, f"So far {label} of {name} is {difference}.", "")
    if c.decision is Decision.NO_VERDICT:
        return _no_verdict(c)
    interval = f"95 % interval of the difference {difference_interval(c)}"
    if c.decision in (Decision.BETTER, Decision.WORSE):
        small = c.evidence.margin if c.evidence.within_margin else None
        by_less = f", by less than {margin_text(c.metric, small)}" if small is not None else ""
        p = p_text(c.evidence.p_different_holm)
        what = f"{name} is {c.decision.value} than {base}{by_less}: {label} is {difference}."
        return Verdict(what, f"{interval}, corrected p {p}.{_only_one_learned(c)}", "")
    if c.decision is Decision.EQUIVALENT:
        inner = difference_interval(c, c.evidence.inner_interval)
        margin = margin_text(c.metric, c.evidence.margin or math.nan)
        what = f"No difference: {name} and {base} are equal within {margin} of {label}."
        sure = f"{label} is {difference} (90 % interval {inner}).{_only_one_learned(c)}"
        return Verdict(what, sure, "")
    what = f"Undecided: no difference between {name} and {base} is shown; {label} is {difference}."
    if math.isinf(c.interval[0]):
        sure = f"{c.folds} folds are too few for an interval."
    else:
        sure = f"Anything from {difference_interval(c)} is possible (95 % interval)."
    return Verdict(what, sure + _only_one_learned(c), _what_would_settle(c))


def _no_verdict(c: Comparison) -> Verdict:
    """Say that neither side is better than guessing, and what to do about it."""
    ours, theirs = c.learned, c.base_learned
    assert ours is not None  # otherwise there is a verdict
    assert theirs is not None
    label = metric_style(theirs.metric).label
    seen = (
        f"{optimizer_label(name)} {value_text(side.metric, side.mean)} (p {p_text(side.p)})"
        for name, side in ((c.baseline, theirs), (c.optimizer, ours))
    )
    return Verdict(
        f"No verdict: neither network is better than guessing ({guess_text(theirs)}).",
        f"{label} of {' and '.join(seen)}; p of the mean over {theirs.folds} folds.",
        "Train longer or at another learning rate, and check the labels; more subjects would not "
        "help.",
    )


def _only_one_learned(c: Comparison) -> str:
    """Name the side that alone is better than guessing, as a sentence after another; or nothing."""
    sides = ((c.optimizer, c.learned), (c.baseline, c.base_learned))
    above = [name for name, side in sides if side is not None and side.above]
    below = [side for _, side in sides if side is not None and side.above is False]
    if len(above) != 1 or not below:
        return ""
    return f" Only {optimizer_label(above[0])} is better than guessing ({guess_text(below[0])})."


def guess_text(learned: Learned) -> str:
    """Return the level of guessing and what it is of, such as ``25.0 % of 4 classes``."""
    value = value_text(learned.metric, learned.level, decimals=1)
    if learned.source == FREQUENCIES:
        return f"{metric_style(learned.metric).label} {value} of the class frequencies"
    if learned.source == MAJORITY and abs(learned.level - 1 / learned.classes) > 5e-4:
        return f"{value} of the majority class"
    return f"{value} of {learned.classes} classes"


def value_text(metric: str, value: float, decimals: int = 2) -> str:
    """Format a value of a metric for a sentence: percent with its sign, others as tables do."""
    style = metric_style(metric)
    return f"{100 * value:.{decimals}f} %" if style.unit == "%" else metric_text(metric, value)


def pooled_verdict(pooled: PooledComparison) -> Verdict:
    """Return the verdict on one optimizer over tasks in words."""
    c, name, base = pooled, optimizer_label(pooled.optimizer), optimizer_label(pooled.baseline)
    label, difference = metric_style(c.metric).label, difference_text(c)
    won, tied, lost = c.won_tied_lost
    counts = f"{name} is ahead on {won} of {len(c.tasks)} tasks, {base} on {lost}"
    counts += f", {tied} tied." if tied else "."
    if c.decision is None:
        what = f"No verdict yet over tasks: runs are missing. So far {label} is {difference}."
        return Verdict(what, "", counts)
    if c.decision in (Decision.BETTER, Decision.WORSE):
        what = f"{name} is {c.decision.value} than {base}: mean {label} is {difference}."
    elif c.decision is Decision.EQUIVALENT:
        margin = margin_text(c.metric, c.margin or math.nan)
        what = f"No difference: {name} and {base} are equal within {margin} of mean {label}."
    else:
        what = f"Undecided: no difference of {name} and {base} over tasks is shown; "
        what += f"mean {label} is {difference}."
    sure = f"95 % interval of the mean difference {difference_interval(c)}"
    if math.isinf(c.interval[0]):
        sure = "Too few folds for an interval"
    elif c.decision is Decision.EQUIVALENT:
        sure = f"Mean {label} is {difference} (90 % interval "
        sure += f"{difference_interval(c, c.inner_interval)})"
    elif c.p_two_sided < LEVEL:
        sure += f", p {p_text(c.p_two_sided)}"
        sure += f", {p_text(c.p_different_holm)} corrected over {c.family}" * (c.family > 1)
    if not math.isinf(c.prediction[0]):
        sure += f"; on another data set {difference_interval(c, c.prediction)} (prediction)"
    if not math.isnan(c.i_squared):
        sure += f"; heterogeneity I² {100 * c.i_squared:.0f} %"
    return Verdict(what, f"{sure}.", counts)


def verdict_sentence(comparison: Comparison) -> str:
    """Return the verdict on one optimizer as one paragraph."""
    return " ".join(verdict_of(comparison).lines)


def verdict_word(comparison: Comparison | PooledComparison) -> str:
    """Return the verdict as a table shows it; a dash before all runs are there."""
    if comparison.decision is None:
        return "–"
    if comparison.decision is Decision.EQUIVALENT:
        scale = metric_style(comparison.metric).gain_scale
        evidence = comparison if isinstance(comparison, PooledComparison) else comparison.evidence
        return f"equal ±{scale * (evidence.margin or math.nan):.4g}"
    return comparison.decision.value


def interval_text(low: float, high: float, scale: float) -> str:
    """Format an interval; one without ends needs more folds.

    >>> interval_text(-0.0144, 0.005, 100), interval_text(-math.inf, math.inf, 100)
    ('−1.44 to +0.50', '–')
    """
    if math.isinf(low) or math.isinf(high):
        return "–"
    return f"{signed(scale * low)} to {signed(scale * high)}"


def difference_text(c: Comparison | PooledComparison) -> str:
    """Say how far the metric is above or below the baseline's, such as ``0.40 points lower``."""
    style = metric_style(c.metric)
    size = style.size_text(abs(c.gain))
    if not any(digit in size for digit in "123456789"):
        return "the same"
    return f"{size} {'higher' if (c.gain > 0) != style.lower_is_better else 'lower'}"


def difference_interval(
    c: Comparison | PooledComparison, interval: tuple[float, float] | None = None
) -> str:
    """Format an interval of the difference of the metric itself: below zero is less of it."""
    style = metric_style(c.metric)
    ends = interval or c.interval
    low, high = (-ends[1], -ends[0]) if style.lower_is_better else ends
    signs = ("−" if end < 0 else "+" for end in (low, high))
    first, second = (f"{sign}{style.size_text(abs(end), unit=False)}" for sign, end in
                     zip(signs, (low, high), strict=True))  # fmt: skip
    unit = " points" if style.gain_unit == "points" else ""
    return f"{first} to {second}{unit}"


def _what_would_settle(c: Comparison) -> str:
    """Say what stands between an undecided result and a verdict, and what would settle it."""
    unit = "subjects" if all(len(pair.subjects) == 1 for pair in c.pairs) else "folds"
    fewest = fewest_folds(LEVEL / c.family)
    over = f" after the correction over {c.family} comparisons" if c.family > 1 else ""
    if c.folds < fewest:
        return f"{c.folds} {unit} cannot show any difference{over}; it takes at least {fewest}."
    if c.evidence.p_two_sided < LEVEL:  # seen, but corrected away
        p, corrected = p_text(c.evidence.p_two_sided), p_text(c.evidence.p_different_holm)
        sentence = (
            f"The correction over {c.family} comparisons stands between this result and a verdict: "
            f"p {p} becomes {corrected}. Fewer methods, chosen beforehand, would settle it"
        )
        if folds := needed_folds(c, c.gain):
            sentence += f", or {_range_text(folds)} {unit} if the difference is as large as seen"
        return f"{sentence}."
    margin = c.evidence.margin
    if margin is None:
        style = metric_style(c.metric)
        return (
            f"No margin of equivalence is set for {style.label}: with one, such as "
            f"--margin {c.metric}=NUMBER, equality could be shown."
        )
    size = margin_text(c.metric, margin)
    folds = needed_folds(c)
    if folds is None:
        return f"More than 2000 {unit} would be needed to settle a difference of {size}."
    if folds[1] <= c.folds:
        return f"A difference of {size} would have been found; one in between needs more {unit}."
    return f"{_range_text(folds).capitalize()} {unit} would settle a difference of {size}."


def _range_text(ends: tuple[int, int]) -> str:
    """Format a range of numbers of folds, rounded to two digits.

    >>> _range_text((31, 78)), _range_text((134, 406))
    ('about 31 to 78', 'about 130 to 410')
    """
    low, high = (round(number, 2 - len(str(number))) for number in ends)
    return f"about {low}" if low == high else f"about {low} to {high}"


def _over_tasks(pooled: Sequence[PooledComparison]) -> list[Answer]:
    """Return the verdict over tasks on AFOR, or else on the best optimizer; none for one task."""
    if not pooled:
        return []
    focus = next((c for c in pooled if c.optimizer == FOCUS), None)
    focus = focus or max(pooled, key=lambda c: c.gain)
    where = f"Over {len(focus.tasks)} tasks"
    if focus.datasets < len(focus.tasks):
        where += f" on {focus.datasets} data set{'s' * (focus.datasets > 1)}"
    if focus.blind:
        where += f" (without {focus.blind} on which neither is better than guessing)"
    others = [
        f"{optimizer_label(c.optimizer)} {verdict_word(c).replace('–', 'incomplete')}"
        for c in pooled
        if c is not focus
    ]
    return [Answer(where, pooled_verdict(focus), f"Others: {', '.join(others)}." if others else "")]


def _by_task(comparisons: Iterable[Comparison]) -> list[list[Comparison]]:
    tasks: dict[tuple[str, str, str], list[Comparison]] = {}
    for c in comparisons:
        tasks.setdefault((c.dataset, c.backbone, c.metric), []).append(c)
    return list(tasks.values())


def _focus(comparisons: Sequence[Comparison]) -> Comparison:
    """Return the comparison of AFOR, or else of the best optimizer."""
    ours = (c for c in comparisons if c.optimizer == FOCUS)
    return next(ours, None) or max(comparisons, key=lambda c: c.gain)


def _by_other_metrics(focus: Comparison, comparisons: Sequence[Comparison]) -> str:
    """Name the metrics by which the same optimizer has another verdict."""
    condition = (focus.dataset, focus.backbone, focus.optimizer)
    parts = [
        f"by {metric_style(c.metric).label}: {_titles(c)[c.decision]}"
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
        Decision.NO_VERDICT: "no verdict, both guess",
        None: "incomplete",
        Decision.EQUIVALENT: f"equal within {margin}",
    }
