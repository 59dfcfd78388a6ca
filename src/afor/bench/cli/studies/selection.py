"""Find the study that a command works on, with the changes its options make."""

from dataclasses import dataclass, fields
from pathlib import Path

import typer

from afor.bench.common.devices import cores as cores
from afor.bench.common.devices import keep_freed_memory
from afor.bench.common.errors import ConfigError
from afor.bench.common.text import counted
from afor.bench.execution.forecast import StepTimer
from afor.bench.execution.sources import available_part
from afor.bench.store.database import open_store
from afor.bench.store.locations import store_path
from afor.bench.study.named_code import refuse_stored_code
from afor.bench.study.overrides import Overrides, overridden
from afor.bench.study.schema import (
    Study,
    parse_study,
    preset_names,
    read_toml,
    study_file,
    study_text,
)
from afor.bench.study.toml_io import updated_toml


@dataclass(frozen=True, kw_only=True)
class StudyOptions(Overrides):
    """What `plan` and `run` know of the study and of this machine.

    Args:
        store: Store file of the results. [default: results/NAME.db]
        lr_from: Take the learning rates from a finished search: a study's name, its TOML file or a
            store file.
        available: Leave out the data sets that are absent; the study keeps its name.
        device: Train on this kind of device instead of the study's: auto, cpu, cuda (all GPUs),
            cuda:1 (one of them) or mps. [default: the study's]
    """

    store: Path | None = None
    root: list[str] | None = None
    lr_from: str = ""
    trust: bool = False
    available: bool = False
    device: str = ""


@dataclass(frozen=True)
class SelectedStudy:
    """A study with the changes that a command makes."""

    study: Study
    toml: str
    words: list[str]  # of the command line: its changes, and the other options of `plan` and `run`
    is_changed: bool


def select_study(name: str, options: StudyOptions) -> SelectedStudy:
    """Return the study that `plan` or `run` works on; raise ConfigError if an option is wrong."""
    toml, where = changed_text(name, options, options.store, trust=options.trust)
    toml = _on_this_machine(toml, where, options)
    study = with_roots(parse_study(toml, where), options.root)
    if options.available:
        study = available_part(study)
    words = options.words()
    return SelectedStudy(study, toml, words + _other_words(options), bool(words))


def _other_words(options: StudyOptions) -> list[str]:
    """Return the options that change no study, as they stand on the command line."""
    words: list[str] = []
    for field in fields(options)[len(fields(Overrides)) :]:
        value, name = getattr(options, field.name), f"--{field.name.replace('_', '-')}"
        if value is True:
            words.append(name)
        elif value:
            for each in value if isinstance(value, list) else [value]:
                words += [name, str(each)]
    return words


def changed_text(
    name: str, changes: Overrides, store: Path | None = None, *, trust: bool
) -> tuple[str, str]:
    """Return a study's TOML with the changes made, and what to call it in messages.

    Args:
        name: What `named_study` takes.
        changes: What the options of the command change.
        store: The store that `--store` names.
        trust: Accept a study from a store also if it names code outside this package.
    """
    text, where = named_study(name, store, trust=trust)
    return overridden(text, where, changes), where


def resolve_study(name: str, *, trust: bool = False) -> Study:
    """Return the study of a name, as all commands understand it; see `named_study`."""
    return parse_study(*named_study(name, trust=trust))


def named_study(name: str, store: Path | None = None, *, trust: bool) -> tuple[str, str]:
    """Return the TOML of a study, and what to call it in messages.

    Args:
        name: A preset, a TOML file with or without its suffix, a store file that holds one study,
            or the name of a study whose store is here, such as `ablation-synthetic`.
        store: The store that `--store` names.
        trust: Accept a study from a store also if it names code outside this package.

    Raises:
        ConfigError: There is no such study, or the store holds several.
    """
    is_store = name.endswith(".db")
    path = Path(name) if is_store else store_path(name, store)
    stored = None
    is_ours = name in preset_names() or (not is_store and study_file(name) is not None)
    if is_store or (not is_ours and path.is_file()):
        with open_store(path) as opened:
            studies = opened.studies()
        if is_store and len(studies) != 1:
            raise ConfigError(
                f"{path} holds {counted(len(studies), 'study')}: {', '.join(studies) or 'none'}. "
                f"Name the study instead: a preset or its TOML file."
            )
        stored = next(iter(studies.values())) if is_store else studies.get(name)
    if stored is None:
        return study_text(name)
    if not trust:
        refuse_stored_code(parse_study(stored, str(path)), str(path))
    return stored, str(path)


def _on_this_machine(toml: str, where: str, options: StudyOptions) -> str:
    """Set the device that the options name; the study keeps its name.

    The kind of device is part of the keys of its runs.
    """
    if not options.device:
        return toml
    return updated_toml(toml, {**read_toml(toml, where), "device": options.device})


def with_roots(study: Study, roots: list[str] | None) -> Study:
    """Set the folders of a study's data sets from NAME=FOLDER; folders change no run."""
    folders = dict.fromkeys((entry.name for entry in study.datasets), "")
    for pair in roots or ():
        name, equals, folder = pair.partition("=")
        if not equals or name not in folders:
            raise ConfigError(
                f"--root {pair}: expected NAME=FOLDER with a data set of the study: "
                f"{', '.join(folders)}."
            )
        folders[name] = folder
    entries = [
        entry.model_copy(update={"root": folders[entry.name] or entry.root})
        for entry in study.datasets
    ]
    return study.model_copy(update={"datasets": entries})


def step_timer() -> StepTimer:
    """Return a timer of steps, which says once that it is at work."""
    keep_freed_memory()  # as in the workers
    said: list[str] = []

    def say(what: str) -> None:
        if not said:
            typer.echo("Timing steps of each network and optimizer on this machine ...", err=True)
        said.append(what)

    return StepTimer(None, say)
