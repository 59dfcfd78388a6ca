"""``afor models``: the backbones and their size on every data set."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from afor.bench.models.input_shape import InputShape


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
        "NAME_authors is the network as the AFOR authors released it; the presets of the\n"
        "paper use these. * with repair = true: as released it gives NaN for any input of\n"
        "fewer than 12 channels and is refused. -: no regions for this many channels.\n"
        "A study can also name any module:Class that is called with the input's shape,\n"
        "and braindecode:Name where braindecode imports.\n"
        "Next: afor optimizers"
    )


def model_table() -> list[dict[str, Any]]:
    """Return one row per backbone: its name, kind, family, source and size per data set.

    Where the network as it stands refuses a data set, its size has `settings`, those with which it
    accepts it, or is None.
    """
    import torch

    from afor.bench.models.input_shape import DATASET_SHAPES
    from afor.bench.models.registry import BACKBONES
    from afor.bench.study.schema import paper_backbone

    rows = []
    # Sizes need no weights: nothing is allocated on the meta device, and no random number drawn.
    with torch.device("meta"):
        for name in BACKBONES:
            sizes = {dataset: _size(name, shape) for dataset, shape in DATASET_SHAPES.items()}
            kind, source = _SOURCES[paper_backbone(name)]
            released = paper_backbone(name) != name
            rows.append(
                {
                    "name": name,
                    "kind": kind,
                    "family": "authors" if released else "original",
                    "source": "AFOR authors" if released else source,
                    "sizes": sizes,
                }
            )
    return rows


def _size(name: str, shape: "InputShape") -> dict[str, Any] | None:
    from afor.bench.common.errors import ConfigError
    from afor.bench.models.registry import build_backbone

    for settings in ({}, {"repair": True}):
        try:
            parameters = list(build_backbone(name, shape, **settings).parameters())
        except ConfigError:
            continue
        size = {"parameters": sum(p.numel() for p in parameters), "tensors": len(parameters)}
        return {**size, "settings": settings} if settings else size
    return None


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

    from afor.bench.models.input_shape import DATASET_SHAPES

    # Narrow enough for 80 columns: kind and source stand under the name, tensors under parameters.
    table = Table(
        title="Backbones: trainable parameters and tensors",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("backbone", no_wrap=True)
    for dataset, shape in DATASET_SHAPES.items():
        heading = f"{dataset}\n{shape.channels} × {shape.samples}"
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        sizes = [_size_text(size) for size in row["sizes"].values()]
        released = row["family"] == "authors"  # of the same kind as the network above
        source = row["source"] if released else f"{row['kind']}, {row['source']}"
        table.add_row(f"[bold]{row['name']}[/]\n[dim]{source}[/]", *sizes)
    Console().print(table)


def _size_text(size: dict[str, Any] | None) -> str:
    if size is None:
        return "-"
    mark = "*" if "settings" in size else ""
    return f"{size['parameters']:,}{mark}\n[dim]{size['tensors']} tensors[/]"
