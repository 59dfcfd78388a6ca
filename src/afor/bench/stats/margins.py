"""Say up to which difference two methods count as equivalent, by metric.

A margin is stated as the metric is printed: in points (hundredths) for metrics between 0 and 1, as
a number for kappa. A metric without a default, such as a loss, has no verdict of equivalence until
the study states a margin for it.
"""

from collections.abc import Mapping

from afor.bench.stats.labels import metric_scale

DEFAULT_MARGINS: Mapping[str, float] = {
    "accuracy": 1.0,
    "weighted_f1": 1.0,
    "macro_f1": 1.0,
    "balanced_accuracy": 1.0,
    "kappa": 0.02,  # one point of accuracy with two balanced classes
}


def margin_of(metric: str, stated: Mapping[str, float] | None = None) -> float | None:
    """Return the margin of a metric in the metric's own unit, or None if it has none.

    Args:
        metric: Name of the metric.
        stated: Margins of the study, as printed; they come before the defaults.

    >>> margin_of("accuracy"), margin_of("accuracy", {"accuracy": 2.0}), margin_of("loss")
    (0.01, 0.02, None)
    """
    margin = {**DEFAULT_MARGINS, **(stated or {})}.get(metric)
    return None if margin is None else margin / metric_scale(metric)


def margin_text(metric: str, margin: float) -> str:
    """Format a margin that is given in the metric's own unit.

    >>> margin_text("accuracy", 0.01), margin_text("accuracy", 0.025), margin_text("kappa", 0.02)
    ('1 point', '2.5 points', '0.02')
    """
    scale = metric_scale(metric)
    number = f"{scale * margin:.4g}"
    return number if scale == 1 else f"{number} point{'' if number == '1' else 's'}"
