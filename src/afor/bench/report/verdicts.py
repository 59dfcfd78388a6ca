"""Summarise the results of each data set in one sentence, the first of a report."""

from collections.abc import Sequence

from afor.bench.stats.comparisons import BASELINE, Comparison, compare_all
from afor.bench.stats.groups import Conditions
from afor.bench.stats.labels import (
    dataset_label,
    metric_style,
    optimizer_label,
    p_text,
    signed,
)


def verdicts(
    conditions: Conditions,
    metric: str = "accuracy",
    *,
    baseline: str = BASELINE,
    optimizers: Sequence[str] | None = None,
) -> list[str]:
    """Return one sentence per data set: the best optimizer, its gain, and its significance."""
    comparisons = compare_all(conditions, [metric], optimizers=optimizers, baseline=baseline)
    datasets = dict.fromkeys(c.dataset for c in comparisons)
    return [
        _verdict([c for c in comparisons if c.dataset == name], conditions) for name in datasets
    ]


def _verdict(comparisons: list[Comparison], conditions: Conditions) -> str:
    first = comparisons[0]
    style = metric_style(first.metric)
    gains: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        gains.setdefault(comparison.optimizer, []).append(comparison)
    means = {o: sum(c.gain for c in row) / len(row) for o, row in gains.items()}
    best = max(means, key=lambda name: means[name])
    rows = gains[best]
    blocks = len(rows)
    base, name = optimizer_label(first.baseline), optimizer_label(best)
    where = f"{dataset_label(first.dataset)} ({max(c.folds for c in comparisons)} folds)"
    over = f" on average over {blocks} backbones" if blocks > 1 else ""
    gain = f"{signed(style.gain_scale * means[best])} {style.gain_unit} of {style.label}"
    missing = [c for (d, _, _), c in conditions.items() if d == first.dataset and not c.complete]
    if missing:
        done = sum(c.done for (d, _, _), c in conditions.items() if d == first.dataset)
        all_runs = sum(c.expected for (d, _, _), c in conditions.items() if d == first.dataset)
        return (
            f"{where}: no verdict yet, {done} of {all_runs} runs are done. So far {name} is "
            f"ahead of {base} by {gain}{over}."
        )
    if means[best] <= 0:
        return (
            f"{where}: no optimizer is better than {base}; the closest is {name} with {gain}{over}."
        )
    significant = sum(c.significant for c in rows)
    text = f"{where}: {name} gains most over {base}, {gain}{over}"
    if not any(c.can_be_significant for c in rows):
        smallest = p_text(min(1.0, first.smallest_p * first.family))
        text += f"; so few folds cannot show significance (smallest corrected p {smallest})"
    elif blocks == 1:
        word = "significant" if significant else "not significant"
        text += f", {word} (corrected p {p_text(rows[0].p_holm)})"
    else:
        text += f", significant in {significant} of {blocks}"
    if any(c.floor is not None for c in rows):
        outside = sum(c.inside_noise is False for c in rows)
        if blocks == 1:
            text += (
                ", beyond the noise floor"
                if outside
                else ", and the gain is within the noise floor"
            )
        else:
            text += f", beyond the noise floor in {outside} of {blocks}"
    else:
        text += "; its noise floor was not measured"
    return text + "."
