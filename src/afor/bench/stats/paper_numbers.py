"""Give access to the numbers that the paper prints, each with its table."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from afor.bench.stats.labels import PAPER_METRICS

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


@dataclass(frozen=True)
class SameMethod:
    """One method that the paper prints under two names. Percent."""

    dataset: str
    backbone: str
    metric: str
    fixed: float  # AFOR with beta2 = 0.999 throughout, Table IV
    adamw: float  # AdamW with beta2 = 0.999, Table III
    afor: float  # both tables

    @property
    def between_replicates(self) -> float:
        """Difference between the two printed results of one method."""
        return round(self.fixed - self.adamw, 2)

    @property
    def margin(self) -> float:
        """Gain of the adaptation over the same code with a fixed beta2."""
        return round(self.afor - self.fixed, 2)


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


def same_method_twice() -> list[SameMethod]:
    """Return the paper's own A/A control: its fixed-0.999 ablation is AdamW.

    AFOR with beta2_min = beta2_init = 0.999 takes AdamW's steps, so the two rows should agree up
    to the noise of the protocol. They differ by up to several times the gain claimed for the
    adaptation over the fixed coefficient.
    """
    main, ablation = published_results(), published_results("ablation")
    return [
        SameMethod(
            dataset,
            backbone,
            metric,
            fixed=ablation[dataset, backbone, "afor_fixed_0999", metric].mean,
            adamw=main[dataset, backbone, "adamw", metric].mean,
            afor=main[dataset, backbone, "afor", metric].mean,
        )
        for dataset, backbones in published()["ablation"]["cells"].items()
        for backbone in backbones
        for metric in PAPER_METRICS
    ]
