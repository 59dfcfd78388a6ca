"""``afor theory``: Sec. VI evaluated, on a problem where all is known or on a run of a study."""

from pathlib import Path
from typing import Annotated, Any

import typer

from afor.bench.cli.printing import FORMATS, by_suffix, choose, render
from afor.bench.cli.study import CachePath, Json
from afor.bench.common.errors import ConfigError

FIGURES = (".pdf", ".svg", ".png")


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("theory")(theory)


def theory(
    study: Annotated[
        str | None,
        typer.Argument(help="A preset or TOML file, one run of which is trained again; none: toy."),
    ] = None,
    dataset: Annotated[str, typer.Option(help="Of the study. [default: its first]")] = "",
    backbone: Annotated[str, typer.Option(help="Of the study. [default: its first]")] = "",
    optimizer: Annotated[str, typer.Option(help="AFOR or a variant of it.")] = "afor",
    fold: Annotated[int, typer.Option(min=0, help="Of the study.")] = 0,
    draw: Annotated[int, typer.Option(min=0, help="Of the study.")] = 0,
    eps: Annotated[float, typer.Option(help="Toy: AFOR's ε.")] = 1e-8,
    weight_decay: Annotated[float, typer.Option(help="Toy: λ.")] = 1e-4,
    lr: Annotated[float, typer.Option(help="Toy: learning rate; 0: the largest permitted.")] = 1e-3,
    steps: Annotated[int, typer.Option(max=1_000_000, help="Toy: length of the training.")] = 500,
    form: Annotated[
        str | None, typer.Option("--format", "-f", help=f"{', '.join(FORMATS)}.")
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            help="A table (.md .tex .csv .txt), the values (.json) or a figure (.pdf .svg .png): "
            "of the toy the bound over ε, of a run what its second moment remembers; repeatable.",
        ),
    ] = None,
    cache_dir: CachePath = None,
    as_json: Json = False,
) -> None:
    """Evaluate the constants, the step-size condition and the bound of Theorem 1."""
    import json

    if form is not None:
        choose(form, FORMATS, "--format")
    from afor.bench.analyses.theory.table import theory_table

    targets = output or []
    pictures = [target for target in targets if target.suffix.lower() in FIGURES]
    if study is None:
        values, drawn = _toy(eps, weight_decay, lr, steps, draws_figure=bool(pictures))
    else:
        values, drawn = _run(study, dataset, backbone, optimizer, fold, draw, cache_dir)
    built = theory_table(values)
    text = json.dumps(values, indent=1, ensure_ascii=False)
    if as_json:
        typer.echo(text)
    elif form or len(pictures) == len(targets):
        typer.echo(render(built, form or "terminal", standalone=False).rstrip("\n"))
    from afor.bench.common.output_files import write_output

    for target in targets:
        if target in pictures:
            from afor.bench.report.figures.style import save_figure

            save_figure(drawn(), target)
        elif by_suffix(target) == "json":
            write_output(target, text + "\n")
        else:
            table = render(built, by_suffix(target), standalone=False, to_file=True)
            write_output(target, table)
        typer.echo(str(target), err=True)
    typer.echo(f"\nNext: {'afor theory demo' if study is None else 'afor cost'}", err=True)


def _toy(
    eps: float, weight_decay: float, lr: float, steps: int, *, draws_figure: bool
) -> tuple[dict[str, Any], Any]:
    from afor.bench.analyses.theory.summary import TOY_SOURCES, report
    from afor.bench.analyses.theory.toy import judge_toy, make_toy, sweep_eps

    if not eps > 0 or weight_decay < 0 or lr < 0 or steps < 1:
        raise ConfigError(
            "--eps must be above 0, --weight-decay and --lr 0 or above, --steps at least 1; "
            f"found {eps:g}, {weight_decay:g}, {lr:g} and {steps}."
        )
    toy = make_toy()
    judged = judge_toy(toy, eps=eps, weight_decay=weight_decay, steps=steps, lr=lr)
    values = report(
        judged.given,
        judged.lr,
        {"weights": judged.run.beta2},
        float(judged.run.grad_sq.mean()),
        title="logistic regression with known constants",
        sources=TOY_SOURCES,
    )

    def draw_figure() -> Any:
        from afor.bench.analyses.theory.figure import toy_figure

        return toy_figure(
            {decay: sweep_eps(toy, weight_decay=decay, steps=steps) for decay in (0.0, 1e-4)}
        )

    if draws_figure:
        typer.echo("Training the toy over a range of ε ...", err=True)
    return values, draw_figure


def _run(
    name: str,
    dataset: str,
    backbone: str,
    optimizer: str,
    fold: int,
    draw: int,
    cache_dir: Path | None,
) -> tuple[dict[str, Any], Any]:
    from afor.bench.analyses.replay import find_run
    from afor.bench.analyses.theory.run import estimate_run
    from afor.bench.analyses.theory.summary import RUN_SOURCES, report
    from afor.bench.study.schema import load_study

    chosen = find_run(
        load_study(name),
        dataset=dataset,
        backbone=backbone,
        optimizer=optimizer,
        fold=fold,
        draw=draw,
        cache_dir=cache_dir,
    )
    typer.echo(f"Training again: {chosen.place} ...", err=True)
    found = estimate_run(chosen)
    values = report(
        found.given,
        found.lr,
        {name: found.beta2[:, i] for i, name in enumerate(found.tensors)},
        sum(probe.grad_sq for probe in found.probes) / len(found.probes),
        title=chosen.place,
        sources=RUN_SOURCES,
    )

    def draw_figure() -> Any:
        from afor.bench.analyses.theory.figure import memory_figure

        title = f"What v remembers after {len(found.beta2):,} steps"
        return memory_figure(found.beta2, found.tensors, title)

    return values, draw_figure
