"""A study: what is trained on what, read from TOML and checked before anything runs.

    study = load_study("paper")            # a preset
    study = load_study("my-study.toml")    # a file; `afor study paper > my-study.toml` starts one

Every message about a bad value names the key, its line and the nearest valid key.
"""

import difflib
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    model_validator,
)

from afor.bench.errors import ConfigError
from afor.bench.toml_lines import line_of

NETWORKS = ("eegnet", "acrnn", "nsal_dgat", "hslt")  # Sec. IV-D, by their own publications
AUTHORS = "_authors"  # ends the name of a network that is as the AFOR authors released it
PAPER_BACKBONES = (*NETWORKS, *(f"{name}{AUTHORS}" for name in NETWORKS))
DEFAULT_TRAINER = "afor.bench.execute:train_run"

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:+-]*$", max_length=80)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Entry(_Table):
    """A thing with a name of its own; `use` says what it is when the name does not."""

    name: Name
    use: Name = ""

    @model_validator(mode="before")
    @classmethod
    def _fill_use(cls, given: Any) -> Any:
        if isinstance(given, dict) and "use" not in given and "name" in given:
            return {**given, "use": given["name"]}
        return given


class DatasetEntry(_Entry):
    """A data set with its preprocessing, its folds and what is trained on it in its own way."""

    root: str = ""  # folder of the files; empty: NAME in $AFOR_DATA or ./data
    options: dict[str, Any] = Field(default_factory=dict)
    subjects: list[str] | None = None  # those found; `complete = true` insists on all
    complete: bool = False
    blocks: Annotated[int, Field(ge=2)] | None = None  # test blocks; left out: one subject a fold
    batch_size: Annotated[int, Field(ge=2)] | None = None
    # By backbone; a rate for `eegnet` also serves `eegnet_authors`, unless that has its own.
    lr: dict[str, Rate] = Field(default_factory=dict)


class BackboneEntry(_Entry):
    """A network with its settings."""

    settings: dict[str, Any] = Field(default_factory=dict)


class OptimizerEntry(_Entry):
    """An optimizer with its settings; another `seed` makes a control of the same optimizer."""

    settings: dict[str, Any] = Field(default_factory=dict)
    lr: Rate | None = None
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    seed: NonNegativeInt | None = None


class Training(_Table):
    """What all runs share unless a data set or an optimizer says otherwise."""

    lr: Rate = 1e-3
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-4  # Sec. IV-C
    batch_size: Annotated[int, Field(ge=2)] = 64  # Sec. IV-C
    max_epochs: PositiveInt = 200  # Sec. IV-C
    patience: PositiveInt = 30  # Sec. IV-C
    normalization: Literal["zscore", "window", "none"] = "zscore"
    subjects_per_batch: PositiveInt | None = None
    constraints: bool = True


class Protocol(_Table):
    """How subjects are split, and which folds and draws of that are run."""

    draws: PositiveInt = 5  # Sec. IV-B
    validation_share: Annotated[float, Field(gt=0, lt=1)] = 0.2  # Sec. IV-B
    only_folds: list[NonNegativeInt] | None = None
    only_draws: list[NonNegativeInt] | None = None


class Search(_Table):
    """Makes the study a search: every run once per learning rate of the grid."""

    grid: Annotated[list[Rate], Field(min_length=1)]


def _entries(given: Any) -> Any:
    """Let a plain word stand for an entry of that name."""
    if isinstance(given, list):
        return [{"name": item} if isinstance(item, str) else item for item in given]
    return given


class Study(_Table):
    """All of a study. Two files with the same content make the same runs."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]
    description: str = ""
    seed: NonNegativeInt = 0
    threads: PositiveInt = 1  # torch threads of each run: part of the bits
    device: str = "cpu"
    trainer: str = DEFAULT_TRAINER
    lr_from: str = ""  # a finished search: a study's name or the path of its store
    training: Training = Training()
    protocol: Protocol = Protocol()
    search: Search | None = None
    datasets: Annotated[list[DatasetEntry], Field(min_length=1), BeforeValidator(_entries)]
    backbones: Annotated[list[BackboneEntry], Field(min_length=1), BeforeValidator(_entries)]
    optimizers: Annotated[list[OptimizerEntry], Field(min_length=1), BeforeValidator(_entries)]


def paper_backbone(name: str) -> str:
    """Return the name under which the paper's tables have a backbone, for both families.

    >>> paper_backbone("eegnet_authors"), paper_backbone("eegnet"), paper_backbone("my_authors")
    ('eegnet', 'eegnet', 'my_authors')
    """
    stem = name.removesuffix(AUTHORS)
    return stem if stem in NETWORKS else name


def preset_names() -> list[str]:
    """List the studies that come with the package."""
    folder = resources.files("afor.bench") / "presets"
    return sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name[-5:] == ".toml")


def preset_text(name: str) -> str:
    """Return a preset as the TOML a user may edit; ConfigError names the nearest."""
    if name not in preset_names():
        near = difflib.get_close_matches(name, preset_names(), n=1)
        hint = f' Did you mean "{near[0]}"?' if near else ""
        raise ConfigError(
            f'There is no study "{name}".{hint} Accepted: the path of a TOML file, or one of '
            f"{', '.join(preset_names())}."
        )
    return (resources.files("afor.bench") / "presets" / f"{name}.toml").read_text("utf-8")


def study_text(name_or_path: str) -> tuple[str, str]:
    """Return a study's TOML and what to call it in messages."""
    path = Path(name_or_path)
    if path.suffix == ".toml" or path.is_file():
        try:
            return path.read_text("utf-8"), str(path)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{path} cannot be read as a study ({error}). Start one with "
                f"`afor study demo > {path}`."
            ) from None
    return preset_text(name_or_path), f"preset {name_or_path}"


def load_study(name_or_path: str) -> Study:
    """Read a preset or a file; raise ConfigError.

    >>> load_study("demo").name
    'demo'
    """
    return parse_study(*study_text(name_or_path))


def parse_study(text: str, where: str = "study") -> Study:
    r"""Check the text of a study; raise ConfigError with the key, its line and the nearest key.

    >>> parse_study("name = 'x'\nsede = 1")
    Traceback (most recent call last):
    afor.bench.errors.ConfigError: study, line 2: unknown key "sede". Did you mean "seed"?
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not valid TOML: {error}.") from None
    return check_study(content, where, text)


def check_study(content: dict[str, Any], where: str, text: str = "") -> Study:
    """Check a study's content; lines are named where `text`, its TOML, is given."""
    try:
        study = Study.model_validate(content)
    except ValidationError as error:
        raise ConfigError(_explain(error, content, text, where)) from None
    _check_names(study, text, where)
    return study


def _explain(error: ValidationError, content: dict[str, Any], text: str, where: str) -> str:
    # Of several faults the unknown key is told first: a missing key is often a misspelled one.
    faults = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    first = faults[0]
    path = _real_path(first["loc"], content, missing=first["type"] == "missing")
    key = ".".join(str(part + 1) if isinstance(part, int) else part for part in path)
    place = _place(where, text, path)
    if first["type"] == "extra_forbidden":
        accepted = _fields_at(path[:-1])
        near = difflib.get_close_matches(str(path[-1]), accepted, n=1, cutoff=0.5)
        hint = f'Did you mean "{near[0]}"?' if near else f"Accepted here: {', '.join(accepted)}."
        return f'{place}: unknown key "{key}". {hint}'
    if first["type"] == "missing":
        return f'{place}: the key "{key}" is missing. `afor study demo` shows a complete study.'
    message = first["msg"][0].lower() + first["msg"][1:]
    return f"{place}: {key} = {_shown(first['input'])} is not valid: {message}."


def _real_path(loc: Sequence[str | int], content: Any, *, missing: bool) -> tuple[str | int, ...]:
    """Keep the parts of pydantic's place that are in the file, not its names of types."""
    path: list[str | int] = []
    here = content
    for part in loc:
        in_table = isinstance(here, dict) and part in here
        in_list = isinstance(here, list) and isinstance(part, int) and part < len(here)
        if in_table or in_list:
            here = here[part]
        elif not (missing and part == loc[-1]):
            continue
        path.append(part)
    return tuple(path)


def _fields_at(path: Sequence[str | int]) -> list[str]:
    tables: dict[str, type[BaseModel]] = {
        "training": Training,
        "protocol": Protocol,
        "search": Search,
        "datasets": DatasetEntry,
        "backbones": BackboneEntry,
        "optimizers": OptimizerEntry,
    }
    return list((tables[str(path[0])] if path else Study).model_fields)


def _place(where: str, text: str, path: Sequence[str | int]) -> str:
    line = line_of(text, path)
    return f"{where}, line {line}" if line else where


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_names(study: Study, text: str, where: str) -> None:
    """Refuse a name given twice, and a learning rate for a backbone that is not there."""
    for kind in ("datasets", "backbones", "optimizers"):
        names = [entry.name for entry in getattr(study, kind)]
        for number, name in enumerate(names):
            if name in names[:number]:
                place = _place(where, text, (kind, number))
                raise ConfigError(
                    f'{place}: {kind} has "{name}" twice. Give the second another '
                    f'name and say what it is with use = "{name}".'
                )
    backbones = [backbone.name for backbone in study.backbones]
    # A rate for a backbone of the paper that the study leaves out is no mistake.
    backbones += [name for name in PAPER_BACKBONES if name not in backbones]
    for number, dataset in enumerate(study.datasets):
        for name in dataset.lr:
            if name not in backbones:
                place = _place(where, text, ("datasets", number, "lr", name))
                near = difflib.get_close_matches(name, backbones, n=1, cutoff=0.5)
                hint = f' Did you mean "{near[0]}"?' if near else ""
                raise ConfigError(
                    f'{place}: datasets.{number + 1}.lr has "{name}", which is no '
                    f"backbone of this study.{hint} Accepted: {', '.join(backbones)}."
                )
