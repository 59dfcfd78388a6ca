"""``afor models``: the backbones and their size on every data set."""

import json
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("models")(models)


def models(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the table as JSON instead.")
    ] = False,
) -> None:
    """Show the backbones with their parameters and tensors on every data set."""
    rows = model_table()
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    _print_table(rows)
    typer.echo(
        "A study can also name any module:Class that is called with the input's shape,\n"
        "and braindecode:Name where braindecode imports.\n"
        "Next: afor optimizers"
    )


def model_table() -> list[dict[str, Any]]:
    """Return one row per backbone: its name, kind, paper and size per data set."""
    import torch

    from afor.bench.backbones import BACKBONES, DATASET_SHAPES, build_backbone

    rows = []
    # Sizes need no weights: nothing is allocated on the meta device, and no random number drawn.
    with torch.device("meta"):
        for name in BACKBONES:
            sizes = {}
            for dataset, shape in DATASET_SHAPES.items():
                parameters = list(build_backbone(name, shape).parameters())
                sizes[dataset] = {
                    "parameters": sum(p.numel() for p in parameters),
                    "tensors": len(parameters),
                }
            kind, source = _SOURCES[name]
            rows.append({"name": name, "kind": kind, "source": source, "sizes": sizes})
    return rows


# Kinds as in the paper, Sec. IV-D.
_SOURCES = {
    "eegnet": ("CNN", "Lawhern 2018"),
    "acrnn": ("RNN", "Tao 2023"),
    "nsal_dgat": ("GNN", "Yang 2025"),
    "hslt": ("Transformer", "Wang 2022"),
}


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from afor.bench.backbones import DATASET_SHAPES

    # Narrow enough for 80 columns: kind and source stand under and beside the name.
    table = Table(
        title="Backbones: trainable parameters / tensors",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("backbone", no_wrap=True)
    for dataset, shape in DATASET_SHAPES.items():
        heading = f"{dataset}\n{shape.channels} × {shape.samples}"
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        sizes = [f"{s['parameters']:,} / {s['tensors']}" for s in row["sizes"].values()]
        table.add_row(f"[bold]{row['name']}[/] {row['kind']}\n[dim]{row['source']}[/]", *sizes)
    Console().print(table)
