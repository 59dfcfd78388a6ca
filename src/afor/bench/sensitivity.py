"""Read a sensitivity study by the names of its entries, such as `afor_beta2_min_0.95`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from afor.bench.errors import ConfigError
from afor.bench.fold_values import Cells
from afor.bench.names import metric_scale
from afor.bench.noise_floor import noise_floor
from afor.bench.optimizers.registry import AFOR_DESIGN

# The paper's three settings (Sec. V-D): in the name of an entry, as printed, of the optimizer.
SETTINGS = {
    "beta2_min": ("β₂ min", "beta2_min"),
    "w": ("direction weight w", "direction_weight"),
    "warmup": ("warm-up steps", "warmup_steps"),
}
NOT_VARIED = (
    "No entry here varies a setting of AFOR beside AFOR itself; such entries are named "
    "afor_beta2_min_0.95, afor_w_0.5 or afor_warmup_50. The preset `sensitivity` runs them: "
    "`afor run sensitivity`."
)
_ENTRY = re.compile(rf"^afor_(?P<setting>{'|'.join(SETTINGS)})_(?P<value>[0-9.]+)$")


@dataclass(frozen=True)
class Sensitivity:
    """One setting varied: (value, mean, SD) per data set, means and SDs in percent."""

    label: str
    default: float
    points: Mapping[str, Sequence[tuple[float, float, float]]]
    noise: Mapping[str, float] = field(default_factory=dict)  # noise floor per data set, percent


def varied_setting(optimizer: str) -> tuple[str, float] | None:
    """Return which setting a name varies and its value.

    >>> varied_setting("afor_w_0.5"), varied_setting("afor")
    (('w', 0.5), None)
    """
    match = _ENTRY.match(optimizer)
    return (match["setting"], float(match["value"])) if match else None


def is_varied(optimizer: str) -> bool:
    """Say whether a name stands for AFOR with one setting varied."""
    return varied_setting(optimizer) is not None


def default_of(setting: str) -> float:
    """Return the design value of a setting.

    >>> default_of("w")
    1.0
    """
    return float(str(AFOR_DESIGN[SETTINGS[setting][1]]))


def sensitivity_of(cells: Cells, metric: str = "accuracy") -> list[Sensitivity]:
    """Return each varied setting with its values in order; AFOR itself stands at the default."""
    found: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    scale = metric_scale(metric)
    for (dataset, _, name), cell in cells.items():
        varied = varied_setting(name)
        if varied and cell.has(metric):
            mean, sd, _ = cell.summary(metric)
            points = found.setdefault(varied[0], {}).setdefault(dataset, [])
            points.append((varied[1], scale * mean, scale * sd))
    if not found:
        raise ConfigError(NOT_VARIED)
    several = {d: {b for dd, b, o in cells if dd == d and is_varied(o)} for d, _, _ in cells}
    crowded = [dataset for dataset, backbones in several.items() if len(backbones) > 1]
    if crowded:
        raise ConfigError(f"{crowded[0]} has several backbones; choose one with --backbone.")
    floors = {d: noise_floor(cells, d, b, metric) for d, bs in several.items() for b in bs}
    noise = {dataset: scale * floor.bound for dataset, floor in floors.items() if floor}
    settings = []
    for key, points_by_dataset in found.items():
        default = default_of(key)
        for (dataset, _, name), cell in cells.items():
            if name == "afor" and dataset in points_by_dataset and cell.has(metric):
                mean, sd, _ = cell.summary(metric)
                points_by_dataset[dataset].append((default, scale * mean, scale * sd))
        ordered = {dataset: tuple(sorted(row)) for dataset, row in points_by_dataset.items()}
        settings.append(Sensitivity(SETTINGS[key][0], default, ordered, noise))
    return settings
