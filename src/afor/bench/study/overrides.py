"""A study as its command line changes it: another data set, backbone or length, no file to edit.

    text, where = study_text("ablation")
    toml = overridden(text, where, Overrides(datasets=["synthetic"], epochs=12))
    study = parse_study(toml)                # called ablation-synthetic

The changed study is TOML again. A store keeps it, so that the store describes itself.
"""

import difflib
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.data.catalog import NAMES, get_dataset
from afor.bench.optimizers.registry import OPTIMIZERS
from afor.bench.study.roles import role_from_name
from afor.bench.study.schema import (
    PAPER_BACKBONES,
    Training,
    check_study,
    paper_backbone,
    preset_text,
    read_toml,
)
from afor.bench.study.toml_io import updated_toml
from afor.bench.training.execute import DEFAULT_TRAINER

# Where a data set that a study does not have takes its options, rates and batch size from.
CATALOGUE = ("paper", "physionet", "demo")
LISTS = ("datasets", "backbones", "optimizers")
NAME_LENGTH = 80  # of a study, as in config.py

Content = dict[str, Any]


@dataclass(frozen=True)
class Overrides:
    """What a command line changes. Entries are NAME, or NAME=WHAT for a name of one's own."""

    datasets: Sequence[str] = ()
    data_options: Sequence[str] = ()  # KEY=VALUE, or DATASET.KEY=VALUE
    backbones: Sequence[str] = ()
    optimizers: Sequence[str] = ()
    epochs: int | None = None
    draws: int | None = None
    settings: Sequence[str] = ()  # KEY=VALUE for anything else a study may say

    def words(self) -> list[str]:
        """Return the command line's words for it; empty when nothing changes."""
        given = {
            "--dataset": self.datasets,
            "--data-option": self.data_options,
            "--backbone": self.backbones,
            "--optimizer": self.optimizers,
            "--epochs": () if self.epochs is None else (str(self.epochs),),
            "--draws": () if self.draws is None else (str(self.draws),),
            "--set": self.settings,
        }
        return [word for option, values in given.items() for v in values for word in (option, v)]


def overridden(text: str, where: str, changes: Overrides) -> str:
    """Return a study's TOML with the changes; ConfigError names the nearest valid word.

    >>> made = overridden(preset_text("demo"), "demo", Overrides(epochs=3, backbones=["acrnn"]))
    >>> tomllib.loads(made)["name"], tomllib.loads(made)["training"]["max_epochs"]
    ('demo-acrnn', 3)
    """
    words = changes.words()
    if not words:
        return text
    content = read_toml(text, where)
    check_study(content, where, text)  # a mistake in the file is told with its line
    original = content["name"]
    plain_lists = [key for key in LISTS if any(isinstance(e, str) for e in content[key])]
    for key in LISTS:
        content[key] = [{"name": e} if isinstance(e, str) else dict(e) for e in content[key]]
    _change_entries(content, changes)
    _change_training(content, changes)
    for pair in changes.data_options:
        _set_data_option(content, pair)
    content["name"] = _new_name(original, changes)
    content["description"] = f"The study {original} with {shlex.join(words)}."
    for pair in changes.settings:
        key, value = _pair("--set", pair)
        _set(content, key, value)
    check_study(content, f"{where} with {shlex.join(words)}")
    if content.get("trainer", DEFAULT_TRAINER) == DEFAULT_TRAINER:
        _check_data_options(content)
    for section in plain_lists:
        content[section] = [e["name"] if list(e) == ["name"] else e for e in content[section]]
    return f"# The study {original}, changed by its command line.\n{updated_toml(text, content)}"


def _change_entries(content: Content, changes: Overrides) -> None:
    free = content.get("trainer", DEFAULT_TRAINER) != DEFAULT_TRAINER  # names mean what it likes
    if changes.backbones:
        content["backbones"] = [
            _entry("backbone", given, content["backbones"], PAPER_BACKBONES, free)
            for given in changes.backbones
        ]
    if changes.optimizers:
        content["optimizers"] = _optimizers(changes.optimizers, content["optimizers"], free)
    if changes.datasets:
        content["datasets"] = [_dataset(g, content["datasets"], free) for g in changes.datasets]
    for dataset in content["datasets"]:
        rates = dataset.get("lr", {})
        for backbone in content["backbones"]:
            use = backbone.get("use", "")
            use = use if use in rates else paper_backbone(use)
            if use in rates:  # a network under another name keeps the rate of what it is
                dataset["lr"] = rates = {backbone["name"]: rates[use], **rates}


def _change_training(content: Content, changes: Overrides) -> None:
    if changes.epochs is not None:
        training = content["training"] = dict(content.get("training", {}))
        before = Training(**training)
        training["max_epochs"] = changes.epochs
        if before.patience >= before.max_epochs:  # no early stopping: none with more epochs either
            training["patience"] = max(before.patience, changes.epochs)
    if changes.draws is not None:
        protocol = content["protocol"] = dict(content.get("protocol", {}))
        protocol["draws"] = changes.draws
        protocol.pop("only_draws", None)


def _entry(
    kind: str, given: str, there: Sequence[Content], known: Iterable[str], free: bool
) -> Content:
    """Return the study's own entry, or a new one of a known name or of `module:Class`."""
    name, _, use = given.partition("=")
    for entry in there:
        if entry["name"] == name and use in ("", entry.get("use", name)):
            return entry
    accepted = [*dict.fromkeys([*(entry["name"] for entry in there), *known])]
    if not free and (use or name) not in accepted and ":" not in given:
        others = "moabb:Name" if kind == "dataset" else "module:Class"
        raise ConfigError(
            f"--{kind} {given}: there is no {kind} {use or name!r}."
            f"{_nearest(use or name, accepted)} Accepted: {', '.join(accepted)}, {others}; "
            f"NAME={kind.upper()} gives it a name of its own."
        )
    return {"name": name, "use": use} if use else {"name": name}


def _optimizers(given: Sequence[str], there: Sequence[Content], free: bool) -> list[Content]:
    names = {entry["name"] for entry in there}
    found = []
    for word in given:
        role = role_from_name(word)
        if role.seed is not None and word not in names:  # NAME_seed_N asks for a control of NAME
            original = _entry("optimizer", role.copy_of, there, OPTIMIZERS, free)
            use = original.get("use", original["name"])
            found.append({**original, "name": word, "use": use, "seed": role.seed})
        else:
            found.append(_entry("optimizer", word, there, OPTIMIZERS, free))
    return found


def _dataset(given: str, there: Sequence[Content], free: bool) -> Content:
    """Return the study's own entry, or one with the settings of the preset that has the set."""
    new = _entry("dataset", given, there, (*NAMES, *_catalogue()), free)
    if new in there:
        return new
    use = str(new.get("use") or new["name"])
    return {**_catalogue().get(use, {}), **new}


def _catalogue() -> dict[str, Content]:
    found: dict[str, Content] = {}
    for preset in CATALOGUE:
        for entry in tomllib.loads(preset_text(preset))["datasets"]:
            found.setdefault(entry["name"], entry)
    return found


def _set_data_option(content: Content, pair: str) -> None:
    key, value = _pair("--data-option", pair)
    datasets = content["datasets"]
    names = [entry["name"] for entry in datasets]
    first, dot, rest = key.partition(".")
    if dot and first in names:
        chosen, key = datasets[names.index(first)], rest
    elif len(datasets) == 1 and not dot:
        chosen = datasets[0]
    else:
        raise ConfigError(
            f"--data-option {pair}: say of which data set, as DATASET.KEY=VALUE."
            f"{_nearest(first, names) if dot else ''} Data sets here: {', '.join(names)}."
        )
    chosen["options"] = {**chosen.get("options", {}), key: value}


def _check_data_options(content: Content) -> None:
    """Check the options of every data set before anything is read; MOABB's only when it is used."""
    for entry in content["datasets"]:
        use = entry.get("use", entry["name"])
        if not use.startswith("moabb:"):
            get_dataset(use).parse(entry.get("options", {}))


def _set(content: Content, key: str, value: Any) -> None:
    """Put a value in its place; entries of lists go by their names."""
    if key in ("training.lr", "training.batch_size"):
        for entry in content["datasets"]:  # said of all training, it holds for every data set
            entry.pop(key.removeprefix("training."), None)
    here, rest = content, key
    first, dot, inner = key.partition(".")
    if dot and first in LISTS:
        names = [entry["name"] for entry in content[first]]
        name = max((n for n in names if inner.startswith(f"{n}.")), key=len, default="")
        if not name:
            asked = inner.partition(".")[0]
            raise ConfigError(
                f"--set {key}: {first} has no {asked!r}.{_nearest(asked, names)} "
                f"Accepted: {first}.NAME.KEY=VALUE with {', '.join(names)}."
            )
        here, rest = content[first][names.index(name)], inner.removeprefix(f"{name}.")
    *tables, last = rest.split(".")
    for table in tables:
        inside = here.get(table, {})
        if not isinstance(inside, Mapping):
            raise ConfigError(f"--set {key}: {table!r} is no table of a study, it has no keys.")
        here[table] = dict(inside)
        here = here[table]
    here[last] = value


def _pair(option: str, text: str) -> tuple[str, Any]:
    """Read KEY=VALUE; the value is TOML, and what is no TOML is text."""
    key, equals, value = text.partition("=")
    if not (equals and key.strip() and value.strip()):
        raise ConfigError(f"{option} {text}: expected KEY=VALUE, such as shift=1.0 or kind=sleep.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return key.strip(), value.strip()


def _new_name(name: str, changes: Overrides) -> str:
    """Return another name than the study's, so that their stores do not clash."""
    parts = [given.partition("=")[0] for given in (*changes.datasets, *changes.backbones)]
    made = "-".join([name, *parts] if parts else [name, "changed"])
    return re.sub(r"[^A-Za-z0-9_.-]", "-", made)[:NAME_LENGTH]


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""
