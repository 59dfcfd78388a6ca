"""The command ``afor facts``: computed properties of the equations and the released code."""

from typing import Annotated

import typer

from afor.bench.analyses.facts import FACTS
from afor.bench.cli.options import Json, argument
from afor.bench.cli.printing import choose
from afor.bench.cli.terminal import print_json


def facts(
    name: Annotated[
        str | None, argument(f"One of the properties: {', '.join(FACTS)}.", show_default="all four")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute four properties of the paper's equations.

    Each is a property of the printed equations or of the released networks.

    Example:
        afor facts burst
    """
    names = tuple(FACTS) if name is None else (choose(name, tuple(FACTS), "the fact"),)
    computed = []
    for each in names:
        if not as_json:
            typer.echo(f"Computing {each} ...", err=True)
        computed.append(FACTS[each]())
    if as_json:
        print_json([vars(fact) for fact in computed], ensure_ascii=False)
        return
    for fact in computed:
        typer.echo(f"{fact.name}\n  {fact.statement}")
        for key, value in fact.values.items():
            typer.echo(f"  {key}: {_text(value)}")
        typer.echo(f"  Limits: {fact.limits}\n")
    typer.echo("Next: docs/explanation/paper-tables.md explains them; afor theory", err=True)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key} {_text(entry)}" for key, entry in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)
