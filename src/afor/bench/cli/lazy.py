"""A group of commands whose modules are imported when a command is called.

Importing the modules of all commands takes seconds. The group knows the name and the summary of
each command, which is all that `afor --help` and shell completion show of them.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import wraps
from importlib import import_module
from typing import Annotated, Any, ClassVar, cast, get_args, get_origin

import typer
import typer.core
import typer.main

from afor.bench.cli import options

EXAMPLE, ARGS = "\n\nExample:\n", "\n\nArgs:\n"  # start sections of a docstring
_ARGUMENT = re.compile(r"^ {4}(\w+): (.*?)(?=^ {4}\w|\Z)", re.MULTILINE | re.DOTALL)


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
    text = re.sub(r"(?<!\n)\n(?=[^\n -])", " ", text.partition(ARGS)[0])  # rich keeps ends of lines
    epilog = f"Example: {example.strip()}" if example else None
    app.command(name, help=text, epilog=epilog)(with_single_options(function))


def with_single_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command with all that typer shows of its parameters, one per field of a group."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    for parameter in inspect.signature(function).parameters.values():
        if is_dataclass(parameter.annotation):
            groups[parameter.name] = group = cast("type[Any]", parameter.annotation)
            parameters += _of_group(group)
        else:
            is_argument = parameter.kind is not inspect.Parameter.KEYWORD_ONLY
            parameters.append(_declared(parameter, function, is_argument=is_argument))

    @wraps(function)
    def command(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        function(**values)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _of_group(group: type[Any]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a group; fields that are not keyword-only are arguments."""
    for field in fields(group):
        owner = next(c for c in group.__mro__ if field.name in inspect.get_annotations(c))
        parameter = inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=field.type,
        )
        yield _declared(parameter, owner, is_argument=not field.kw_only)


def help_texts(owner: object) -> dict[str, str]:
    """Return the texts of the section `Args` of a docstring by parameter."""
    section = (inspect.getdoc(owner) or "").partition(ARGS)[2].partition("\n\n")[0]
    return {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(section)}


def _declared(
    parameter: inspect.Parameter, owner: object, *, is_argument: bool
) -> inspect.Parameter:
    """Return a parameter with the help text in the docstring of its owner.

    A text that ends with "[default: WORDS]" says what leaving it out means; "{values}" in it stands
    for the values that the shell completes.
    """
    name, kind = parameter.name, parameter.annotation
    values = options.VALUES.get(name)
    if get_origin(kind) is Annotated:  # with values of its own
        kind, listed = get_args(kind)
        values = lambda: listed  # noqa: E731
    text = help_texts(owner).get(name) or options.TEXTS.get(name, "")
    text, _, shown = text.partition(" [default: ")
    settings: dict[str, Any] = {"help": text, "rich_help_panel": vars(owner).get("PANEL")}
    settings |= options.SETTINGS.get(name, {})
    names = settings.pop("names", ())
    if shown:
        settings["show_default"] = shown.removesuffix("]")
    if values is not None:
        settings["autocompletion"] = completing(values)
        settings["help"] = text.replace("{values}", ", ".join(values()))
    if not is_argument and not names and parameter.default is False:
        names = (f"--{name.replace('_', '-')}",)  # without its opposite
    info = typer.Argument(**settings) if is_argument else typer.Option(*names, **settings)
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info])


def completing(values: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return the function that completes a word in the shell to the values that begin with it."""
    return lambda incomplete: sorted(value for value in values() if value.startswith(incomplete))
