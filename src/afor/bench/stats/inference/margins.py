"""Say up to which difference two methods count as equivalent, by metric.

A margin is stated as differences of the metric are printed: in points (hundredths) for metrics
between 0 and 1, as a number for kappa, in thousandths of a nat for NLL. A metric without a default,
such as NLL, has no verdict of equivalence until the study states a margin for it.
"""

from collections.abc import Mapping

from afor.bench.stats.labels import gain_scale, metric_style

DEFAULT_MARGINS: Mapping[str, float] = {
    "accuracy": 1.0,
    "weighted_f1": 1.0,
    "macro_f1": 1.0,
    "balanced_accuracy": 1.0,
    "prequential_accuracy": 1.0,
    "accuracy_before": 1.0,
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
    return None if margin is None else margin / gain_scale(metric)


def margin_text(metric: str, margin: float) -> str:
    """Format a margin that is given in the metric's own unit.

    >>> margin_text("accuracy", 0.01), margin_text("accuracy", 0.025), margin_text("kappa", 0.02)
    ('1 point', '2.5 points', '0.02')
    """
    style = metric_style(metric)
    number = f"{style.gain_scale * margin:.4g}"
    unit = style.gain_unit.removeprefix("absolute")
    return f"{number} {'point' if (number, unit) == ('1', 'points') else unit}".rstrip()
