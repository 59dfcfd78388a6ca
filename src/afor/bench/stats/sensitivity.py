"""Read a sensitivity study by the names of its entries, such as `afor_beta2_min_0.95`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.registry import AFOR_DESIGN
from afor.bench.stats.groups import Conditions, mean_of_draws, mean_sd
from afor.bench.stats.labels import metric_scale
from afor.bench.stats.noise_floor import noise_floor

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


def sensitivity_of(conditions: Conditions, metric: str = "accuracy") -> list[Sensitivity]:
    """Return each varied setting with its values in order; AFOR itself stands at the default.

    While a study is incomplete, means are taken over the folds and draws that all entries of a
    data set have: over others, two values would be compared on different people.
    """
    members = {
        key: condition
        for key, condition in conditions.items()
        if (is_varied(key[2]) or key[2] == "afor") and condition.has(metric)
    }
    if not any(is_varied(name) for _, _, name in members):
        raise ConfigError(NOT_VARIED)
    scale = metric_scale(metric)
    networks: dict[str, str] = {}
    for dataset, backbone, name in members:
        if is_varied(name) and networks.setdefault(dataset, backbone) != backbone:
            raise ConfigError(f"{dataset} has several backbones; choose one with --backbone.")
    found: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    noise: dict[str, float] = {}
    for dataset, backbone in networks.items():
        block = {
            o: condition
            for (d, b, o), condition in members.items()
            if (d, b) == (dataset, backbone)
        }
        common = set.intersection(*(set(condition.runs) for condition in block.values()))
        if not common:
            raise ConfigError(
                f"{dataset}: no fold is finished for every value yet. `afor run` goes on."
            )
        points = {
            name: mean_sd(
                [*mean_of_draws({k: condition.value(k, metric) for k in common}).values()]
            )
            for name, condition in block.items()
        }
        for name, (mean, sd, _) in points.items():
            if varied := varied_setting(name):
                row = found.setdefault(varied[0], {}).setdefault(dataset, [])
                row.append((varied[1], scale * mean, scale * sd))
        if "afor" in points:
            mean, sd, _ = points["afor"]
            for setting, rows in found.items():
                if dataset in rows:
                    rows[dataset].append((default_of(setting), scale * mean, scale * sd))
        if floor := noise_floor(conditions, dataset, backbone, metric):
            noise[dataset] = scale * floor.bound
    return [
        Sensitivity(
            SETTINGS[setting][0],
            default_of(setting),
            {dataset: tuple(sorted(row)) for dataset, row in rows.items()},
            noise,
        )
        for setting, rows in found.items()
    ]
