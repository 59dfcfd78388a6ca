"""Give access to the numbers that the paper prints, each with its table."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

TableName = Literal["results", "ablation"]


@dataclass(frozen=True)
class PublishedResult:
    """One printed result, in percent as printed."""

    dataset: str
    backbone: str
    optimizer: str
    metric: str
    mean: float
    sd: float
    best: bool
    second: bool
    significant: bool


@cache
def published() -> Mapping[str, Any]:
    """Return the data file: sections with a `place` (in the paper) and `cells`."""
    return tomllib.loads(files("afor.bench.stats").joinpath("published.toml").read_text("utf-8"))


@cache
def published_results(
    table: TableName = "results",
) -> Mapping[tuple[str, str, str, str], PublishedResult]:
    """Return the results of Table III or IV by (dataset, backbone, optimizer, metric).

    >>> published_results()["deap", "eegnet", "adam", "accuracy"].mean
    60.9
    """
    results = {}
    for dataset, backbones in published()[table]["cells"].items():
        for backbone, optimizers in backbones.items():
            for optimizer, metrics in optimizers.items():
                for metric, (mean, sd, *rest) in metrics.items():
                    marks = rest[0].split() if rest else []
                    key = (dataset, backbone, optimizer, metric)
                    is_marked = ("best" in marks, "second" in marks, "*" in marks)
                    results[key] = PublishedResult(*key, mean, sd, *is_marked)
    return results
