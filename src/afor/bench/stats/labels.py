"""Format names and numbers for tables and figures, and order them as the paper does."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from afor.bench.optimizers.registry import OPTIMIZERS, PAPER_OPTIMIZERS
from afor.bench.study.roles import role_from_name
from afor.bench.study.schema import paper_backbone

# The paper's names, in the paper's order (Tables I to III).
DATASET_LABELS = {
    "deap": "DEAP",
    "bci2a": "BCI IV 2a",
    "isruc": "ISRUC",
    "sleep_edf": "Sleep-EDF",
    "eegmat": "EEGMAT",
    "physionet_mi": "PhysioNet MI",
    "synthetic": "Synthetic",
}
BACKBONE_LABELS = {
    "eegnet": "EEGNet",
    "acrnn": "ACRNN",
    "nsal_dgat": "NSAL-DGAT",
    "hslt": "HSLT",
    "by_method": "network by method",
}
PAPER_METRICS = ("accuracy", "weighted_f1")
PLAIN = 1e6  # larger numbers are printed with an exponent


@dataclass(frozen=True)
class MetricStyle:
    """How a metric is printed, and which direction is better."""

    label: str
    scale: float = 100.0  # factor of a printed value; fractions become percent
    unit: str = "%"
    gain_scale: float = 100.0  # factor of a printed difference
    gain_unit: str = "points"
    lower_is_better: bool = False
    decimals: int = 2  # of a printed value
    # Differences up to this size, as printed, count as equivalent if a study states no other;
    # None gives no verdict of equivalence.
    margin: float | None = None

    @property
    def sign(self) -> int:
        """1 for a metric of which more is better, -1 for one of which less is."""
        return -1 if self.lower_is_better else 1

    @property
    def with_unit(self) -> str:
        """The printed name with the unit of the values, such as ``Acc (%)``."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    def text(self, mean: float, sd: float = math.nan) -> str:
        """Format a value, with its SD if there is one.

        >>> metric_style("accuracy").text(0.6294, 0.0725), metric_style("nll").text(0.6211)
        ('62.94±7.25', '0.621')
        """
        return mean_sd_text(self.scale * mean, self.scale * sd, self.decimals)

    def margin_text(self, margin: float) -> str:
        """Format a margin that is given in the metric's own unit.

        >>> metric_style("accuracy").margin_text(0.025), metric_style("kappa").margin_text(0.02)
        ('2.5 points', '0.02')
        """
        number = f"{self.gain_scale * margin:.4g}"
        unit = self.gain_unit.removeprefix("absolute")
        return f"{number} {'point' if (number, unit) == ('1', 'points') else unit}".rstrip()

    def size_text(self, size: float, *, unit: bool = True) -> str:
        """Format the size of a difference as a sentence says it.

        >>> metric_style("accuracy").size_text(0.004), metric_style("nll").size_text(0.01461)
        ('0.40 points', '0.0146')
        """
        if self.gain_unit == "points":
            return f"{self.gain_scale * size:.2f}{' points' * unit}"
        return f"{size:.{4 if self.gain_scale > 1 else 3}f}"


_NATS = MetricStyle("NLL", 1.0, "nats", 1000.0, "10⁻³ nats", lower_is_better=True, decimals=3)
# Metrics that are not listed are fractions of which more is better, without a margin.
METRIC_STYLES: Mapping[str, MetricStyle] = {
    "accuracy": MetricStyle("Acc", margin=1.0),
    "weighted_f1": MetricStyle("wF1", margin=1.0),
    "macro_f1": MetricStyle("mF1", margin=1.0),
    "balanced_accuracy": MetricStyle("bAcc", margin=1.0),
    # 0.02: one point of accuracy with two balanced classes
    "kappa": MetricStyle("kappa", 1.0, "", 1.0, "absolute", margin=0.02),
    "auroc": MetricStyle("AUROC", margin=1.0),
    "nll": _NATS,
    "brier": MetricStyle("Brier", 1.0, "", 1000.0, "10⁻³", lower_is_better=True, decimals=3),
    "calibration_error": MetricStyle("ECE", lower_is_better=True),
    "prequential_accuracy": MetricStyle("Acc next", margin=1.0),
    "prequential_nll": replace(_NATS, label="NLL next"),
    "accuracy_before": MetricStyle("Acc before", margin=1.0),
    "nll_before": replace(_NATS, label="NLL before"),
}
# Names of metrics that are not words.
_IN_WORDS = {
    "weighted_f1": "weighted F1",
    "macro_f1": "macro F1",
    "kappa": "Cohen's kappa",
    "auroc": "area under the ROC curve",
    "nll": "negative log-likelihood",
    "brier": "Brier score",
}


def method_label(name: str) -> str:
    """Return the printed name of a method; an unknown name is returned as it is.

    >>> method_label("adamw"), method_label("adamw_seed_1"), method_label("mine")
    ('AdamW', 'AdamW seed 1', 'mine')
    """
    if name in OPTIMIZERS:
        return OPTIMIZERS[name].label
    original = role_from_name(name).replicate_of
    if original in OPTIMIZERS:
        return OPTIMIZERS[original].label + name.removeprefix(original).replace("_", " ")
    return name


def dataset_label(name: str) -> str:
    """Return the printed name of a data set."""
    return DATASET_LABELS.get(name, name)


def backbone_label(name: str) -> str:
    """Return the printed name of a backbone.

    >>> backbone_label("hslt"), backbone_label("hslt_authors"), backbone_label("mine")
    ('HSLT', 'HSLT (authors)', 'mine')
    """
    paper_name = paper_backbone(name)
    if paper_name != name:
        return f"{BACKBONE_LABELS[paper_name]} (authors)"
    return BACKBONE_LABELS.get(name, name)


def task_label(dataset: str, backbone: str, metric: str = "") -> str:
    """Return the printed names of a data set, a backbone and, if given, a metric.

    >>> task_label("deap", "eegnet"), task_label("deap", "eegnet", "accuracy")
    ('DEAP, EEGNet', 'DEAP, EEGNet, Acc')
    """
    names = [dataset_label(dataset), backbone_label(backbone)]
    names += [metric_style(metric).label] if metric else []
    return ", ".join(filter(None, names))  # a table of scores names no backbone


def metric_style(name: str) -> MetricStyle:
    """Return how a metric is printed and which direction is better.

    >>> metric_style("nll").gain_unit, metric_style("nll").lower_is_better
    ('10⁻³ nats', True)
    """
    return METRIC_STYLES.get(name) or MetricStyle(name)


def metric_words(name: str) -> str:
    """Return what the label of a metric stands for.

    >>> metric_words("weighted_f1"), metric_words("nll")
    ('wF1: weighted F1', 'NLL: negative log-likelihood, less is better')
    """
    style = metric_style(name)
    words = _IN_WORDS.get(name, name.replace("_", " "))
    said = style.label if style.label == words else f"{style.label}: {words}"
    return f"{said}{', less is better' * style.lower_is_better}"


def gain_label(metric: str, baseline: str) -> str:
    """Return the name of a difference from the baseline, with its unit.

    >>> gain_label("accuracy", "adam")
    'Acc gain over Adam (points)'
    """
    style = metric_style(metric)
    return f"{style.label} gain over {method_label(baseline)} ({style.gain_unit})"


def margin_of(metric: str, stated: Mapping[str, float] | None = None) -> float | None:
    """Return the margin of equivalence of a metric in its own unit, or None if it has none.

    Args:
        metric: Name of the metric.
        stated: Margins of the study, as printed; they come before the defaults.

    >>> margin_of("accuracy"), margin_of("accuracy", {"accuracy": 2.0}), margin_of("loss")
    (0.01, 0.02, None)
    """
    style = metric_style(metric)
    margin = (stated or {}).get(metric, style.margin)
    return None if margin is None else margin / style.gain_scale


def in_paper_order(names: Iterable[str], order: Iterable[str]) -> list[str]:
    """Sort names as in `order`; the others follow in the order of their first appearance.

    >>> in_paper_order(["mine", "afor", "adam"], ["adam", "afor"])
    ['adam', 'afor', 'mine']
    """
    unique = list(dict.fromkeys(names))
    first = [name for name in order if name in unique]
    return first + [name for name in unique if name not in first]


def order_methods(names: Iterable[str]) -> list[str]:
    """Sort methods: the paper's seven, then the package's others, then the rest."""
    return in_paper_order(names, [*PAPER_OPTIMIZERS, *OPTIMIZERS])


def mean_sd_text(mean: float, sd: float, decimals: int = 2) -> str:
    """Format a mean with its SD, if there is one.

    >>> mean_sd_text(62.941, 7.25)
    '62.94±7.25'
    """
    form = f".{decimals}f" if abs(mean) < PLAIN else ".3g"
    spread = "" if math.isnan(sd) else f"±{sd:{form}}"
    return f"{mean:{form}}{spread}"


def signed(value: float) -> str:
    """Format a difference with its sign.

    >>> signed(-0.5), signed(-0.0)
    ('−0.50', '+0.00')
    """
    form = "+.2f" if abs(value) < PLAIN else "+.3g"
    return f"{value + 0.0:{form}}".replace("-", "−")  # no negative zero


def p_text(p: float) -> str:
    """Format a p-value with enough digits, never as zero.

    >>> p_text(0.0119), p_text(2**-32)
    ('0.012', '2.3e-10')
    """
    if math.isnan(p):
        return "–"
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}".replace("e-0", "e-")


def share_text(share: float) -> str:
    """Format a fraction in percent, with two significant digits if it is small.

    >>> share_text(0.9304), share_text(0.00023), share_text(0.0)
    ('93.0 %', '0.023 %', '0 %')
    """
    if math.isnan(share):
        return "–"
    percent = 100 * share
    return f"{percent:.1f} %" if percent >= 1 else f"{percent:.2g} %"
