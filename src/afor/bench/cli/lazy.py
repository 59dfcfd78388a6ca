"""A group of commands whose modules are imported when a command is called.

Importing the modules of all commands takes seconds. The group knows the name and the summary of
each command, which is all that `afor --help` and shell completion show of them.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import wraps
from importlib import import_module
from typing import Any, ClassVar, cast

import typer
import typer.core
import typer.main

EXAMPLE = "\n\nExample:\n"  # starts the last section of a command's docstring


class LazyGroup(typer.core.TyperGroup):
    """A group that `lazy_group` makes."""

    table: ClassVar[Mapping[str, tuple[str, str]]] = {}
    panels: ClassVar[Mapping[str, Sequence[str]]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        panel_of = {name: panel for panel, names in self.panels.items() for name in names}
        for name, (_, summary) in self.table.items():
            panel = panel_of.get(name)
            self.add_command(  # a stand-in
                typer.core.TyperCommand(name, help=summary, rich_help_panel=panel)
            )

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command that the arguments name and import it."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        return name, stand_in if name is None else self.load(name), rest

    def load(self, name: str) -> Any:
        """Import a command of the table and return it, or its group of commands."""
        target = getattr(import_module(f"afor.bench.cli.{self.table[name][0]}"), name)
        if isinstance(target, typer.Typer):
            return typer.main.get_command(target)
        single = typer.Typer(add_completion=False)
        add_command(single, name, target)
        return typer.main.get_command(single)


def lazy_group(
    table: Mapping[str, tuple[str, str]],
    panels: Mapping[str, Sequence[str]] | None = None,
    *,
    add_completion: bool = False,
    **attributes: Any,
) -> typer.Typer:
    """Return a group of commands.

    Args:
        table: The module below `cli` and the summary of each command. The module has a function, or
            a group of commands, of its name.
        panels: The names of the commands under each heading of `--help`.
        add_completion: Whether the group has the options that install the shell's completion.
        attributes: Further arguments of `typer.Typer`.
    """
    members = {"table": table, "panels": panels or {}}
    group = typer.Typer(
        cls=type("Group", (LazyGroup,), members),
        no_args_is_help=True,
        add_completion=add_completion,
        **attributes,
    )
    group.callback()(lambda: None)  # without one, typer takes no commands for no group
    return group


def add_command(app: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Add a function as a command; the help ends with the example of its docstring."""
    text, _, example = (inspect.getdoc(function) or "").partition(EXAMPLE)
    text = re.sub(r"(?<!\n)\n(?=[^\n -])", " ", text)  # rich keeps the ends of lines
    epilog = f"Example: {example.strip()}" if example else None
    app.command(name, help=text, epilog=epilog)(with_single_options(function))


def with_single_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command with one option per field of each parameter that is a dataclass."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    for parameter in inspect.signature(function).parameters.values():
        single = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        if is_dataclass(parameter.annotation):
            groups[parameter.name] = group = cast("type[Any]", parameter.annotation)
            parameters += [
                single.replace(name=field.name, default=field.default, annotation=field.type)
                for field in fields(group)
            ]
        else:
            parameters.append(single)

    @wraps(function)
    def command(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        function(**values)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command
