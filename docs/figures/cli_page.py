"""Write the page of all commands: `python docs/figures/cli_page.py [FILE]`.

The page is read off the command line itself. `tests/test_cli_page.py` fails when the two differ.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from afor.bench.cli.app import app
from afor.bench.cli.lazy import LazyGroup

PAGE = Path(__file__).parents[1] / "reference" / "cli.md"
PLACEHOLDERS = {int: "NUMBER", float: "NUMBER", Path: "PATH"}
OPENING = """# Commands

Results go to standard output, progress and the next command to standard error. `NO_COLOR` is
honoured, `--json` is for programs, `afor --version` prints the version, and `afor --debug COMMAND`
shows the traceback of an error.

RESULTS is a study's name (its results are in `results/NAME.db`), the study's TOML file or a store
file. `judge`, `table`, `figure`, `report` and `power` also read the files of `afor export` and any
[table of scores](../howto/judge.md).

`afor --install-completion` sets up completion of commands and options in bash, zsh, fish or
PowerShell; `afor --show-completion` prints the script instead. Both take effect in a new shell.

| exit code | meaning |
|---:|---|
| 0 | done |
| 1 | some runs failed, or a repeated run gave other bits |
| 2 | usage or settings |
| 3 | data |
| 4 | store |
| 130 | interrupted; the same command continues |

| variable | what it names | when it is not set |
|---|---|---|
| `AFOR_DATA` | the folder with a folder per data set | `./data` |
| `AFOR_CACHE` | the folder of prepared trials | `~/.cache/afor` |
| `AFOR_KERNEL_ISA` | native kernel: `avx512`, `avx2` or `default` | the best the processor has |
| `AFOR_EEGNET_ISA` | native EEGNet: `avx2` or `default` | the best the processor has |

*This page is written by `python docs/figures/cli_page.py`.*
"""


def page() -> str:
    """Return the whole page as Markdown."""
    root = typer.main.get_command(app)
    sections = list(_sections("afor", root))
    links = "\n".join(
        f"| [`{name}`](#{name.replace(' ', '-')}) | {_escape(_summary(command))} |"
        for name, command in sections
    )
    return "\n".join(
        [OPENING, "| command | what it does |", "|---|---|", links, ""]
        + [_section(name, command) for name, command in sections]
    )


def _sections(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield every command that does something, with its full name, in the order of `--help`."""
    children = getattr(command, "commands", None)
    if not children:
        yield name, command
        return
    for child, inner in children.items():
        loaded = command.load(child) if isinstance(command, LazyGroup) else inner
        yield from _sections(f"{name} {child}", loaded)


def _section(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [
        p
        for p in command.params
        if p.param_type_name == "option" and p.name != "help" and not p.hidden
    ]
    usage = " ".join([name, *map(_placeholder, arguments), *(["[OPTIONS]"] if options else [])])
    lines = [f"## {name}", "", _escape(command.help), "", "```text", usage, "```", ""]
    rows = [(_placeholder(p), p) for p in arguments] + [(_flags(p), p) for p in options]
    if rows:
        lines += ["| | meaning | default |", "|---|---|---|"]
        lines += [f"| `{left}` | {_meaning(p)} | {_default(p)} |" for left, p in rows]
        lines.append("")
    example = command.epilog.removeprefix("Example: ")
    lines += ["```text", f"$ {example}", "```", ""]
    return "\n".join(lines)


def _summary(command: Any) -> str:
    return str(command.help).split("\n")[0]


def _placeholder(parameter: Any) -> str:
    word = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
    return word if parameter.required else f"[{word}]"


def _flags(parameter: Any) -> str:
    names = ", ".join(parameter.opts)
    if parameter.is_flag:
        return names
    annotation = parameter.type_descriptor.annotation
    element = next(iter(get_args(annotation)), annotation)
    return f"{names} {PLACEHOLDERS.get(element, 'TEXT')}"


def _meaning(parameter: Any) -> str:
    words = parameter.help
    if choices := _choices(parameter.type_descriptor.annotation):
        words += f" Accepted: {', '.join(choices)}."
    repeatable = getattr(parameter, "multiple", False) and "epeatable" not in words
    return _escape(words + (" Repeatable." if repeatable else ""))


def _choices(annotation: Any) -> list[str]:
    """Return the words that a literal, or one of several types, lists."""
    if get_origin(annotation) is Literal:
        return list(map(str, get_args(annotation)))
    return [word for inner in get_args(annotation) for word in _choices(inner)]


def _default(parameter: Any) -> str:
    """Return what `--help` says, else the value; nothing where leaving it out means "none"."""
    if isinstance(parameter.show_default, str):
        return _escape(parameter.show_default)
    value = parameter.default
    if parameter.required or value in (None, "", ()) or getattr(parameter, "is_flag", False):
        return ""
    return f"`{value}`"


def _escape(text: str) -> str:
    for sign in ("|", "<", ">", "[", "]", "$", "*"):
        text = text.replace(sign, f"\\{sign}")
    return text


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    target.write_text(page(), encoding="utf-8")
    print(target)
