"""The command ``afor analyse matched``: a study that holds AdamW at AFOR's own mean beta2."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import typer

from afor.bench.analyses.adaptation.matched import MatchedStudy, Weighting, matched_study
from afor.bench.analyses.replay import find_run
from afor.bench.cli.options import CacheDir, Json, Results, Roots, Trust, option
from afor.bench.cli.printing import choose
from afor.bench.cli.studies.selection import with_roots
from afor.bench.cli.terminal import print_json, print_next
from afor.bench.common.files import write_output
from afor.bench.store.database import Store, open_store
from afor.bench.store.locations import find_store
from afor.bench.study.named_code import refuse_stored_code
from afor.bench.study.schema import parse_study

AVERAGES = get_args(Weighting)


def matched(
    results: Results,
    output: Annotated[Path, option("The TOML file to write.", "--output", "-o")] = Path(
        "matched.toml"
    ),
    dataset: Annotated[str, option("Data set of the store.", show_default="the only one")] = "",
    backbone: Annotated[str, option("Backbone of the store.", show_default="the only one")] = "",
    study: Annotated[str, option("Study of the store.", show_default="the only one")] = "",
    optimizer: Annotated[str, option("The optimizer whose mean beta2 is used.")] = "afor",
    average: Annotated[
        str,
        option(
            "What beta2 is averaged over: tensors (each counts once) or elements (each tensor "
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
        afor analyse matched demo --output matched.toml
    """
    choose(average, AVERAGES, "--average")
    path = find_store(results)
    with open_store(path) as opened:
        make = partial(matched_study, opened, study, dataset, backbone, optimizer)
        made = make()
        if not trust:
            refuse_stored_code(made.study, str(path))
        if average == "elements":
            made = make(sizes=_sizes(opened, made, root, cache_dir))
    write_output(output, made.toml)
    if as_json:
        shown = ("dataset", "backbone", "optimizer", "runs", "steps", "beta2", "weighting")
        content = {name: getattr(made, name) for name in shown}
        content |= {"beta2_by_tensor": dict(made.beta2_by_tensor), "output": str(output)}
        print_json(content, indent=None)
    else:
        width = max(map(len, made.beta2_by_tensor))
        typer.echo(
            f"Mean beta2 of {made.optimizer} on {made.dataset} × {made.backbone}: {made.runs} "
            f"runs, {made.steps} steps"
        )
        for name, beta2 in made.beta2_by_tensor.items():
            typer.echo(f"  {name:<{width}}  {beta2:.6f}")
        typer.echo(f"  {'over ' + made.weighting:<{width}}  {made.beta2:.6f}\n{output}")
    judge = f"afor judge {path} --study {made.study.name} --baseline adamw_mean_per_tensor"
    print_next(f"afor run {output} --store {path}, then {judge}")


def _sizes(
    store: Store, made: MatchedStudy, root: list[str] | None, cache_dir: Path | None
) -> Mapping[str, int]:
    """Return the number of elements of each tensor; builds the network, which needs the data."""
    study = with_roots(parse_study(store.studies()[made.store_study], str(store.path)), root)
    run = find_run(
        study,
        dataset=made.dataset,
        backbone=made.backbone,
        optimizer=made.optimizer,
        fold=min(study.protocol.only_folds or [0]),
        draw=min(study.protocol.only_draws or [0]),
        cache_dir=cache_dir,
    )
    return {name: p.numel() for name, p in run.make_model().named_parameters()}
