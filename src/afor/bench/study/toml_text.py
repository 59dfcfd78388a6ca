"""Write a study's content as TOML: the standard library reads TOML and does not write it."""

import json
import re
from collections.abc import Mapping
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.study.schema import Study

_BARE = re.compile(r"^[A-Za-z0-9_-]+$")


def toml_text(content: Mapping[str, Any]) -> str:
    r"""Return TOML that reads back as `content`: values first, then tables, then lists of tables.

    Knows what a study holds: text, numbers, truth values, lists and tables of these.

    >>> print(toml_text({"name": "x", "training": {"lr": 1e-3}, "datasets": [{"name": "deap"}]}))
    name = "x"
    <BLANKLINE>
    [training]
    lr = 0.001
    <BLANKLINE>
    [[datasets]]
    name = "deap"
    <BLANKLINE>
    """
    values = {k: v for k, v in content.items() if not _is_table(v) and not _is_tables(v)}
    lines = [_assignment(key, value) for key, value in values.items()]
    for key, value in content.items():
        if _is_table(value):
            lines += ["", f"[{_key(key)}]", *(_assignment(k, v) for k, v in value.items())]
    for key, value in content.items():
        for entry in value if _is_tables(value) else ():
            lines += ["", f"[[{_key(key)}]]", *(_assignment(k, v) for k, v in entry.items())]
    return "\n".join(lines).lstrip("\n") + "\n"


def study_toml(study: Study, remarks: str = "") -> str:
    """Return the file of a study; what is left at its default is left out.

    `remarks` becomes the comment on top. The text reads back as the same study.

    >>> from afor.bench.study.schema import load_study, parse_study
    >>> parse_study(study_toml(load_study("demo"))) == load_study("demo")
    True
    """
    content = study.model_dump(exclude_defaults=True)
    for kind in ("datasets", "backbones", "optimizers"):
        content[kind] = [
            {key: value for key, value in entry.items() if key != "use" or value != entry["name"]}
            for entry in content[kind]
        ]
    comment = "".join(f"# {line}".rstrip() + "\n" for line in remarks.splitlines())
    return comment + toml_text(content)


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_table, value))


def _assignment(key: str, value: object) -> str:
    return f"{_key(key)} = {_value(value)}"


def _key(key: str) -> str:
    return key if _BARE.match(key) else _quoted(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)  # TOML spells 1e-05, inf and nan as Python does
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        pairs = ", ".join(_assignment(k, v) for k, v in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    raise ConfigError(
        f"{value!r} ({type(value).__name__}) cannot be written into a study. Accepted: text, "
        "numbers, true or false, lists and tables of these."
    )


def _quoted(text: str) -> str:
    # JSON escapes as TOML does; TOML also wants the delete character escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
