"""`afor optimizers`: the table of optimizers, or every setting of one."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import inspect
    from collections.abc import Mapping

    from rich.table import Table

    from afor.bench.optimizers.registry import RegisteredOptimizer

MAX_WIDTH = 130  # longer lines are hard to follow from name to reference

NEXT = (
    "Besides these: any module:Class, for example pytorch_optimizer:Lion.\n"
    "Next: `afor optimizers NAME` for every setting of one; `afor study demo` for a study to edit."
)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("optimizers")(optimizers)


def optimizers(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show every setting of this one: a name of the table, or module:Class."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")] = False,
) -> None:
    """List the optimizers a study can name, their settings and where each comes from."""
    if name is None:
        show_all(as_json)
    else:
        show_one(name, as_json)


def show_all(as_json: bool) -> None:
    """Print the table of the registry."""
    from afor.bench.optimizers.registry import HEADINGS, OPTIMIZERS

    if as_json:
        typer.echo(json.dumps([entry_row(e) for e in OPTIMIZERS.values()], ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    width = min(console.width, MAX_WIDTH)
    for kind, heading in HEADINGS.items():
        console.print(f"\n{heading}", style="bold cyan")
        console.print(section_table([e for e in OPTIMIZERS.values() if e.kind == kind], width))
    console.print(f"\n{NEXT}", style="dim")


def show_one(name: str, as_json: bool) -> None:
    """Print where one optimizer comes from and all it can be given; imports its class."""
    from afor.bench.optimizers.build import accepted_settings, find_entry

    entry = find_entry(name)
    given = dict(entry.settings) if entry else {}
    rows = [argument_row(p, given) for p in accepted_settings(name)]
    if as_json:
        described = entry_row(entry) if entry else {"name": name, "target": name}
        typer.echo(json.dumps({**described, "arguments": rows}, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

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


def entry_row(entry: "RegisteredOptimizer") -> dict[str, object]:
    """Return one entry as plain values."""
    return {
        "name": entry.name,
        "label": entry.label,
        "kind": entry.kind,
        "variant_of": entry.variant_of,
        "target": entry.target,
        "settings": dict(entry.settings),
        "weight_decay": entry.decay,
        "loop": entry.loop,
        "origin": entry.origin,
        "reference": entry.reference,
    }


def argument_row(
    parameter: "inspect.Parameter", given: "Mapping[str, object]"
) -> dict[str, object]:
    """Return one argument with the table's value and the class's default, as text where needed."""
    default = None if parameter.default is parameter.empty else parameter.default
    plain = default if isinstance(default, int | float | str | bool | tuple) else str(default)
    return {"setting": parameter.name, "here": given.get(parameter.name), "default": plain}


def section_table(entries: "list[RegisteredOptimizer]", width: int) -> "Table":
    """Lay out the entries of one kind in columns that are the same in every section."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", width=width)
    table.add_column("name", no_wrap=True, width=16)
    table.add_column("settings", overflow="fold", ratio=5)
    table.add_column("decay", no_wrap=True, width=9)
    table.add_column("code", no_wrap=True, width=5)
    table.add_column("reference", ratio=4)
    for entry in entries:
        code = entry.target.partition(".")[0].partition(":")[0]
        table.add_row(entry.name, settings_text(entry), entry.decay, code, entry.reference)
    return table


def settings_text(entry: "RegisteredOptimizer") -> str:
    """Write the settings, for a variant only what differs, and what the loop does for it."""
    from afor.bench.optimizers.registry import OPTIMIZERS

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
