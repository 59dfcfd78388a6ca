"""Put the decision about a comparison into words, the first of a table and of a report."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from afor.bench.stats.comparisons import Comparison, Judged
from afor.bench.stats.design.power import fewest_folds, needed_folds
from afor.bench.stats.guessing import FREQUENCIES, MAJORITY, Learned
from afor.bench.stats.inference.decisions import LEVEL, Decision
from afor.bench.stats.labels import (
    method_label,
    metric_style,
    p_text,
    signed,
    task_label,
)
from afor.bench.stats.pooling import PooledComparison
from afor.bench.stats.results import Results

FOCUS = "afor"  # the method whose verdict comes first, where it was compared
Compared = TypeVar("Compared", bound=Judged)


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
    def lines(self) -> tuple[str, ...]:
        """All of it, a line each; the first says where."""
        first, *rest = self.verdict.lines
        return (f"{self.where}. {first}", *rest, *filter(None, [self.others]))

    @property
    def text(self) -> str:
        """All of it, lines below each other."""
        return "\n".join(self.lines)


def answers(results: Results) -> list[Answer]:
    """Return the verdict by the first metric on AFOR, or else on the best method, for each task.

    Where there are several tasks, the verdict over all of them comes first.
    """
    metric, found = results.metrics[0], []
    if over_tasks := [made for made in results.pooled if made.metric == metric]:
        ours = focus_of(over_tasks)
        found.append(Answer(_tasks_text(ours), verdict_of(ours), _on_others(ours, over_tasks)))
    tasks: dict[tuple[str, str], list[Comparison]] = {}
    for c in results.comparisons:
        if c.metric == metric:
            tasks.setdefault((c.dataset, c.backbone), []).append(c)
    for task, members in tasks.items():
        focus = focus_of(members)
        folds = max(c.folds for c in members)
        where = f"{task_label(*task)}, {folds} fold{'s' * (folds != 1)}"
        others = (_by_other_metrics(focus, results.comparisons), _on_others(focus, members))
        found.append(Answer(where, verdict_of(focus), " ".join(filter(None, others))))
    return found


def focus_of(comparisons: Sequence[Compared], wanted: Sequence[str] = (FOCUS,)) -> Compared:
    """Return the comparison of the first method that is wanted and there, or of the best one."""
    ours = (c for name in wanted for c in comparisons if c.method == name)
    return next(ours, None) or max(comparisons, key=lambda c: c.gain)


def verdict_of(comparison: Comparison | PooledComparison) -> Verdict:
    """Return the verdict on one method, on a task or over tasks, with the numbers that carry it."""
    c, style = comparison, metric_style(comparison.metric)
    name, base, difference = method_label(c.method), method_label(c.baseline), difference_text(c)
    if isinstance(c, PooledComparison):
        label, after, then = f"mean {style.label}", f"{_spread_text(c)}.", _counts_text(c)
    elif c.decision is Decision.NO_VERDICT:
        return _no_verdict(c)
    else:
        label, after, then = style.label, f".{_only_one_learned(c)}", ""
    seen = f"{label} of {name} is {difference}"
    if c.decision is None:
        what = f"No verdict yet: {c.done} of {c.expected} runs of {name} and {base} are done."
        return Verdict(what, f"So far {seen}.", then)
    if c.decision in (Decision.BETTER, Decision.WORSE):
        small = c.evidence.margin if c.evidence.within_margin else None
        by_less = "" if small is None else f", by less than {style.margin_text(small)}"
        what = f"{name} is {c.decision.value} than {base}{by_less}: {seen}."
        corrected = "corrected " * (c.family > 1)
        sure = f"95 % interval of the difference {difference_interval(c)}, "
        sure += f"{corrected}p {p_text(c.evidence.p_different_holm)}"
    elif c.decision is Decision.EQUIVALENT:
        margin = style.margin_text(c.evidence.margin or math.nan)
        what = f"No difference: {name} and {base} are equal within {margin} of {label}."
        inner = difference_interval(c, c.evidence.inner_interval)
        sure = f"{seen[0].upper()}{seen[1:]} (90 % interval {inner})"
    else:
        equal = "" if c.evidence.margin is None else ", nor to be equal"
        what = f"Undecided: {name} and {base} are not shown to differ{equal}; {seen}."
        if math.isinf(c.interval[0]):
            sure = f"{c.evidence.folds} {_unit(c)} are too few for an interval"
        else:
            sure = f"{name} − {base} may be anything from {difference_interval(c)} (95 % interval)"
        then = _what_would_settle(c) if isinstance(c, Comparison) else then
    return Verdict(what, f"{sure}{after}", then)


def _no_verdict(c: Comparison) -> Verdict:
    """Say that neither side is better than guessing, and what to do about it."""
    ours, theirs = c.learned, c.base_learned
    assert ours is not None  # otherwise there is a verdict
    assert theirs is not None
    label = metric_style(theirs.metric).label
    seen = (
        f"{method_label(name)} {value_text(side.metric, side.mean)} (p {p_text(side.p)})"
        for name, side in ((c.baseline, theirs), (c.method, ours))
    )
    who, advice = "network", "Train longer or at another learning rate, and check the labels"
    if not theirs.classes:  # a table of scores, of any method
        who, advice = "method", "Check the labels and what the methods are given"
    return Verdict(
        f"No verdict: neither {who} is better than guessing ({guess_text(theirs)}).",
        f"{label} of {' and '.join(seen)}; p of the mean over {theirs.folds} folds.",
        f"{advice}; more subjects would not help.",
    )


def _only_one_learned(c: Comparison) -> str:
    """Name the side that alone is better than guessing, as a sentence after another; or nothing."""
    sides = ((c.method, c.learned), (c.baseline, c.base_learned))
    above = [name for name, side in sides if side is not None and side.above]
    below = [side for _, side in sides if side is not None and side.above is False]
    if len(above) != 1 or not below:
        return ""
    return f" Only {method_label(above[0])} is better than guessing ({guess_text(below[0])})."


def guess_text(learned: Learned) -> str:
    """Return the level of guessing and what it is of, such as ``25.0 % of 4 classes``."""
    value = value_text(learned.metric, learned.level, decimals=1)
    if not learned.classes:  # not known, and of no account to this metric
        return f"{metric_style(learned.metric).label} {value} without a signal"
    if learned.source == FREQUENCIES:
        return f"{metric_style(learned.metric).label} {value} of the class frequencies"
    if learned.source == MAJORITY and abs(learned.level - 1 / learned.classes) > 5e-4:
        return f"{value} of the majority class"
    return f"{value} of {learned.classes} classes"


def value_text(metric: str, value: float, decimals: int = 2) -> str:
    """Format a value of a metric for a sentence: percent with its sign, others as tables do."""
    style = metric_style(metric)
    return f"{100 * value:.{decimals}f} %" if style.unit == "%" else style.text(value)


def _spread_text(c: PooledComparison) -> str:
    """Say what is expected on another data set and how much data sets differ, if it is known."""
    text = ""
    if not math.isinf(c.prediction[0]):
        text += f"; on another data set {difference_interval(c, c.prediction)} (prediction)"
    if not math.isnan(c.i_squared):
        text += f"; heterogeneity I² {100 * c.i_squared:.0f} %"
    return text


def _counts_text(c: PooledComparison) -> str:
    """Count the tasks on which each method is ahead."""
    won, tied, lost = c.won_tied_lost
    ahead = f"{method_label(c.method)} is ahead on {won} of {len(c.tasks)} tasks"
    return f"{ahead}, {method_label(c.baseline)} on {lost}{f', {tied} tied' * (tied > 0)}."


def _tasks_text(c: PooledComparison) -> str:
    """Say over which tasks a comparison is pooled."""
    where = f"Over {len(c.tasks)} tasks"
    if c.datasets < len(c.tasks):
        where += f" on {c.datasets} data set{'s' * (c.datasets > 1)}"
    if c.blind:
        where += f" (without {c.blind} on which neither is better than guessing)"
    return where


def verdict_word(comparison: Judged) -> str:
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
    ('−1.44 to +0.50', '–')
    """
    if math.isinf(low) or math.isinf(high):
        return "–"
    return f"{signed(scale * low)} to {signed(scale * high)}"


def difference_text(c: Judged) -> str:
    """Say how far the metric is above or below the baseline's, such as ``0.40 points lower``."""
    style = metric_style(c.metric)
    size = style.size_text(abs(c.gain))
    if not any(digit in size for digit in "123456789"):
        return "the same"
    return f"{size} {'higher' if (c.gain > 0) != style.lower_is_better else 'lower'}"


def difference_interval(c: Judged, interval: tuple[float, float] | None = None) -> str:
    """Format an interval of the difference of the metric itself: below zero is less of it."""
    style = metric_style(c.metric)
    ends = interval or c.interval
    low, high = (-ends[1], -ends[0]) if style.lower_is_better else ends
    signs = ("−" if end < 0 else "+" for end in (low, high))
    first, second = (f"{sign}{style.size_text(abs(end), unit=False)}" for sign, end in
                     zip(signs, (low, high), strict=True))  # fmt: skip
    unit = " points" if style.gain_unit == "points" else ""
    return f"{first} to {second}{unit}"


def _unit(c: Judged) -> str:
    """Return what is paired: subjects, folds of several subjects, or data sets."""
    if not isinstance(c, Comparison):
        return "data sets"
    return "subjects" if all(len(pair.subjects) == 1 for pair in c.pairs) else "folds"


def _what_would_settle(c: Comparison) -> str:
    """Say what stands between an undecided result and a verdict, and what would settle it."""
    unit, style = _unit(c), metric_style(c.metric)
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
        return (
            f"No margin of equivalence is set for {style.label}: with one stated, equality could "
            "be shown."
        )
    size = style.margin_text(margin)
    folds = needed_folds(c)
    if folds is None:
        return f"More than 2000 {unit} would be needed to settle a difference of {size}."
    if folds[1] <= c.folds:
        return f"A difference of {size} would have been found; one in between needs more {unit}."
    return f"{_range_text(folds).capitalize()} {unit} in all would settle a difference of {size}."


def _range_text(ends: tuple[int, int]) -> str:
    """Format a range of numbers of folds, rounded to two digits.

    >>> _range_text((31, 78)), _range_text((134, 406))
    ('about 31 to 78', 'about 130 to 410')
    """
    low, high = (round(number, 2 - len(str(number))) for number in ends)
    return f"about {low}" if low == high else f"about {low} to {high}"


def _by_other_metrics(focus: Comparison, comparisons: Sequence[Comparison]) -> str:
    """Name the metrics by which the same method has another verdict."""
    condition = (focus.dataset, focus.backbone, focus.method)
    parts = [
        f"by {metric_style(c.metric).label}: {_titles(c)[c.decision]}"
        for c in comparisons
        if (c.dataset, c.backbone, c.method) == condition and c.decision is not focus.decision
    ]
    return f"{method_label(focus.method)} {'; '.join(parts)}." if parts else ""


def _on_others(focus: Compared, comparisons: Sequence[Compared]) -> str:
    """Group the other methods by their verdicts."""
    others = [c for c in comparisons if c is not focus]
    parts = [
        f"{title}: {', '.join(names)}"
        for decision, title in _titles(focus).items()
        if (names := [method_label(c.method) for c in others if c.decision is decision])
    ]
    return f"Others: {'; '.join(parts)}." if parts else ""


def _titles(c: Judged) -> dict[Decision | None, str]:
    """Return the words for each verdict by this metric, in the order in which they are listed."""
    base, margin = method_label(c.baseline), c.evidence.margin
    within = "" if margin is None else f" within {metric_style(c.metric).margin_text(margin)}"
    return {
        Decision.BETTER: f"better than {base}",
        Decision.WORSE: f"worse than {base}",
        Decision.UNDECIDED: "undecided",
        Decision.NO_VERDICT: "no verdict, no better than guessing",
        None: "incomplete",
        Decision.EQUIVALENT: f"equal{within}",
    }
