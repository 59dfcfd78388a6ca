"""The command ``afor memory``: one AFOR run step by step, and when its controller is active."""

from pathlib import Path
from typing import Annotated, Any

import typer

from afor.bench.analyses.adaptation.memory import COMPARED, Memory, describe, watch_memory
from afor.bench.analyses.adaptation.memory_figures import memory_figure
from afor.bench.cli.analyses.run_selection import select_run
from afor.bench.cli.options import AforVariant, Json, RunOptions, StudyName, option
from afor.bench.cli.printing import check_figures
from afor.bench.cli.studies.selection import resolve_study
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.report.figures.style import save_figure


def memory(
    options: RunOptions,
    name: StudyName,
    optimizer: AforVariant = "afor",
    steps: Annotated[
        int, option("Number of steps to train, without early stopping; 0 trains as the run does.")
    ] = 0,
    output: Annotated[
        Path,
        option("Figure of beta2 and z-scores over steps: .pdf, .svg or .png.", "--output", "-o"),
    ] = Path("memory.pdf"),
    as_json: Json = False,
) -> None:
    """Show beta2 and z-scores of one run step by step.

    The run is trained again, beside the same run with constant beta2.

    Example:
        afor memory demo --output memory.pdf
    """
    check_figures([output])
    run = select_run(resolve_study(name), options, optimizer)
    watched = watch_memory(run, steps, lambda words: typer.echo(f"training: {words}", err=True))
    save_figure(memory_figure(watched), output)
    if as_json:
        print_json({**describe(watched), "figure": str(output)}, indent=None)
    else:
        _print(watched)
        typer.echo(str(output))
    print_next(f"afor shift {name}")


def _print(watched: Memory) -> None:
    numbers = describe(watched)
    typer.echo(f"{watched.label}: {numbers['steps']} steps")
    for form, label in (("printed", "as printed"), ("calibrated", "calibrated")):
        n = numbers[form]
        since = f"from step {n['active_step']} on" if n["active_step"] else "never"
        typer.echo(
            f"  {label:<11} half of the tensors active: {since}; after the warm-up: "
            f"{100 * n['active_share']:.0f} % active, mean |z| {n['mean_abs_zscore']:.2f}, "
            f"beta2 {n['beta2_mean']:.4f}, SD {100 * n['beta2_sd_of_range']:.0f} % of its range"
        )
    typer.echo(f"Distance from {numbers['apart_from']}, relative to the way it travelled:")
    for name, apart in numbers["apart"].items():
        typer.echo(f"  {COMPARED[name]:<32} {_distance_text(apart)}")
    typer.echo(
        f"Distance of {COMPARED['printed']} from {COMPARED['inactive']}, the adaptation alone:"
    )
    typer.echo(f"  {COMPARED['printed']:<32} {_distance_text(numbers['adaptation'])}")


def _distance_text(apart: dict[str, Any]) -> str:
    parted = apart["part_step"]
    since = f"above 10 % from step {parted} on" if parted else "never above 10 % for good"
    return f"{100 * apart['last']:8.2f} % at the end, {since}"
