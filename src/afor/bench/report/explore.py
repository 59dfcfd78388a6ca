"""Collect what the report's charts show, and the script that draws them in the browser."""

import json
import math
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afor.bench.common.text import printable, without_nan
from afor.bench.report.figures.curves import guessed_loss, mean_and_band
from afor.bench.report.figures.style import color_of, marker_of
from afor.bench.report.verdicts import verdict_of, verdict_word
from afor.bench.stats.comparisons import Comparison
from afor.bench.stats.groups import Conditions
from afor.bench.stats.labels import (
    backbone_label,
    dataset_label,
    method_label,
    metric_style,
)
from afor.bench.stats.results import Results

DIGITS = 9  # of a value in the page; means closer than its rounding are ties
# The markers of Matplotlib figures, in the names of d3.
SYMBOLS = {
    "o": "circle", "s": "square", "^": "triangle", "D": "diamond", "v": "wye", "P": "cross",
    "X": "star", "*": "hexagon",
}  # fmt: skip


def chart_data(results: Results) -> dict[str, Any]:
    """Return what all charts show as values of JSON: names, comparisons, runs, training curves.

    A run names its data set, backbone and method by their positions in the lists; its values are
    in the order of the metrics, of which the first is shown first.
    """
    conditions, metrics = results.conditions, results.metrics
    datasets = list(dict.fromkeys(dataset for dataset, _, _ in conditions))
    backbones = list(dict.fromkeys(backbone for _, backbone, _ in conditions))
    methods = list(dict.fromkeys(method for _, _, method in conditions))
    main = results.methods
    content = {
        "baseline": printable(results.baseline),
        "tie": 2 * 10.0**-DIGITS,
        "metrics": [_metric(name) for name in metrics],
        "datasets": [_named(name, dataset_label(name)) for name in datasets],
        "backbones": [_named(name, backbone_label(name)) for name in backbones],
        "methods": [
            {
                **_named(name, method_label(name)),
                "color": color_of(name, position).lower(),
                "symbol": SYMBOLS[marker_of(name, position)],
                "main": name in main,
            }
            for position, name in enumerate(methods)
        ],
        "comparisons": [_comparison(comparison) for comparison in results.comparisons],
        "subjects": _subjects(conditions),
        "runs": [
            [
                datasets.index(condition.dataset),
                backbones.index(condition.backbone),
                methods.index(condition.method),
                fold,
                repetition,
                [_rounded(run.metrics.get(metric, math.nan)) for metric in metrics],
            ]
            for condition in conditions.values()
            for (fold, repetition), run in sorted(condition.runs.items())
        ],
        "curves": _curves(results),
    }
    cleaned: dict[str, Any] = without_nan(content)
    return cleaned


def json_for_script(content: Mapping[str, Any]) -> str:
    r"""Return JSON that can stand inside a script element.

    >>> json_for_script({"name": "</script>"})
    '{"name":"\\u003c/script>"}'
    """
    text = json.dumps(content, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def libraries_script() -> str:
    """Return the bundled libraries, each after its licence, as one script."""
    folder = files("afor.bench.report").joinpath("libraries")
    entries = tomllib.loads(folder.joinpath("libraries.toml").read_text("utf-8"))
    parts = []
    for name, entry in entries.items():
        licences = "\n\n".join(folder.joinpath(f).read_text("utf-8") for f in entry["licences"])
        parts.append(f"/* {name} {entry['version']}\n\n{licences}*/")
        parts.append(folder.joinpath(entry["file"]).read_text("utf-8"))
    return "\n".join(parts)


def _named(name: str, label: str) -> dict[str, Any]:
    return {"name": printable(name), "label": printable(label)}


def _metric(name: str) -> dict[str, Any]:
    style = metric_style(name)
    return {
        **_named(name, style.label),
        "scale": style.scale,
        "unit": style.unit,
        "gainScale": style.gain_scale,
        "gainUnit": style.gain_unit,
        "decimals": style.decimals,
        "sign": metric_style(name).sign,
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    low, high = comparison.interval
    return {
        "dataset": printable(comparison.dataset),
        "backbone": printable(comparison.backbone),
        "metric": printable(comparison.metric),
        "method": printable(comparison.method),
        "gain": _rounded(comparison.gain),
        "low": _rounded(low),
        "high": _rounded(high),
        "margin": comparison.evidence.margin,
        "complete": comparison.complete,
        "folds": comparison.folds,
        "word": verdict_word(comparison) if comparison.complete else "incomplete",
        "lines": [printable(line) for line in verdict_of(comparison).lines],
    }


def _subjects(conditions: Conditions) -> dict[str, dict[str, str]]:
    """Return the test subjects of every fold of every data set."""
    subjects: dict[str, dict[str, str]] = {}
    for condition in conditions.values():
        of_dataset = subjects.setdefault(printable(condition.dataset), {})
        for (fold, _), run in condition.runs.items():
            of_dataset[str(fold)] = ", ".join(printable(name) for name in run.test_subjects)
    return subjects


def _curves(results: Results) -> list[dict[str, Any]]:
    """Return training and validation loss per epoch as means of runs, and the loss of guessing."""
    curves = []
    for key, histories in results.training.curves.items():
        dataset, backbone, method = key
        runs = [curve.train for curve in histories]
        if method not in results.methods or not any(map(len, runs)):
            continue
        mean, low, high = mean_and_band(runs)
        curves.append(
            {
                "dataset": printable(dataset),
                "backbone": printable(backbone),
                "method": printable(method),
                "runs": len(runs),
                "mean": _all_rounded(mean),
                "low": _all_rounded(low),
                "high": _all_rounded(high),
                "validation": _all_rounded(mean_and_band([c.validation for c in histories])[0]),
                "guess": guessed_loss(results, key),
            }
        )
    return curves


def _rounded(value: float) -> float:
    return round(value, DIGITS) if math.isfinite(value) else math.nan


def _all_rounded(values: NDArray[np.float64]) -> list[float]:
    return [_rounded(float(value)) for value in values]
