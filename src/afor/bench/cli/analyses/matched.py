"""The command ``afor matched``: a study that holds AdamW at AFOR's own mean beta2."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afor.bench.cli.study import CachePath, Json, Roots, StudyName, Trust, with_roots
from afor.bench.common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from afor.bench.store.database import Store

WEIGHTS = ("tensors", "elements")


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("matched")(matched)


def matched(
    store: StudyName,
    output: Annotated[Path, typer.Option("--output", "-o", help="The TOML to write.")] = Path(
        "matched.toml"
    ),
    dataset: Annotated[str, typer.Option(help="[default: the only one]")] = "",
    backbone: Annotated[str, typer.Option(help="[default: the only one]")] = "",
    study: Annotated[str, typer.Option(help="Of several in the store.")] = "",
    optimizer: Annotated[str, typer.Option(help="Whose mean beta2 is taken.")] = "afor",
    average: Annotated[
        str, typer.Option(help="Over tensors, one vote each, or over their elements.")
    ] = "tensors",
    root: Roots = None,
    cache_dir: CachePath = None,
    json_: Json = False,
    trust: Trust = False,
) -> None:
    """Write a study with AFOR beside AdamW at AFOR's mean beta2, from a finished store."""
    import json
    from functools import partial

    from afor.bench.analyses.adaptation.matched import matched_study
    from afor.bench.store.database import open_store
    from afor.bench.store.locations import find_store
    from afor.bench.study.named_code import refuse_stored_code

    if average not in WEIGHTS:
        raise ConfigError(f"--average {average} is not known. Accepted: {', '.join(WEIGHTS)}.")
    path = find_store(store)
    with open_store(path) as opened:
        make = partial(
            matched_study,
            opened,
            study=study,
            dataset=dataset,
            backbone=backbone,
            optimizer=optimizer,
        )
        made = make()
        if not trust:
            refuse_stored_code(made.study, str(path))
        if average == "elements":
            place = (made.store_study, made.dataset, made.backbone, optimizer)
            sizes = _sizes(opened, *place, root, cache_dir)
            made = make(sizes=sizes)
    from afor.bench.common.output_files import write_output

    write_output(output, made.toml)
    if json_:
        names = ("dataset", "backbone", "optimizer", "runs", "steps", "beta2", "weighting")
        found = {name: getattr(made, name) for name in names}
        found |= {"beta2_by_tensor": dict(made.beta2_by_tensor), "output": str(output)}
        typer.echo(json.dumps(found))
    else:
        width = max(map(len, made.beta2_by_tensor))
        typer.echo(
            f"Mean beta2 of {made.optimizer} on {made.dataset} × {made.backbone}: {made.runs} "
            f"runs, {made.steps} steps"
        )
        for name, beta2 in made.beta2_by_tensor.items():
            typer.echo(f"  {name:<{width}}  {beta2:.6f}")
        typer.echo(f"  {'over ' + made.weighting:<{width}}  {made.beta2:.6f}\n{output}")
    judge = f"afor stats {path} --study {made.study.name} --baseline adamw_mean_per_tensor"
    typer.echo(f"\nNext: afor run {output} --store {path}, then {judge}", err=True)


def _sizes(
    store: "Store",
    study: str,
    dataset: str,
    backbone: str,
    optimizer: str,
    root: list[str] | None,
    cache_dir: Path | None,
) -> "Mapping[str, int]":
    """Build the network to count the elements of its tensors; needs the data's shape."""
    from afor.bench.analyses.replay import find_run
    from afor.bench.study.schema import parse_study

    stored = with_roots(parse_study(store.studies()[study], str(store.path)), root)
    chosen = find_run(
        stored,
        dataset=dataset,
        backbone=backbone,
        optimizer=optimizer,
        fold=_first(stored.protocol.only_folds),
        draw=_first(stored.protocol.only_draws),
        cache_dir=cache_dir,
    )
    return {name: p.numel() for name, p in chosen.make_model().named_parameters()}


def _first(numbers: list[int] | None) -> int:
    return min(numbers) if numbers else 0
