"""Read a sensitivity study by the names of its entries, such as `afor_beta2_min_0.95`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from afor.bench.errors import ConfigError
from afor.bench.fold_values import Cells
from afor.bench.names import metric_scale
from afor.bench.optimizers.registry import AFOR_DESIGN

# The paper's three settings (Sec. V-D): in the name of an entry, as printed, of the optimizer.
SETTINGS = {
    "beta2_min": ("β₂ min", "beta2_min"),
    "w": ("direction weight w", "direction_weight"),
    "warmup": ("warm-up steps", "warmup_steps"),
}
_ENTRY = re.compile(rf"^afor_(?P<setting>{'|'.join(SETTINGS)})_(?P<value>[0-9.]+)$")


@dataclass(frozen=True)
class Sensitivity:
    """One setting varied: (value, mean, SD) per data set, means and SDs in percent."""

    label: str
    default: float
    points: Mapping[str, Sequence[tuple[float, float, float]]]


def is_varied(optimizer: str) -> bool:
    """Say whether a name stands for AFOR with one setting varied.

    >>> is_varied("afor_w_0.5"), is_varied("afor")
    (True, False)
    """
    return _ENTRY.match(optimizer) is not None


def sensitivity_of(cells: Cells, metric: str = "accuracy") -> list[Sensitivity]:
    """Return each varied setting with its values in order; AFOR itself stands at the default."""
    found: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    scale = metric_scale(metric)
    for (dataset, _, name), cell in cells.items():
        match = _ENTRY.match(name)
        if match and cell.has(metric):
            mean, sd, _ = cell.summary(metric)
            points = found.setdefault(match["setting"], {}).setdefault(dataset, [])
            points.append((float(match["value"]), scale * mean, scale * sd))
    if not found:
        raise ConfigError(
            "No entry here varies a setting of AFOR; they are named afor_beta2_min_0.95, "
            "afor_w_0.5 or afor_warmup_50. The preset `sensitivity` runs them."
        )
    several = {d: {b for dd, b, o in cells if dd == d and is_varied(o)} for d, _, _ in cells}
    crowded = [dataset for dataset, backbones in several.items() if len(backbones) > 1]
    if crowded:
        raise ConfigError(f"{crowded[0]} has several backbones; choose one with --backbone.")
    settings = []
    for key, points_by_dataset in found.items():
        label, argument = SETTINGS[key]
        default = float(str(AFOR_DESIGN[argument]))
        for (dataset, _, name), cell in cells.items():
            if name == "afor" and dataset in points_by_dataset and cell.has(metric):
                mean, sd, _ = cell.summary(metric)
                points_by_dataset[dataset].append((default, scale * mean, scale * sd))
        ordered = {dataset: tuple(sorted(row)) for dataset, row in points_by_dataset.items()}
        settings.append(Sensitivity(label, default, ordered))
    return settings
