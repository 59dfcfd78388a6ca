"""``afor facts``: properties of the paper's equations and of the released code, computed."""

import json
from typing import Annotated

import typer

from afor.bench.cli.printing import choose
from afor.bench.cli.study import Json

NAMES = ("nsal-dgat", "mean-beta2", "burst", "no-fast-channel")


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("facts")(facts)


def facts(
    name: Annotated[
        str | None, typer.Argument(help=f"{', '.join(NAMES)}. [default: all four]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show four properties of the printed equations and the released networks by computing them."""
    names = NAMES if name is None else (choose(name, NAMES, "the fact"),)
    from afor.bench.analyses.facts import FACTS

    found = []
    for each in names:
        if not as_json:
            typer.echo(f"Computing {each} ...", err=True)
        found.append(FACTS[each]())
    if as_json:
        typer.echo(json.dumps([vars(fact) for fact in found], indent=1, ensure_ascii=False))
        return
    for fact in found:
        typer.echo(f"{fact.name}\n  {fact.statement}")
        for key, value in fact.values.items():
            typer.echo(f"  {key}: {_text(value)}")
        typer.echo(f"  Fairly: {fact.fairly}\n")
    typer.echo("Next: docs/explanation/paper-tables.md explains them; afor theory", err=True)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key} {_text(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)
