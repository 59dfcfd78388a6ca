"""Read a sensitivity study: AFOR beside entries that change one of its settings each."""

from dataclasses import replace

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.registry import AFOR_DESIGN
from afor.bench.stats.groups import Conditions, FoldRepetition
from afor.bench.study.roles import VARIED_SETTINGS

# The paper's three settings (Sec. V-D) as printed.
LABELS = {"beta2_min": "β₂ min", "w": "direction weight w", "warmup": "warm-up steps"}
NOT_VARIED = (
    "No method here is AFOR with one setting changed (beta2_min, direction_weight or "
    "warmup_steps) beside AFOR itself. The preset `sensitivity` runs such entries: "
    "`afor run sensitivity`."
)


def default_of(setting: str) -> float:
    """Return the design value of a setting, given by its name in tables.

    >>> default_of("w")
    1.0
    """
    (name,) = (name for name, short in VARIED_SETTINGS.items() if short == setting)
    return float(str(AFOR_DESIGN[name]))


def varied_conditions(conditions: Conditions, metric: str) -> Conditions:
    """Return AFOR and its varied entries, each with the runs that all of them have.

    So in an incomplete study all values of a setting are compared on the same folds and
    repetitions.

    Raises:
        ConfigError: Nothing is varied here, or the entries have no run in common.
    """
    members = {
        key: condition
        for key, condition in conditions.items()
        if (condition.role.varied or key[2] == "afor") and condition.has(metric)
    }
    if not any(condition.role.varied for condition in members.values()):
        raise ConfigError(NOT_VARIED)
    common: dict[tuple[str, str], set[FoldRepetition]] = {}
    for (dataset, backbone, _), condition in members.items():
        keys = set(condition.runs)
        common[dataset, backbone] = common.get((dataset, backbone), keys) & keys
    for (dataset, backbone), keys in common.items():
        if not keys:
            raise ConfigError(
                f"{dataset} × {backbone}: no fold is finished for every value yet. "
                "`afor run` goes on."
            )
    return {
        key: replace(condition, runs={k: condition.runs[k] for k in sorted(common[key[:2]])})
        for key, condition in members.items()
    }
