"""Read a study from TOML and check it before anything runs.

    study = load_study("paper")            # a preset
    study = load_study("my-study.toml")    # a file; `afor study paper > my-study.toml` starts one

Every message about a bad value names the key, its line and the nearest valid key.
"""

import codecs
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    NonNegativeInt,
    ValidationError,
    model_validator,
)

from afor.bench.common.errors import ConfigError
from afor.bench.common.module_search import look_beside
from afor.bench.common.parameter_checks import show_value
from afor.bench.common.suggest import did_you_mean
from afor.bench.training.run_spec import (
    DEFAULT_TRAINER,
    MAX_COUNT,
    BatchSize,
    Count,
    Positive,
    StateAfterTraining,
    Table,
    Training,
)

NETWORKS = ("eegnet", "acrnn", "nsal_dgat", "hslt")  # Sec. IV-D, by their own publications
AUTHORS = "_authors"  # ends the name of a network that is as the AFOR authors released it
PAPER_BACKBONES = (*NETWORKS, *(f"{name}{AUTHORS}" for name in NETWORKS))

BY_METHOD = "by_method"  # the network in results of a study whose methods have their own

# Far above any real study: a typo gives an error message instead of an endless plan.
MAX_FILE_BYTES = 10_000_000
MAX_NESTING = 20
MAX_THREADS = 1024
MAX_REPETITIONS = 1000

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:+-]*$", max_length=80)]
Index = Annotated[int, Field(ge=0, lt=MAX_COUNT)]

KeyPath = tuple[str | int, ...]


class _Entry(Table):
    """A named entry; `use` says what it is if its name does not."""

    name: Name
    use: Name = ""

    @model_validator(mode="before")
    @classmethod
    def _fill_use(cls, given: Any) -> Any:
        if isinstance(given, dict) and "use" not in given and "name" in given:
            return {**given, "use": given["name"]}
        return given


class DatasetEntry(_Entry):
    """A data set with its preprocessing, folds, batch size and learning rates."""

    root: str = ""  # folder of the files; empty: NAME in $AFOR_DATA or ./data
    options: dict[str, Any] = Field(default_factory=dict)
    # None: those that are there; `complete = true` requires all.
    subjects: Annotated[list[str], Field(min_length=1)] | None = None
    exclude: list[str] = Field(default_factory=list)  # subjects left out, by name
    complete: bool = False
    # Number of folds; None: one subject per fold.
    folds: Annotated[int, Field(ge=2, le=MAX_COUNT)] | None = None
    batch_size: BatchSize | None = None
    # By backbone. A rate for `eegnet` also serves `eegnet_authors`, unless that has its own.
    lr: dict[str, Positive] = Field(default_factory=dict)


class BackboneEntry(_Entry):
    """A network with its settings."""

    settings: dict[str, Any] = Field(default_factory=dict)


def _entry(given: Any) -> Any:
    """Turn a plain string into an entry of that name."""
    return {"name": given} if isinstance(given, str) else given


class MethodWindows(Table):
    """The windows of a method, cut from the trials that all methods share."""

    window_samples: Count | None = None  # None: the data set's
    stride_samples: Count | None = None

    def options(self) -> dict[str, int]:
        """Return the options of the data set that it overrides."""
        return self.model_dump(exclude_none=True)


class OptimizerEntry(_Entry):
    """A method: an optimizer with its settings, and what else belongs to the method.

    Another `seed` makes a replicate of the same method.
    """

    settings: dict[str, Any] = Field(default_factory=dict)
    lr: Positive | None = None
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    clip_norm: Positive | None = None
    adaptation_state: StateAfterTraining | None = None
    seed: NonNegativeInt | None = None
    # A network of its own, instead of those of the study.
    backbone: Annotated[BackboneEntry | None, BeforeValidator(_entry)] = None
    training: dict[str, Any] = Field(default_factory=dict)  # keys of [training] that it overrides
    # Windows of its own. The methods of the study are then scored per trial.
    data: MethodWindows = MethodWindows()
    # A control is listed below the others, without a verdict, and outside of Holm's correction.
    control: bool = False


class Protocol(Table):
    """How subjects are split, and which folds and repetitions are run."""

    repetitions: Annotated[int, Field(ge=1, le=MAX_REPETITIONS)] = 5  # Sec. IV-B
    validation_share: Annotated[float, Field(gt=0, lt=1)] = 0.2  # Sec. IV-B
    only_folds: Annotated[list[Index], Field(min_length=1)] | None = None
    only_repetitions: Annotated[list[Index], Field(min_length=1)] | None = None


class Search(Table):
    """Makes the study a learning rate search: every run is trained once per rate of the grid."""

    grid: Annotated[list[Positive], Field(min_length=1)]


def _entries(given: Any) -> Any:
    return [_entry(item) for item in given] if isinstance(given, list) else given


class Study(Table):
    """A whole study. Two files with the same content give the same runs."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]
    description: str = ""
    seed: NonNegativeInt = 0
    # Of torch, in each run; another number changes results bit for bit.
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS)] = 1
    # auto, cpu, cuda, mps; cuda:1 takes one GPU only. The kind of device is part of a run's key.
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:[0-9]{1,3})?)$")] = "cpu"
    # Train runs of a fold and repetition as one network where that is faster, to the same bits.
    bundle: bool = True
    # Fit a linear model on the same splits where that takes seconds, to show beside the networks.
    reference: bool = True
    trainer: str = DEFAULT_TRAINER
    lr_from: str = ""  # finished search: name of its study or path of its store
    # Rates that `afor run` tries first with the baseline on two folds; the best serves all methods.
    lr_search: list[Positive] = Field(default_factory=list)
    # By metric, as printed (points; kappa as a number): smaller differences count as equivalent.
    # Metrics that are not named have the default of `afor.bench.stats.labels`.
    margins: dict[str, Positive] = Field(default_factory=dict)
    training: Training = Training()
    protocol: Protocol = Protocol()
    search: Search | None = None
    datasets: Annotated[list[DatasetEntry], Field(min_length=1), BeforeValidator(_entries)]
    backbones: Annotated[list[BackboneEntry], Field(min_length=1), BeforeValidator(_entries)]
    optimizers: Annotated[list[OptimizerEntry], Field(min_length=1), BeforeValidator(_entries)]


def scored_trials(study: Study) -> bool:
    """Tell whether runs are scored per trial, because methods have windows of their own."""
    return any(entry.data.options() for entry in study.optimizers)


def paper_backbone(name: str) -> str:
    """Return the name that the paper's tables use for a backbone of either family.

    >>> paper_backbone("eegnet_authors"), paper_backbone("eegnet"), paper_backbone("my_authors")
    ('eegnet', 'eegnet', 'my_authors')
    """
    stem = name.removesuffix(AUTHORS)
    return stem if stem in NETWORKS else name


def preset_names() -> list[str]:
    """List the studies that come with the package."""
    folder = resources.files("afor.bench.study") / "presets"
    return sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name[-5:] == ".toml")


def preset_text(name: str) -> str:
    """Return the TOML of a preset; raise ConfigError with the nearest name if there is none."""
    if name not in preset_names():
        hint = did_you_mean(name, preset_names(), quote='"')
        raise ConfigError(
            f'There is no study "{name}".{hint} Accepted: the path of a TOML file, or one of '
            f"{', '.join(preset_names())}."
        )
    return (resources.files("afor.bench.study") / "presets" / f"{name}.toml").read_text("utf-8")


def study_text(name_or_path: str) -> tuple[str, str]:
    """Return a study's TOML and its name in messages.

    From then on, modules are also searched for in the folder of the file.
    """
    path = Path(name_or_path)
    try:
        if (file := study_file(name_or_path)) is not None:
            path = file
            if path.stat().st_size > MAX_FILE_BYTES:
                raise ConfigError(
                    f"{path} has {path.stat().st_size} bytes, a study has at most {MAX_FILE_BYTES}."
                )
            look_beside(path)
            return _decoded(path.read_bytes()), str(path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read as a study ({error}). Start one with "
            f"`afor study demo > my-study.toml`."
        ) from None
    return preset_text(name_or_path), f"preset {name_or_path}"


def study_file(name: str) -> Path | None:
    """Return the file that a study's name means, also without .toml; None for a preset."""
    if name in preset_names():
        return None
    path, beside = Path(name), Path(f"{name}.toml")
    if path.suffix == ".toml" or path.is_file():
        return path
    return beside if beside.is_file() else None


def _decoded(content: bytes) -> str:
    """Return the text of a file in UTF-8, or in UTF-16 as PowerShell writes it."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16")
    return content.decode("utf-8-sig")


def load_study(name_or_path: str) -> Study:
    """Read a study from a preset or a TOML file.

    Modules that the file names as ``module:name`` are looked up in its folder too, after all
    installed modules.

    Args:
        name_or_path: Name of a preset (see `preset_names`), or path of a TOML file.

    Returns:
        The checked study.

    Raises:
        ConfigError: There is no such preset or file, or its content is not valid.

    Example:
        >>> load_study("demo").name
        'demo'
    """
    return parse_study(*study_text(name_or_path))


def parse_study(text: str | Mapping[str, Any], where: str = "study") -> Study:
    r"""Read a study from TOML text or from a dictionary.

    Args:
        text: The TOML text, or its content as a dictionary.
        where: Name of the text in error messages.

    Returns:
        The checked study.

    Raises:
        ConfigError: The text is not valid; the message has the key, its line and the nearest key.

    Example:
        >>> parse_study("name = 'x'\nsede = 1", where="mine")
        Traceback (most recent call last):
        afor.bench.common.errors.ConfigError: mine, line 2: unknown key "sede". Did you mean "seed"?
        >>> parts = {"datasets": ["synthetic"], "backbones": ["eegnet"], "optimizers": ["afor"]}
        >>> parse_study({"name": "x", **parts}).optimizers[0].use
        'afor'
    """
    if isinstance(text, str):
        return check_study(read_toml(text, where), where, text)
    return check_study(dict(text), where)


def read_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML; raise ConfigError if it is not valid."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(
            f"{where} is nested too deeply: a study has at most {MAX_NESTING} levels of tables "
            f"and lists."
        ) from None
    except ValueError as error:  # also an integer of thousands of digits
        raise ConfigError(f"{where} is not valid TOML: {error}.") from None


def expand_methods(content: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the content of a study with its `methods` as optimizer entries.

    A method names its optimizer with the key `optimizer`. If every method has a network of its own
    and the study has no `backbones`, results list them under the network `BY_METHOD`.

    Raises:
        ConfigError: The study has both methods and optimizers.

    >>> method = {"name": "slow", "optimizer": "adam", "training": {"schedule": "cosine"}}
    >>> expand_methods({"name": "x", "methods": ["adam", method]}, "mine")["optimizers"][1]["use"]
    'adam'
    """
    if "methods" not in content:
        return content
    if "optimizers" in content:
        raise ConfigError(
            f"{where} has both methods and optimizers. An optimizer is a method, too: list all of "
            f"them as methods."
        )
    expanded = {key: value for key, value in content.items() if key != "methods"}
    entries = expanded["optimizers"] = _entries(content["methods"])
    if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries):
        expanded["optimizers"] = [
            {"use" if key == "optimizer" else key: value for key, value in entry.items()}
            for entry in entries
        ]
        networks = [_entry(entry.get("backbone")) for entry in entries]
        if "backbones" not in content and all(isinstance(network, dict) for network in networks):
            use = networks[0].get("use", networks[0].get("name")) if networks else None
            expanded["backbones"] = [{"name": BY_METHOD, "use": use}]
    return expanded


def method_training(training: Training, entry: OptimizerEntry) -> Training:
    """Return the training settings of a method: those of the study, with what it overrides.

    Raises:
        ValidationError: They do not fit together.
    """
    if not entry.training:
        return training
    return Training.model_validate({**training.model_dump(), **entry.training})


def check_study(content: dict[str, Any], where: str, text: str = "") -> Study:
    """Check the content of a study; messages name lines if `text`, its TOML, is given."""
    content = expand_methods(content, where)
    for path, value, reason in _unusable_values(content):
        key, location = _dotted(path), _location(where, text, path)
        raise ConfigError(f"{location}: {key} = {show_value(value)} is not valid: {reason}.")
    try:
        study = Study.model_validate(content)
    except ValidationError as error:
        raise ConfigError(_explain(error, content, text, where)) from None
    _check_names(study, text, where)
    _check_methods(study, text, where)
    if study.lr_search and (study.lr_from or "lr" in study.training.model_fields_set):
        raise ConfigError(
            f"{_location(where, text, ('lr_search',))}: lr_search and another learning rate for all"
            f" methods (training.lr or lr_from) exclude each other. Remove one of them."
        )
    return study


def _unusable_values(content: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any, str]]:
    """Yield each value that JSON cannot store, with its path and the reason."""
    if isinstance(content, dict | list):
        if len(path) >= MAX_NESTING:
            yield path, content, f"tables and lists are nested at most {MAX_NESTING} deep"
            return
        items = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in items:
            yield from _unusable_values(value, (*path, key))
    elif isinstance(content, str):
        if re.search("[\0\ud800-\udfff]", content):  # lone surrogates are not valid in UTF-8
            yield path, content, "text holds no NUL character and is valid UTF-8"
    elif isinstance(content, int):
        if not -(2**63) <= content < 2**63:
            yield path, content, "a whole number must fit into 64 bits"
    elif isinstance(content, float):
        if not math.isfinite(content):
            yield path, content, "a number must be finite"
    else:  # TOML's dates and times
        accepted = "text, numbers, true or false, lists and tables of these"
        yield path, content, f"accepted are {accepted}; put a date in quotes"


def _explain(error: ValidationError, content: dict[str, Any], text: str, where: str) -> str:
    # Report an unknown key first: a missing key is often a misspelled one.
    first = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    path = _real_path(first["loc"], content, missing=first["type"] == "missing")
    written = _as_written(path, text)
    key, location = _dotted(written), _location(where, text, path)
    if first["type"] == "extra_forbidden":
        accepted = _fields_at(path[:-1])
        if len(path) == 1:
            accepted.append("methods")
        elif written[0] == "methods" and len(path) == 3:
            accepted.append("optimizer")
        hint = did_you_mean(str(path[-1]), accepted, quote='"')
        hint = hint or f" Accepted here: {', '.join(accepted)}."
        return f'{location}: unknown key "{key}".{hint}'
    if first["type"] == "missing":
        return f'{location}: the key "{key}" is missing. `afor study demo` shows a complete study.'
    message = first["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    return f"{location}: {key} = {show_value(first['input'])} is not valid: {message}."


def _real_path(loc: Sequence[str | int], content: Any, *, missing: bool) -> KeyPath:
    """Return the parts of pydantic's location that are keys of the file, without type names."""
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
    """Return the keys of the table at a path; the numbers in it count entries of a list."""
    table: type[BaseModel] = Study
    for part in path:
        if isinstance(part, str):
            table = _table_of(table.model_fields[part].annotation) or table
    return list(table.model_fields)


def _table_of(annotation: Any) -> type[BaseModel] | None:
    """Return the table in the type of a key: itself, optional, or the entry of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    tables = (_table_of(argument) for argument in get_args(annotation))
    return next((table for table in tables if table is not None), None)


def _check_methods(study: Study, text: str, where: str) -> None:
    """Refuse settings that a method cannot override."""
    accepted = [key for key in Training.model_fields if key not in OptimizerEntry.model_fields]
    for number, entry in enumerate(study.optimizers):
        path = ("optimizers", number, "training")
        for key in entry.training:
            if key not in accepted:
                location, hint = (
                    _location(where, text, path),
                    did_you_mean(key, accepted, quote='"'),
                )
                if key in OptimizerEntry.model_fields:
                    hint = f" Set {key} of the method itself."
                raise ConfigError(
                    f'{location}: the training of "{entry.name}" has no key "{key}".'
                    f"{hint or ' Accepted: ' + ', '.join(accepted) + '.'}"
                )
        try:
            method_training(study.training, entry)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = _dotted(("training", *first["loc"]))
            raise ConfigError(
                f'{_location(where, text, path)}: {key} of "{entry.name}" is not valid: '
                f"{first['msg'].removeprefix('Value error, ')}."
            ) from None


def _dotted(path: Sequence[str | int]) -> str:
    return ".".join(str(part + 1) if isinstance(part, int) else part for part in path)


def _as_written(path: Sequence[str | int], text: str) -> Sequence[str | int]:
    """Return the path of an entry in the file, where it may be a method."""
    is_method = path[:1] == ("optimizers",) and line_of(text, path[:1]) is None
    return ("methods", *path[1:]) if is_method and line_of(text, ("methods",)) else path


def _location(where: str, text: str, path: Sequence[str | int]) -> str:
    line = line_of(text, _as_written(path, text))
    return f"{where}, line {line}" if line else where


def _check_names(study: Study, text: str, where: str) -> None:
    """Refuse duplicate names, and learning rates for backbones that the study does not have."""
    for section in ("datasets", "backbones", "optimizers"):
        names = [entry.name for entry in getattr(study, section)]
        for number, name in enumerate(names):
            if name in names[:number]:
                location = _location(where, text, (section, number))
                raise ConfigError(
                    f'{location}: {section} has "{name}" twice. Give the second another '
                    f'name and say what it is with use = "{name}".'
                )
    own = [entry.backbone for entry in study.optimizers if entry.backbone is not None]
    backbones = [backbone.name for backbone in (*study.backbones, *own)]
    # Presets give rates for all backbones of the paper; a study may leave some out.
    backbones += [name for name in PAPER_BACKBONES if name not in backbones]
    for number, dataset in enumerate(study.datasets):
        for name in dataset.lr:
            if name not in backbones:
                location = _location(where, text, ("datasets", number, "lr", name))
                hint = did_you_mean(name, backbones, quote='"')
                raise ConfigError(
                    f'{location}: datasets.{number + 1}.lr has "{name}", which is no '
                    f"backbone of this study.{hint} Accepted: {', '.join(backbones)}."
                )


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    r"""Return the line, counted from 1, of a key or of the nearest table around it.

    The first lines of a text, up to the end of a value, are TOML themselves: the line is found by
    halves.

    >>> line_of("seed = 0\n[[sets]]\nname = 'a'\n[[sets]]\nnane = 'b'", ("sets", 1, "nane"))
    5
    """
    lines = text.split("\n")
    depth = _depth(lines, path)
    if not depth:
        return None
    before, line = 0, len(lines)  # the key is not in the lines before, and begins up to this one
    while line - before > 1:
        end = middle = (before + line) // 2
        while (found := _depth(lines[:end], path)) is None:
            end += 1  # within a value that spans several lines
        if found < depth:
            before = end
        else:
            line = middle
    return line


def _depth(lines: Sequence[str], path: Sequence[str | int]) -> int | None:
    """Return how many parts of a path some lines of TOML have; None if they are not valid."""
    try:
        here: Any = tomllib.loads("\n".join(lines))
    except ValueError:
        return None
    for depth, part in enumerate(path):
        try:
            here = here[part]
        except (KeyError, IndexError, TypeError):
            return depth
    return len(path)
