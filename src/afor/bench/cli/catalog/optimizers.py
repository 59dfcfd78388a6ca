"""The command ``afor optimizers``: the table of optimizers, or every setting of one."""

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table

from afor.bench.cli.terminal import print_json
from afor.bench.common.module_search import look_beside
from afor.bench.optimizers.build import accepted_settings, find_entry
from afor.bench.optimizers.registry import HEADINGS, OPTIMIZERS, RegisteredOptimizer

MAX_WIDTH = 130  # in longer lines it is hard to follow a row from the name to the reference

NEXT = (
    "Besides these: any module:Class, for example pytorch_optimizer:Lion.\n"
    "Next: `afor optimizers NAME` for every setting of one; `afor study demo` for a study to edit."
)


def optimizers(name: Annotated[str | None, OPTIMIZERS] = None, *, as_json: bool = False) -> None:
    """List the optimizers and their settings.

    Without a name, all optimizers that a study can name are listed, with their settings, weight
    decay, code and reference.

    Args:
        name: Show every setting of this optimizer: a name of the table, or module:Class.

    Example:
        afor optimizers afor
    """
    if name is None:
        _show_all(as_json)
    else:
        _show_one(name, as_json)


def _show_all(as_json: bool) -> None:
    """Print the table of the registry."""
    if as_json:
        print_json([_entry_row(e) for e in OPTIMIZERS.values()], indent=None, ensure_ascii=False)
        return
    console = Console(highlight=False)
    width = min(console.width, MAX_WIDTH)
    for section, heading in HEADINGS.items():
        console.print(f"\n{heading}", style="bold cyan")
        entries = [entry for entry in OPTIMIZERS.values() if entry.section == section]
        console.print(_section_table(entries, width))
    console.print(f"\n{NEXT}", style="dim")


def _show_one(name: str, as_json: bool) -> None:
    """Print the origin and all settings of one optimizer; this imports its class."""
    entry = find_entry(name)
    look_beside(Path.cwd() / name)  # a module of one's own in the current folder
    settings = dict(entry.settings) if entry else {}
    rows = [_argument_row(parameter, settings) for parameter in accepted_settings(name)]
    if as_json:
        described = _entry_row(entry) if entry else {"name": name, "target": name}
        print_json({**described, "arguments": rows}, indent=None, ensure_ascii=False)
        return
    console = Console(highlight=False)
    if entry:
        console.print(f"[bold]{entry.label}[/bold]  {entry.target}")
        console.print(f"{entry.reference}; weight decay {entry.decay}; code: {entry.origin}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("setting", "here", "default of the class"):
        table.add_column(heading)
    for row in rows:
        here = "" if row["here"] is None else str(row["here"])
        table.add_row(str(row["setting"]), here, str(row["default"]))
    console.print(table)
    console.print("lr, weight_decay and seeds come from the study.", style="dim")
    console.print("Next: `afor study demo` prints a study to edit.", style="dim")


def _entry_row(entry: RegisteredOptimizer) -> dict[str, object]:
    """Return one entry as plain values."""
    return {**asdict(entry), "origin": entry.origin}


def _argument_row(
    parameter: inspect.Parameter, settings: Mapping[str, object]
) -> dict[str, object]:
    """Return one argument with the table's value and the class's default, as text if needed."""
    default = None if parameter.default is parameter.empty else parameter.default
    plain = default if isinstance(default, int | float | str | bool | tuple) else str(default)
    return {"setting": parameter.name, "here": settings.get(parameter.name), "default": plain}


def _section_table(entries: list[RegisteredOptimizer], width: int) -> Table:
    """Return a table of the entries of one kind; all sections have the same columns."""
    table = Table(box=None, pad_edge=False, header_style="bold", width=width)
    table.add_column("name", no_wrap=True, width=max(map(len, OPTIMIZERS)))
    table.add_column("settings", overflow="fold", ratio=5)
    table.add_column("decay", no_wrap=True, width=9)
    table.add_column("code", no_wrap=True, width=5)
    table.add_column("reference", ratio=4)
    for entry in entries:
        code = entry.target.partition(".")[0].partition(":")[0]
        table.add_row(entry.name, _settings_text(entry), entry.decay, code, entry.reference)
    return table


def _settings_text(entry: RegisteredOptimizer) -> str:
    """Describe the settings, of a variant only the changed ones, and what the loop does for it."""
    base = OPTIMIZERS[entry.variant_of].settings if entry.variant_of else {}
    changed = {k: v for k, v in entry.settings.items() if k not in base or base[k] != v}
    text = ", ".join(f"{key} {_short(value)}" for key, value in changed.items())
    text = f"{entry.variant_of} with {text}" if entry.variant_of else text
    return f"{text}; {entry.loop}" if entry.loop else text


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(_short(v) for v in value) + ")"
    text = f"{value:g}" if isinstance(value, float) else str(value).lower()
    return text.replace("e-0", "e-")
