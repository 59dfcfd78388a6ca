"""The command ``afor shift``: what a change of subject does to AFOR's controller."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afor.bench.cli.study import CachePath, Json, Roots, StudyName, with_roots
from afor.bench.common.errors import ConfigError

if TYPE_CHECKING:
    from afor.bench.analyses.adaptation.shift import Shift
    from afor.bench.study.schema import Study

STATISTICS = ("paper", "calibrated")


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("shift")(shift)


def shift(
    name: StudyName,
    dataset: Annotated[str, typer.Option(help="[default: the first]")] = "",
    backbone: Annotated[str, typer.Option(help="[default: the first]")] = "",
    optimizer: Annotated[str, typer.Option(help="AFOR or one of its variants.")] = "afor",
    fold: Annotated[int, typer.Option(min=0, help="Whose training subjects are used.")] = 0,
    draw: Annotated[int, typer.Option(min=0)] = 0,
    subjects_per_block: Annotated[int, typer.Option(help="Subjects sampled at a time.")] = 1,
    batches_per_block: Annotated[int, typer.Option(help="Batches until they change.")] = 20,
    epochs: Annotated[int, typer.Option(help="How often each subject has a block.")] = 20,
    statistics: Annotated[
        str, typer.Option(help="paper or calibrated. [default: the study's]")
    ] = "",
    subject_shift: Annotated[
        float | None, typer.Option(help="Of synthetic subjects, instead of the study's.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help=".pdf, .svg or .png")] = Path(
        "shift.pdf"
    ),
    root: Roots = None,
    cache_dir: CachePath = None,
    json_: Json = False,
) -> None:
    """Test the claim: a change of subject raises the residual and shortens the memory."""
    import json

    from afor.bench.analyses.adaptation.shift import describe_shift, measure_shift
    from afor.bench.analyses.adaptation.shift_figure import shift_figure
    from afor.bench.analyses.replay import find_run
    from afor.bench.cli.analyses.memory import check_target
    from afor.bench.report.figures.style import save_figure
    from afor.bench.study.schema import load_study

    check_target(output)
    if statistics and statistics not in STATISTICS:
        raise ConfigError(f"--statistics {statistics}: accepted are {', '.join(STATISTICS)}.")
    study = with_roots(load_study(name), root)
    if subject_shift is not None:
        study = _with_subject_shift(study, dataset, subject_shift)
    chosen = find_run(
        study,
        dataset=dataset,
        backbone=backbone,
        optimizer=optimizer,
        fold=fold,
        draw=draw,
        cache_dir=cache_dir,
    )
    found = measure_shift(
        chosen,
        subjects_per_block=subjects_per_block,
        batches_per_block=batches_per_block,
        rounds=epochs,
        statistics=statistics,
        progress=lambda words: typer.echo(words, err=True),
    )
    save_figure(shift_figure(found), output)
    if json_:
        typer.echo(json.dumps({**describe_shift(found), "figure": str(output)}))
    else:
        _print(found)
        typer.echo(str(output))
    other = "paper" if found.statistics == "calibrated" else "calibrated"
    typer.echo(f"\nNext: afor shift {name} --statistics {other}", err=True)


def _print(found: "Shift") -> None:
    typer.echo(
        f"{found.place}: {found.events} changes of subject in {found.steps} steps, "
        f"{found.subjects_per_block} at a time for {found.batches_per_block} batches; "
        f"score statistics: {found.statistics}"
    )
    typer.echo("Mean over the first 10 batches after a change, blocks minus shuffled control:")
    for link in found.links:
        typer.echo(f"  {link.sentence}")


def _with_subject_shift(study: "Study", dataset: str, value: float) -> "Study":
    """Move the synthetic subjects apart, or together."""
    entries = []
    for entry in study.datasets:
        if entry.name == (dataset or study.datasets[0].name):
            if entry.use != "synthetic":
                raise ConfigError(
                    f"--subject-shift moves synthetic subjects; {entry.name} holds real ones."
                )
            options = {**entry.options, "shift": value}
            entries.append(entry.model_copy(update={"options": options}))
        else:
            entries.append(entry)
    return study.model_copy(update={"datasets": entries})
