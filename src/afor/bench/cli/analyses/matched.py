"""The command ``afor matched``: a study that holds AdamW at AFOR's own mean beta2."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import typer

from afor.bench.analyses.adaptation.matched import Weighting, matched_study
from afor.bench.analyses.replay import find_run
from afor.bench.cli.options import CacheDir, Json, Results, Roots, Trust
from afor.bench.cli.studies.selection import with_roots
from afor.bench.cli.terminal import print_next
from afor.bench.common.errors import ConfigError
from afor.bench.common.files import write_output
from afor.bench.store.database import Store, open_store
from afor.bench.store.locations import find_store
from afor.bench.study.named_code import refuse_stored_code
from afor.bench.study.schema import parse_study

AVERAGES = get_args(Weighting)


def matched(
    results: Results,
    output: Annotated[Path, typer.Option("--output", "-o", help="The TOML file to write.")] = Path(
        "matched.toml"
    ),
    dataset: Annotated[
        str, typer.Option(help="Data set of the store.", show_default="the only one")
    ] = "",
    backbone: Annotated[
        str, typer.Option(help="Backbone of the store.", show_default="the only one")
    ] = "",
    study: Annotated[
        str, typer.Option(help="Study of the store.", show_default="the only one")
    ] = "",
    optimizer: Annotated[
        str, typer.Option(help="The optimizer whose mean beta2 is used.")
    ] = "afor",
    average: Annotated[
        str,
        typer.Option(
            help="What beta2 is averaged over: tensors (each counts once) or elements (each tensor "
            "counts by its size)."
        ),
    ] = "tensors",
    root: Roots = None,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Write a study of AdamW at AFOR's mean beta2.

    The mean is taken from the finished AFOR runs of a store. The study compares AFOR with AdamW at
    one constant for all tensors, and at one constant per tensor.

    Example:
        afor matched demo --output matched.toml
    """
    if average not in AVERAGES:
        raise ConfigError(f"--average cannot be {average!r}. Accepted: {', '.join(AVERAGES)}.")
    path = find_store(results)
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
            run_names = (made.store_study, made.dataset, made.backbone, optimizer)
            made = make(sizes=_sizes(opened, *run_names, root, cache_dir))
    write_output(output, made.toml)
    if as_json:
        names = ("dataset", "backbone", "optimizer", "runs", "steps", "beta2", "weighting")
        content = {name: getattr(made, name) for name in names}
        content |= {"beta2_by_tensor": dict(made.beta2_by_tensor), "output": str(output)}
        typer.echo(json.dumps(content))
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
    print_next(f"afor run {output} --store {path}, then {judge}")


def _sizes(
    store: Store,
    study: str,
    dataset: str,
    backbone: str,
    optimizer: str,
    root: list[str] | None,
    cache_dir: Path | None,
) -> Mapping[str, int]:
    """Return the number of elements of each tensor; builds the network, which needs the data."""
    stored = with_roots(parse_study(store.studies()[study], str(store.path)), root)
    run = find_run(
        stored,
        dataset=dataset,
        backbone=backbone,
        optimizer=optimizer,
        fold=_first(stored.protocol.only_folds),
        draw=_first(stored.protocol.only_draws),
        cache_dir=cache_dir,
    )
    return {name: p.numel() for name, p in run.make_model().named_parameters()}


def _first(numbers: list[int] | None) -> int:
    return min(numbers) if numbers else 0
