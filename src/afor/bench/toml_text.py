"""Write a study as TOML: what `tomllib` reads, nothing in the standard library writes."""

import json
import re
from collections.abc import Mapping
from typing import Any

from afor.bench.config import Study

_BARE = re.compile(r"^[A-Za-z0-9_-]+$")
_ENTRIES = ("datasets", "backbones", "optimizers")


def study_toml(study: Study, remarks: str = "") -> str:
    r"""Return the file of a study; what is left at its default is left out.

    `remarks` becomes the comment on top. The text reads back as the same study.

    >>> from afor.bench.config import load_study, parse_study
    >>> parse_study(study_toml(load_study("demo"))) == load_study("demo")
    True
    """
    content = study.model_dump(exclude_defaults=True)
    lines = [f"# {line}".rstrip() for line in remarks.splitlines()]
    plain = {key: value for key, value in content.items() if key not in _ENTRIES}
    tables = {key: plain.pop(key) for key in list(plain) if isinstance(plain[key], Mapping)}
    lines += [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, table in tables.items():
        lines += ["", f"[{_key(key)}]"]
        lines += [f"{_key(name)} = {_value(value)}" for name, value in table.items()]
    for kind in _ENTRIES:
        for entry in content[kind]:
            lines += ["", f"[[{kind}]]", *_entry(kind, entry)]
    return "\n".join(lines) + "\n"


def _entry(kind: str, entry: Mapping[str, Any]) -> list[str]:
    """Write one entry; tables with several keys get a header of their own."""
    inline = {key: value for key, value in entry.items() if value not in ({}, None)}
    if inline.get("use") == inline["name"]:
        del inline["use"]
    wide = [key for key, value in inline.items() if isinstance(value, Mapping) and len(value) > 2]
    lines = [f"{_key(key)} = {_value(value)}" for key, value in inline.items() if key not in wide]
    for key in wide:
        lines.append(f"[{kind}.{_key(key)}]")
        lines += [f"{_key(name)} = {_value(value)}" for name, value in inline[key].items()]
    return lines


def _key(name: str) -> str:
    return name if _BARE.match(name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON escapes as TOML does, but for the one control character it leaves as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float):
        text = repr(value)
        return text if any(c in text for c in ".enai") else f"{text}.0"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(item) for item in value)}]"
    raise TypeError(f"TOML has no way to write {value!r}")
