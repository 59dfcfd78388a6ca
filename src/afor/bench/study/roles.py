"""Decide what each optimizer entry of a study is: an original, a control, or AFOR varied.

The roles come from the entries themselves, so names are free, and results carry them. Names are
read in one function alone, `role_from_name`: for results of earlier versions, which carry no role,
for `--optimizer adam_seed_1` on the command line, and for printed labels.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from afor.bench.study.schema import OptimizerEntry, Study

# The settings that the paper varies (Sec. V-D), and their names in tables.
VARIED_SETTINGS = {"beta2_min": "beta2_min", "direction_weight": "w", "warmup_steps": "warmup"}
_REPLICATE = re.compile(r"^(?P<original>.+)_(?:again\d*|seed_(?P<seed>\d{1,18}))$")
_VARIED = re.compile(rf"^afor_(?P<name>{'|'.join(VARIED_SETTINGS.values())})_(?P<value>[0-9.]+)$")


@dataclass(frozen=True)
class Role:
    """What an optimizer entry is in its study.

    Attributes:
        replicate_of: The entry from which it differs in the seed alone; empty for an original.
        seed: Its own seed; None if it trains under the seed of the study.
        varied: The one setting in which it differs from AFOR, by its name in tables, and its value.
        control: Whether the study marks it as a control.
    """

    replicate_of: str = ""
    seed: int | None = None
    varied: tuple[str, float] | None = None
    control: bool = False


def roles_of(study: Study) -> dict[str, Role]:
    """Return the role of each optimizer entry by its name.

    Entries that differ at most in name and seed are one method. The first of them without a seed
    of its own is the original, the others are replicates of it.

    >>> from afor.bench.study.schema import load_study
    >>> roles_of(load_study("demo"))["adam_seed_1"]
    Role(replicate_of='adam', seed=1, varied=None, control=False)
    """
    originals: list[OptimizerEntry] = []
    for entry in sorted(study.optimizers, key=lambda entry: entry.seed is not None):
        if not any(_is_same_method(entry, original) for original in originals):
            originals.append(entry)
    return {
        entry.name: replace(_role(entry, originals), control=entry.control)
        for entry in study.optimizers
    }


def run_role(roles: Mapping[str, Role], entry: str, label: str) -> Role | None:
    """Return the role of a run; in a search its label is the entry's name and a learning rate."""
    role = roles.get(entry)
    if role is None or not role.replicate_of:
        return role
    return replace(role, replicate_of=role.replicate_of + label.removeprefix(entry))


def role_from_name(name: str) -> Role:
    """Return the role that a name implies, for results that hold no role.

    >>> role_from_name("adam_seed_1").replicate_of, role_from_name("afor_w_0.5").varied
    ('adam', ('w', 0.5))
    """
    if replicate := _REPLICATE.match(name):
        return Role(replicate["original"], int(replicate["seed"]) if replicate["seed"] else None)
    varied = _VARIED.match(name)
    return Role(varied=(varied["name"], float(varied["value"])) if varied else None)


def _role(entry: OptimizerEntry, originals: list[OptimizerEntry]) -> Role:
    original = next(other for other in originals if _is_same_method(entry, other))
    if original is not entry:
        return Role(original.name, entry.seed)
    plain = OptimizerEntry(name=entry.use, use=entry.use)
    if entry.seed is not None and entry.name != entry.use and _is_same_method(entry, plain):
        return Role(entry.use, entry.seed)  # its original may be in another store
    return Role(seed=entry.seed, varied=_varied(entry, originals))


def _varied(entry: OptimizerEntry, originals: list[OptimizerEntry]) -> tuple[str, float] | None:
    """Return the one setting in which an entry differs from the AFOR of its study, if it is one."""
    references = [other for other in originals if other.name == "afor" or not other.settings]
    for setting, value in entry.settings.items():
        if entry.use != "afor" or setting not in VARIED_SETTINGS:
            continue
        rest = {key: other for key, other in entry.settings.items() if key != setting}
        without = entry.model_copy(update={"settings": rest})
        is_number = isinstance(value, int | float)
        if is_number and any(_is_same_method(without, other) for other in references):
            return VARIED_SETTINGS[setting], float(value)
    return None


def _is_same_method(one: OptimizerEntry, other: OptimizerEntry) -> bool:
    return _method(one) == _method(other)


def _method(entry: OptimizerEntry) -> Mapping[str, object]:
    """Return what decides the training of an entry besides its seed."""
    return entry.model_dump(exclude={"name", "seed", "control"})
