"""The command ``afor doctor``: what works on this machine."""

from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain
from typing import Annotated

import typer

from afor.bench.cli.options import Json, option
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.common.doctor import Finding, examine
from afor.bench.store.locations import FOLDER


def doctor(
    as_json: Json = False,
    gpu: Annotated[
        bool,
        option(
            "Also check AFOR on the GPU, in two minutes: steps against the equations, graph "
            "capture, GradScaler, a small training twice, throughput.",
            "--gpu",
        ),
    ] = False,
) -> None:
    """Check this machine: what works, and how to fix the rest.

    The output of --gpu is made to be pasted into an issue.

    Example:
        afor doctor --gpu
    """
    checks: list[Iterable[Finding]] = [examine(FOLDER)]
    if gpu:
        from afor.bench.execution.gpu_check import check_gpu

        checks.append(check_gpu())
    findings = []
    for finding in chain.from_iterable(checks):
        findings.append(finding)
        if not as_json:
            typer.echo(f"{finding.verdict:<8} {finding.subject:<15} {finding.text}")
    if as_json:
        print_json([asdict(finding) for finding in findings])
    if any(finding.verdict == "broken" for finding in findings):
        raise typer.Exit(code=1)
    print_next("afor demo")
