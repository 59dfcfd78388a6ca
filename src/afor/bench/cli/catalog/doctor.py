"""The command ``afor doctor``: what works on this machine."""

from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain
from typing import Annotated

import typer

from afor.bench.cli.options import Json, option
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.common.doctor import Finding, examine, examine_gpus
from afor.bench.store.locations import FOLDER


def doctor(
    as_json: Json = False,
    gpu: Annotated[
        bool,
        option("Also compare AFOR's fused step on each GPU with the paper's equations.", "--gpu"),
    ] = False,
) -> None:
    """Check this machine: what works, and how to fix the rest.

    Example:
        afor doctor --gpu
    """
    checks: list[Iterable[Finding]] = [examine(FOLDER)]
    if gpu:
        checks.append(examine_gpus())
    findings = []
    for finding in chain.from_iterable(checks):
        findings.append(finding)
        if not as_json:
            typer.echo(f"{finding.status:<8} {finding.subject:<15} {finding.text}")
    if as_json:
        print_json([asdict(finding) for finding in findings])
    if any(finding.status == "broken" for finding in findings):
        raise typer.Exit(code=1)
    if not any(f.subject == "extra bench" and f.status == "missing" for f in findings):
        print_next("afor demo")
