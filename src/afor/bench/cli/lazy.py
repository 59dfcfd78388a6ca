"""A group of commands whose modules are imported when a command is called.

Importing the modules of all commands takes seconds. The group knows the name and the summary of
each command, which is all that `afor --help` and shell completion show of them.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from importlib import import_module
from typing import Any, ClassVar, cast

import typer
import typer.core
import typer.main

EXAMPLE = "\n\nExample:\n"  # starts the last section of a command's docstring


class LazyGroup(typer.core.TyperGroup):
    """A group with a table of commands: name to (module below `cli`, summary).

    The module has a function, or a group of commands, of the same name.
    """

    table: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, summary) in self.table.items():
            self.add_command(typer.core.TyperCommand(name, help=summary))  # a stand-in

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


def add_command(app: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Add a function as a command; the help ends with the example of its docstring."""
    text, _, example = (inspect.getdoc(function) or "").partition(EXAMPLE)
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
