"""Find custom code that a study or run refers to, which a store must not start by itself."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.data.catalog import is_own_code
from afor.bench.study.schema import Study
from afor.bench.training.run_spec import DEFAULT_TRAINER


def names_in_study(study: Study) -> tuple[str, ...]:
    """List the custom code of a study as `module:name`, without duplicates."""
    trainer = [] if study.trainer == DEFAULT_TRAINER else [study.trainer]
    entries = [entry.use for entry in (*study.backbones, *study.optimizers)]
    readers = [entry.use for entry in study.datasets if is_own_code(entry.use)]
    return tuple(dict.fromkeys([*trainer, *readers, *(use for use in entries if ":" in use)]))


def names_in_spec(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """List the custom code of a run's spec as `module:name`, without duplicates."""

    def text(table: str, key: str) -> str:
        inside = spec.get(table)
        return str(inside.get(key, "")) if isinstance(inside, Mapping) else ""

    trainer = text("trainer", "source")
    names = [trainer] if trainer not in ("", DEFAULT_TRAINER) else []
    if is_own_code(reader := text("data", "reader")):
        names.append(reader)
    names += [n for n in (text("backbone", "name"), text("optimizer", "name")) if ":" in n]
    return tuple(dict.fromkeys(names))


def list_names(names: Iterable[str]) -> str:
    """Return names from an untrusted file as one line that is safe to print."""
    return ", ".join(ascii(name[:80])[1:-1] for name in sorted(names))


def with_trusted_readers(
    study: Study, datasets: Collection[str], where: str, *, trust: bool
) -> Study:
    """Return a study from the store `where` with these data sets alone.

    Raises:
        ConfigError: Code outside this package reads one of them, and `trust` is not set.
    """
    entries = [entry for entry in study.datasets if entry.name in datasets]
    readers = [entry.use for entry in entries if is_own_code(entry.use)]
    if readers and not trust:
        what = f"code that is not part of afor reads the data of the study {study.name}"
        raise _untrusted(where, what, readers)
    return study.model_copy(update={"datasets": entries})


def refuse_stored_code(study: Study, where: str) -> None:
    """Raise ConfigError if a study that was read from a store refers to custom code."""
    if names := names_in_study(study):
        what = f"the study {study.name} in this store names code that is not part of afor"
        raise _untrusted(where, what, names)


def _untrusted(where: str, what: str, names: Iterable[str]) -> ConfigError:
    return ConfigError(
        f"{where}: {what}: {list_names(names)}. Nothing was imported. Add --trust if you know "
        f"where the store and these modules come from."
    )
