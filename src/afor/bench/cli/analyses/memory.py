"""The command ``afor memory``: one AFOR run step by step, and when its controller wakes up."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afor.bench.cli.study import CachePath, Json, Roots, StudyName, with_roots
from afor.bench.common.errors import ConfigError

if TYPE_CHECKING:
    from afor.bench.analyses.adaptation.memory import Memory


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("memory")(memory)


def memory(
    name: StudyName,
    dataset: Annotated[str, typer.Option(help="[default: the first]")] = "",
    backbone: Annotated[str, typer.Option(help="[default: the first]")] = "",
    optimizer: Annotated[str, typer.Option(help="AFOR or one of its variants.")] = "afor",
    fold: int = 0,
    draw: int = 0,
    steps: Annotated[
        int, typer.Option(help="Train so long, without early stopping. [default: as the run did]")
    ] = 0,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Wake-up over steps: .pdf, .svg or .png")
    ] = Path("memory.pdf"),
    forgetting: Annotated[
        Path | None, typer.Option(help="Also the paper's figure of forgetting by layer.")
    ] = None,
    root: Roots = None,
    cache_dir: CachePath = None,
    json_: Json = False,
) -> None:
    """Train one run again and show beta2 and z-scores over steps, beside constant beta2."""
    import json

    from afor.bench.analyses.adaptation.memory import describe, watch_memory
    from afor.bench.analyses.adaptation.memory_figures import policy_figure, wake_figure
    from afor.bench.analyses.replay import find_run
    from afor.bench.report.figures.style import save_figure
    from afor.bench.study.schema import load_study

    for target in (output, forgetting):
        check_target(target)
    chosen = find_run(
        with_roots(load_study(name), root),
        dataset=dataset,
        backbone=backbone,
        optimizer=optimizer,
        fold=fold,
        draw=draw,
        cache_dir=cache_dir,
    )
    found = watch_memory(chosen, steps, lambda words: typer.echo(f"training: {words}", err=True))
    save_figure(wake_figure(found), output)
    if forgetting is not None:
        save_figure(policy_figure(found.printed, found.place), forgetting)
    if json_:
        figures = [str(path) for path in (output, forgetting) if path]
        typer.echo(json.dumps({**describe(found), "figures": figures}))
    else:
        _print(found)
        for path in (output, forgetting):
            if path is not None:
                typer.echo(str(path))
    typer.echo(f"\nNext: afor shift {name}", err=True)


def check_target(path: Path | None) -> None:
    """Refuse a figure that cannot be written, before the work and not after it."""
    from afor.bench.report.figures.style import FORMATS

    if path is not None and path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: a figure is written as {', '.join(FORMATS)}.")


def _print(found: "Memory") -> None:
    from afor.bench.analyses.adaptation.memory import COMPARED, describe

    numbers = describe(found)
    typer.echo(f"{found.place}: {numbers['steps']} steps")
    for form, label in (("printed", "as printed"), ("calibrated", "calibrated")):
        n = numbers[form]
        woke = f"from step {n['wake_step']} on" if n["wake_step"] else "never"
        typer.echo(
            f"  {label:<11} half of the tensors awake: {woke}; after the warm-up: "
            f"{100 * n['awake_share']:.0f} % awake, mean |z| {n['mean_abs_zscore']:.2f}, "
            f"beta2 {n['beta2_mean']:.4f}, SD {100 * n['beta2_sd_of_range']:.0f} % of its range"
        )
    typer.echo(f"Distance from {numbers['apart_from']}, relative to the way it travelled:")
    for name, apart in numbers["apart"].items():
        parted = apart["part_step"]
        since = f"above 10 % from step {parted} on" if parted else "never above 10 % for good"
        typer.echo(f"  {COMPARED[name]:<32} {100 * apart['last']:8.2f} % at the end, {since}")
