"""The command ``afor hypergradient``: would another beta2 lower the validation loss soon?"""

from dataclasses import asdict
from typing import Annotated

import numpy as np
import typer

from afor.bench.analyses.headroom.hypergradient import measure_hypergradient
from afor.bench.cli.analyses.run_selection import select_run
from afor.bench.cli.options import Json, RunOptions, StudyName, option
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.study.schema import load_study


def hypergradient(
    options: RunOptions,
    name: StudyName,
    optimizer: Annotated[str, option("An entry of AdamW of the study.")] = "adamw",
    horizon: Annotated[int, option("Number of steps to unroll.", min=1)] = 20,
    starts: Annotated[int, option("Number of steps of the run at which to unroll.", min=1)] = 8,
    last: Annotated[int, option("Last of these steps.", min=1)] = 200,
    as_json: Json = False,
) -> None:
    """Differentiate the validation loss with respect to beta2.

    One run of AdamW is trained again. From several of its steps on, the next steps are unrolled
    with beta2 as a variable, and the validation loss after them is differentiated with respect to
    ln(1 - beta2). A negative derivative means that a shorter memory would have been better.

    Example:
        afor hypergradient demo --horizon 10 --starts 4 --last 60
    """
    run = select_run(load_study(name), options, optimizer)
    steps = np.unique(np.linspace(last / starts, last, starts).round().astype(int))
    measured = measure_hypergradient(run, [max(1, int(step)) for step in steps], horizon)
    low, high = measured.interval
    if as_json:
        content = {**asdict(measured), "mean": measured.mean, "low": low, "high": high}
        print_json(content, indent=None)
    else:
        typer.echo(f"{measured.label}: beta2 = {measured.beta2:g}, {horizon} steps unrolled")
        for start, loss, derivative in zip(
            measured.starts, measured.losses, measured.derivatives, strict=True
        ):
            typer.echo(
                f"  from step {start:>6}: validation loss {loss:.4f}, derivative "
                f"{1000 * derivative:+.3f}·10⁻³ nats per unit of ln(1 − beta2)"
            )
        told = "a shorter memory is better" if high < 0 else "a longer memory is better"
        verdict = told if low > 0 or high < 0 else "cannot be told from zero"
        typer.echo(
            f"  mean {1000 * measured.mean:+.3f}·10⁻³ nats, 95 % over the starts "
            f"{1000 * low:+.3f} to {1000 * high:+.3f}: {verdict}"
        )
    print_next("afor run headroom, then afor headroom headroom")
