"""The command ``afor analyse shift``: how AFOR's controller responds to a change of subject."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from afor.bench.analyses.adaptation.shift import Shift, describe_shift, measure_shift
from afor.bench.analyses.adaptation.shift_figure import shift_figure
from afor.bench.cli.analyses.run_selection import select_run
from afor.bench.cli.options import AforVariant, Json, RunOptions, StudyName, option
from afor.bench.cli.printing import check_figures
from afor.bench.cli.studies.selection import resolve_study
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.report.figures.style import save_figure


def shift(
    options: RunOptions,
    name: StudyName,
    optimizer: AforVariant = "afor",
    batches_per_block: Annotated[int, option("Number of batches until the subjects change.")] = 20,
    rounds: Annotated[int, option("Number of blocks of each subject.")] = 20,
    statistics: Annotated[
        Literal["paper", "calibrated"] | None,
        option("Statistics of the score.", show_default="the study's"),
    ] = None,
    output: Annotated[
        Path, option("Figure to write: .pdf, .svg or .png.", "--output", "-o")
    ] = Path("shift.pdf"),
    as_json: Json = False,
) -> None:
    """Measure how AFOR responds to a change of subject.

    This tests the paper's claim that a change of subject raises the residual and shortens the
    memory. The subjects of training batches change in blocks; a shuffled order is the control.

    Example:
        afor analyse shift demo --statistics calibrated
    """
    check_figures([output])
    run = select_run(resolve_study(name), options, optimizer)
    measured = measure_shift(
        run,
        batches_per_block=batches_per_block,
        rounds=rounds,
        statistics=statistics or "",
        progress=lambda words: typer.echo(words, err=True),
    )
    save_figure(shift_figure(measured), output)
    if as_json:
        print_json({**describe_shift(measured), "figure": str(output)}, indent=None)
    else:
        _print(measured)
        typer.echo(str(output))
    other = "paper" if measured.statistics == "calibrated" else "calibrated"
    print_next(f"afor analyse shift {name} --statistics {other}")


def _print(measured: Shift) -> None:
    typer.echo(
        f"{measured.label}: {measured.events} changes of subject in {measured.steps} steps, "
        f"{measured.subjects_per_block} at a time for {measured.batches_per_block} batches; "
        f"score statistics: {measured.statistics}"
    )
    typer.echo("Mean over the first 10 batches after a change, blocks minus shuffled control:")
    for link in measured.links:
        typer.echo(f"  {link.sentence}")
