"""The command ``afor models``: the backbones and their sizes on every data set."""

import json
import re
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from afor.bench.cli.options import backbones
from afor.bench.cli.terminal import print_json
from afor.bench.common.errors import ConfigError
from afor.bench.common.module_search import look_beside
from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.input_shape import InputShape
from afor.bench.study.schema import paper_backbone

# The 10-20 system, then further electrodes of the 10-10 system.
ELECTRODES = (
    "Fp1", "Fp2", "F7", "F3", "Fz", "F4", "F8", "T7", "C3", "Cz", "C4", "T8", "P7", "P3", "Pz",
    "P4", "P8", "O1", "O2", "FC5", "FC1", "FC2", "FC6", "CP5", "CP1", "CP2", "CP6", "AF3", "AF4",
    "PO3", "PO4", "Oz", "FC3", "FCz", "FC4", "C5", "C1", "C2", "C6", "CP3", "CPz", "CP4", "P1",
    "P2", "POz", "F1", "F2", "F5", "F6", "P5", "P6", "AF7", "AF8", "AFz", "FT7", "FT8", "TP7",
    "TP8", "PO7", "PO8", "Fpz", "TP9", "TP10", "Iz",
)  # fmt: skip


def models(
    name: Annotated[str | None, tuple(backbones())] = None,
    *,
    braindecode: str = "",
    redundant: bool = False,
    as_json: bool = False,
) -> None:
    """List the backbones with their sizes on every data set.

    The sizes are the numbers of trainable parameters and of tensors. With --braindecode the
    networks of that package are built for one shape; those that do not fit have the reason.

    Args:
        name: Show only this backbone: a name of the table, module:Class or braindecode:Name.
        braindecode: CHANNELSxSAMPLES@RATE,CLASSES: list the networks of braindecode that fit
            windows of this shape instead, such as 22x500@250,4. The channels are the first of the
            10-20 system.
        redundant: Find the tensors of this backbone that cannot change what it computes in
            training, such as biases before a batch norm.

    Example:
        afor models --json
    """
    if braindecode:
        _print_braindecode(parse_shape(braindecode), as_json=as_json)
        return
    if redundant:
        _print_redundant(name, as_json=as_json)
        return
    rows = [row for row in model_table() if name in (None, row["name"])]
    if name is not None and not rows:
        rows = [_row_of_code(name)]
    if as_json:
        print_json(rows, indent=2)
        return
    _print_table(rows)
    typer.echo(
        "NAME_authors is the network as the AFOR authors released it; the presets of the\n"
        "paper use these. *: with repair = true; as released it gives NaN for inputs of\n"
        "fewer than 12 channels and is refused. -: not for this many channels.\n"
        "A study can also name any module:Class that is called with the input's shape,\n"
        "and braindecode:Name if braindecode is installed.\n"
        "Next: afor optimizers"
    )


def parse_shape(text: str) -> InputShape:
    """Read the shape of a window, such as ``22x500@250,4``.

    >>> parse_shape("3x500@250,4").channel_names
    ('Fp1', 'Fp2', 'F7')
    """
    match = re.fullmatch(r"(\d+)x(\d+)@([\d.]+),(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= len(ELECTRODES):
        raise ConfigError(
            f"--braindecode {text}: expected CHANNELSxSAMPLES@RATE,CLASSES with up to "
            f"{len(ELECTRODES)} channels, such as 19x500@250,4."
        )
    names = ELECTRODES[: int(match[1])]
    return InputShape(names, int(match[2]), float(match[3]), int(match[4]))


def _print_braindecode(shape: InputShape, *, as_json: bool) -> None:
    """Build every network of braindecode for a shape, try it, and say which fit."""
    import torch

    from afor.bench.models.registry import build_backbone, import_braindecode

    rows: list[dict[str, Any]] = []
    for name in import_braindecode():
        try:
            with redirect_stdout(sys.stderr):  # some networks print
                network = build_backbone(f"braindecode:{name}", shape).eval()
                with torch.inference_mode():
                    found = tuple(network(torch.zeros(2, shape.channels, shape.samples)).shape)
            if found != (2, shape.classes):
                raise ConfigError(f"returns {found} for two windows, not one logit per class")
        except Exception as error:  # noqa: BLE001  anybody's code, which may refuse in any way
            reason = " ".join(str(error.__cause__ or error).split())[:100] or type(error).__name__
            rows.append({"name": f"braindecode:{name}", "parameters": None, "reason": reason})
        else:
            count = sum(p.numel() for p in network.parameters())
            rows.append({"name": f"braindecode:{name}", "parameters": count, "reason": ""})
    if as_json:
        print_json(rows, indent=2)
        return
    for row in rows:
        size = "-" if row["parameters"] is None else f"{row['parameters']:,}"
        typer.echo(f"{row['name']:<40} {size:>12}  {row['reason']}".rstrip())
    fitting = sum(row["parameters"] is not None for row in rows)
    typer.echo(
        f"{fitting} of {len(rows)} fit {shape.channels} × {shape.samples} samples at "
        f"{shape.rate_hz:g} Hz with {shape.classes} classes; the sizes are trainable parameters."
    )


def _print_redundant(name: str | None, *, as_json: bool) -> None:
    """Print the redundant tensors, on the first data set that a network takes."""
    if name is None:
        raise ConfigError("--redundant needs a backbone, such as `afor models eegnet --redundant`.")
    from afor.bench.models.redundant import gradients
    from afor.bench.models.registry import build_backbone, check_backbone

    look_beside(Path.cwd() / name)
    check_backbone(name, {})
    sizes = recorded_sizes().get(name) or _row_of_code(name)["sizes"]
    dataset = next((key for key, size in sizes.items() if size and "settings" not in size), None)
    if dataset is None:
        raise ConfigError(f"Backbone {name!r} takes the windows of no data set of the table.")
    shape = DATASET_SHAPES[dataset]
    rows = gradients(lambda: build_backbone(name, shape), shape)
    found = [row for row in rows if row.redundant]
    if as_json:
        print_json([{**asdict(row), "redundant": row.redundant} for row in rows], indent=2)
        return
    for row in found:
        typer.echo(f"{row.name}: {row.numbers} numbers, gradient {row.size:.1e} of the largest")
    typer.echo(
        f"{len(found)} of {len(rows)} tensors of {name} do not change what it computes in training "
        f"(windows of {dataset}); decay or rounding may still move them."
        if found
        else f"All {len(rows)} tensors of {name} change what it computes in training ({dataset})."
    )


def model_table() -> list[dict[str, Any]]:
    """Describe every backbone.

    If a network refuses a data set, its size names the `settings` with which it accepts it, or is
    None.
    """
    rows = []
    for name, sizes in recorded_sizes().items():
        architecture, source = _SOURCES[paper_backbone(name)]
        released = paper_backbone(name) != name
        rows.append(
            {
                "name": name,
                "kind": architecture,
                "family": "authors" if released else "original",
                "source": "AFOR authors" if released else source,
                "sizes": sizes,
            }
        )
    return rows


def _row_of_code(name: str) -> dict[str, Any]:
    """Describe a network that is not in the table; this imports and builds it."""
    from afor.bench.models.registry import build_backbone, check_backbone

    look_beside(Path.cwd() / name)  # a module of one's own in the current folder
    check_backbone(name, {})
    sizes: dict[str, dict[str, int] | None] = {}
    for dataset, shape in DATASET_SHAPES.items():
        try:
            tensors = list(build_backbone(name, shape).parameters())
        except Exception:  # noqa: BLE001  anybody's code, which may refuse a shape in any way
            sizes[dataset] = None
        else:
            count = sum(tensor.numel() for tensor in tensors)
            sizes[dataset] = {"parameters": count, "tensors": len(tensors)}
    module = name.partition(":")[0]
    return {"name": name, "kind": "", "family": "other", "source": module, "sizes": sizes}


def recorded_sizes() -> dict[str, dict[str, dict[str, Any] | None]]:
    """Return the sizes of every backbone by data set, as `tools/model_sizes.py` recorded them.

    Building the networks would take as long as importing torch does.
    """
    text = files("afor.bench.models").joinpath("sizes.json").read_text("utf-8")
    sizes: dict[str, dict[str, dict[str, Any] | None]] = json.loads(text)
    return sizes


# Kinds as in the paper, Sec. IV-D.
_SOURCES = {
    "eegnet": ("CNN", "Lawhern 2018"),
    "acrnn": ("RNN", "Tao 2023"),
    "nsal_dgat": ("GNN", "Yang 2025"),
    "hslt": ("Transformer", "Wang 2022"),
}


def _print_table(rows: list[dict[str, Any]]) -> None:
    # To fit 80 columns, kind and source stand below the name, and tensors below parameters.
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
        is_original = row["family"] == "original"  # others are of the kind of the network above
        source = f"{row['kind']}, {row['source']}" if is_original else row["source"]
        table.add_row(f"[bold]{row['name']}[/]\n[dim]{source}[/]", *sizes)
    Console().print(table)


def _size_text(size: dict[str, Any] | None) -> str:
    if size is None:
        return "-"
    mark = "*" if "settings" in size else ""
    return f"{size['parameters']:,}{mark}\n[dim]{size['tensors']} tensors[/]"
