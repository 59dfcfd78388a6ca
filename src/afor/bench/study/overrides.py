"""Change a study from the command line: data sets, backbones, length, any setting.

    text, where = study_text("ablation")
    toml = overridden(text, where, Overrides(dataset=["synthetic"], epochs=12))
    study = parse_study(toml)                # called ablation-synthetic

The changed study is TOML again. A store keeps it, so that the store describes itself.
"""

import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from afor.bench.common.errors import ConfigError
from afor.bench.common.suggest import did_you_mean
from afor.bench.data.catalog import NAMES, get_dataset
from afor.bench.optimizers.registry import OPTIMIZERS
from afor.bench.study.roles import role_from_name
from afor.bench.study.schema import (
    PAPER_BACKBONES,
    check_study,
    expand_methods,
    paper_backbone,
    preset_text,
    read_toml,
)
from afor.bench.study.toml_io import updated_toml
from afor.bench.training.run_spec import DEFAULT_TRAINER, Training

# Presets from which a data set that is new to a study takes its options, rates and batch size.
CATALOGUE = ("paper", "physionet", "demo-synthetic")
LISTS = ("datasets", "backbones", "optimizers")
NAME_LENGTH = 80  # maximum length of a study's name, as in schema.py

Content = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """Changes of a study, which `study`, `plan` and `run` take as options.

    Args:
        dataset: Use this data set instead of the study's: NAME, or NAME=DATASET; repeatable.
        backbone: Use this backbone instead of the study's; repeatable.
        optimizer: Use this optimizer instead of the study's; afor_seed_1 is AFOR with seed 1;
            repeatable.
        epochs: Maximum number of epochs.
        setting: Set any other key of the study: KEY=VALUE, such as training.lr=1e-3,
            protocol.repetitions=5 or datasets.synthetic.options.shift=2.0; repeatable.
    """

    # The heading of the options in the help of a command.
    PANEL: ClassVar[str] = "Change the study (its name then says so: ablation-synthetic-eegnet)"
    dataset: list[str] | None = None
    backbone: list[str] | None = None
    optimizer: list[str] | None = None
    epochs: int | None = None
    setting: list[str] | None = None

    def words(self) -> list[str]:
        """Return the arguments of the command line; empty if nothing changes."""
        options = {
            "--dataset": self.dataset,
            "--backbone": self.backbone,
            "--optimizer": self.optimizer,
            "--epochs": None if self.epochs is None else [str(self.epochs)],
            "--set": self.setting,
        }
        return [word for name, given in options.items() for v in given or () for word in (name, v)]


def overridden(text: str, where: str, changes: Overrides) -> str:
    """Return a study's TOML with the changes and the comments of what stays.

    Messages call the text `where`.

    Raises:
        ConfigError: A change is not valid; the message has the nearest valid name.

    >>> made = overridden(preset_text("demo"), "demo", Overrides(epochs=3, backbone=["acrnn"]))
    >>> tomllib.loads(made)["name"], tomllib.loads(made)["training"]["max_epochs"]
    ('demo-acrnn', 3)
    """
    words = changes.words()
    if not words:
        return text
    content = expand_methods(read_toml(text, where), where)
    check_study(content, where, text)  # mistakes in the file are reported with their line
    original = content["name"]
    plain_lists = [key for key in LISTS if any(isinstance(e, str) for e in content[key])]
    for key in LISTS:
        content[key] = [{"name": e} if isinstance(e, str) else dict(e) for e in content[key]]
    _change_entries(content, changes)
    content["name"] = _new_name(original, changes)
    content["description"] = f"The study {original} with {shlex.join(words)}."
    epochs = [] if changes.epochs is None else [f"training.max_epochs={changes.epochs}"]
    for pair in (*epochs, *(changes.setting or ())):
        key, value = key_value("--set", pair)
        _set(content, key, value)
    check_study(content, f"{where} with {shlex.join(words)}")
    if content.get("trainer", DEFAULT_TRAINER) == DEFAULT_TRAINER:
        _check_data_options(content)
    for section in plain_lists:
        content[section] = [e["name"] if list(e) == ["name"] else e for e in content[section]]
    return f"# The study {original}, changed by its command line.\n{updated_toml(text, content)}"


def _change_entries(content: Content, changes: Overrides) -> None:
    # A custom trainer interprets names itself.
    any_name = content.get("trainer", DEFAULT_TRAINER) != DEFAULT_TRAINER
    for key, words, make_entry in (
        ("backbones", changes.backbone, _backbone),
        ("optimizers", changes.optimizer, _optimizer),
        ("datasets", changes.dataset, _dataset),
    ):
        if words:
            content[key] = [make_entry(word, content[key], any_name) for word in words]
    for dataset in content["datasets"]:
        rates = dataset.get("lr", {})
        for backbone in content["backbones"]:
            use = backbone.get("use", "")
            use = use if use in rates else paper_backbone(use)
            if use in rates:  # a renamed network keeps its rate
                dataset["lr"] = rates = {backbone["name"]: rates[use], **rates}


def _entry(
    section: str, word: str, entries: Sequence[Content], registered: Iterable[str], any_name: bool
) -> Content:
    """Return the study's own entry, or a new one of a registered name or `module:Class`."""
    name, _, use = word.partition("=")
    for entry in entries:
        if entry["name"] == name and use in ("", entry.get("use", name)):
            return entry
    accepted = [*dict.fromkeys([*(entry["name"] for entry in entries), *registered])]
    if not any_name and (use or name) not in accepted and ":" not in word:
        others = "moabb:Name" if section == "dataset" else "module:Class"
        raise ConfigError(
            f"--{section} {word}: there is no {section} {use or name!r}."
            f"{did_you_mean(use or name, accepted)} Accepted: {', '.join(accepted)}, {others}; "
            f"NAME={section.upper()} gives it another name."
        )
    return {"name": name, "use": use} if use else {"name": name}


def _backbone(word: str, entries: Sequence[Content], any_name: bool) -> Content:
    return _entry("backbone", word, entries, PAPER_BACKBONES, any_name)


def _optimizer(word: str, entries: Sequence[Content], any_name: bool) -> Content:
    role = role_from_name(word)
    if role.seed is None or any(entry["name"] == word for entry in entries):
        return _entry("optimizer", word, entries, OPTIMIZERS, any_name)
    # NAME_seed_N asks for a control of NAME.
    original = _entry("optimizer", role.replicate_of, entries, OPTIMIZERS, any_name)
    use = original.get("use", original["name"])
    return {**original, "name": word, "use": use, "seed": role.seed}


def _dataset(word: str, entries: Sequence[Content], any_name: bool) -> Content:
    """Return the study's own entry, or one with the settings of the preset that has it."""
    entry = _entry("dataset", word, entries, (*NAMES, *_catalogue()), any_name)
    if entry in entries:
        return entry
    use = str(entry.get("use") or entry["name"])
    return {**_catalogue().get(use, {}), **entry}


def _catalogue() -> dict[str, Content]:
    datasets: dict[str, Content] = {}
    for preset in CATALOGUE:
        for entry in tomllib.loads(preset_text(preset))["datasets"]:
            datasets.setdefault(entry["name"], entry)
    return datasets


def _check_data_options(content: Content) -> None:
    """Check the options of every data set; those of other packages when their data are read."""
    for entry in content["datasets"]:
        use = entry.get("use", entry["name"])
        if ":" not in use:
            get_dataset(use).parse(entry.get("options", {}))


def _set(content: Content, key: str, value: Any) -> None:
    """Set the value of a dotted key; entries of lists are addressed by their names."""
    if key in ("training.lr", "training.batch_size"):
        for entry in content["datasets"]:  # a setting of all training replaces those of data sets
            entry.pop(key.removeprefix("training."), None)
    if key == "training.lr":
        content.pop("lr_search", None)
    if key == "training.max_epochs" and isinstance(value, int):
        before = Training(**content.get("training", {}))
        if before.patience >= before.max_epochs:  # there was no early stopping: keep it so
            _set(content, "training.patience", max(before.patience, value))
    if key == "protocol.repetitions":  # all of them
        content.get("protocol", {}).pop("only_repetitions", None)
    target, remaining_key = content, key
    first, dot, inner = key.partition(".")
    first = "optimizers" if first == "methods" else first
    if dot and first in LISTS:
        names = [entry["name"] for entry in content[first]]
        name = max((n for n in names if inner.startswith(f"{n}.")), key=len, default="")
        if not name:
            unknown = inner.partition(".")[0]
            raise ConfigError(
                f"--set {key}: {first} has no {unknown!r}.{did_you_mean(unknown, names)} "
                f"Accepted: {first}.NAME.KEY=VALUE with {', '.join(names)}."
            )
        target, remaining_key = content[first][names.index(name)], inner.removeprefix(f"{name}.")
    *tables, last = remaining_key.split(".")
    for table in tables:
        inside = target.get(table, {})
        if not isinstance(inside, Mapping):
            raise ConfigError(f"--set {key}: {table!r} is no table of a study, it has no keys.")
        target[table] = dict(inside)
        target = target[table]
    target[last] = value


def key_value(option: str, text: str) -> tuple[str, Any]:
    """Parse KEY=VALUE of an option; a value that is not TOML is text. Raises ConfigError.

    >>> key_value("--set", "training.lr=1e-3")
    ('training.lr', 0.001)
    """
    key, equals, value = text.partition("=")
    if not (equals and key.strip() and value.strip()):
        raise ConfigError(f"{option} {text}: expected KEY=VALUE, such as shift=1.0 or kind=sleep.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return key.strip(), value.strip()


def _new_name(name: str, changes: Overrides) -> str:
    """Return a new name for the study, so that it gets a store of its own."""
    chosen = [*(changes.dataset or ()), *(changes.backbone or ())]
    words = [word.partition("=")[0] for word in chosen]
    new_name = "-".join([name, *words] if words else [name, "changed"])
    return re.sub(r"[^A-Za-z0-9_.-]", "-", new_name)[:NAME_LENGTH]
