"""The command ``afor doctor``: what works here."""

import typer

from afor.bench.cli.study import Json


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("doctor")(doctor)


def doctor(json_: Json = False) -> None:
    """Say what works on this machine and what to do about what does not."""
    import json
    from dataclasses import asdict

    from afor.bench.common.doctor import examine
    from afor.bench.store.locations import FOLDER

    findings = list(examine(FOLDER))
    if json_:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            typer.echo(f"{finding.verdict:<8} {finding.subject:<15} {finding.text}")
    if any(finding.verdict == "broken" for finding in findings):
        raise typer.Exit(code=1)
    typer.echo("\nNext: afor demo", err=True)
