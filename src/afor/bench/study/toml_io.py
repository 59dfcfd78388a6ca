"""Write a study as TOML with tomlkit: the standard library reads TOML but does not write it."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array, Table

from afor.bench.common.errors import ConfigError
from afor.bench.study.schema import Study


def toml_text(content: Mapping[str, Any]) -> str:
    """Return TOML that reads back as `content`; raise ConfigError if TOML cannot hold a value."""
    try:
        return tomlkit.dumps(content)
    except (TOMLKitError, TypeError, ValueError) as error:
        raise ConfigError(
            f"A value cannot be written into a study ({error}). Accepted: text, numbers, true or "
            f"false, lists and tables of these."
        ) from None


def updated_toml(text: str, content: Mapping[str, Any]) -> str:
    r"""Return a TOML text that reads as `content`, with the comments on everything that stays.

    >>> print(updated_toml("lr = 0.1  # as in the paper\n", {"lr": 0.2}), end="")
    lr = 0.2  # as in the paper
    """
    document = tomlkit.parse(text)
    _update_table(document, content)
    updated = tomlkit.dumps(document)
    try:
        is_exact = tomllib.loads(updated) == content
    except ValueError:
        is_exact = False
    return updated if is_exact else toml_text(content)  # without comments, but correct


def study_toml(study: Study, remarks: str = "") -> str:
    """Return the TOML of a study without default values, and `remarks` as a comment at the top.

    >>> from afor.bench.study.schema import load_study, parse_study
    >>> parse_study(study_toml(load_study("demo"))) == load_study("demo")
    True
    """
    content = study.model_dump(exclude_defaults=True)
    for section in ("datasets", "backbones", "optimizers"):
        content[section] = [
            {key: value for key, value in entry.items() if key != "use" or value != entry["name"]}
            for entry in content[section]
        ]
    comment = "".join(f"# {line}".rstrip() + "\n" for line in remarks.splitlines())
    return comment + toml_text(content)


def _update_table(table: Any, content: Mapping[str, Any]) -> None:
    for key in [key for key in table if key not in content]:
        del table[key]
    for key, value in content.items():
        before = table.get(key)
        if key in table and before == value:
            continue
        if isinstance(before, AoT):
            _update_entries(before, value)
        elif isinstance(before, Mapping) and isinstance(value, Mapping):
            _update_table(before, value)
        elif isinstance(before, Array):
            table[key] = tomlkit.array()
            table[key].extend(value)  # tables in it become inline tables
        else:
            table[key] = value


def _update_entries(tables: AoT, entries: Sequence[Mapping[str, Any]]) -> None:
    """Update tables that are known by their names; an entry with a new name is a new table."""
    by_name = {str(table["name"]): table for table in tables}
    while tables:
        del tables[0]
    for entry in entries:
        table: Table = by_name.get(entry["name"]) or tomlkit.table()
        _update_table(table, entry)
        tables.append(table)
