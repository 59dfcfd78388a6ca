"""The command ``afor doctor``: what works on this machine."""

import json
from dataclasses import asdict

import typer

from afor.bench.cli.options import Json
from afor.bench.cli.terminal import print_next
from afor.bench.common.doctor import examine
from afor.bench.store.locations import FOLDER


def doctor(as_json: Json = False) -> None:
    """Check this machine: what works, and how to fix the rest.

    Example:
        afor doctor
    """
    findings = list(examine(FOLDER))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            typer.echo(f"{finding.verdict:<8} {finding.subject:<15} {finding.text}")
    if any(finding.verdict == "broken" for finding in findings):
        raise typer.Exit(code=1)
    print_next("afor demo")
