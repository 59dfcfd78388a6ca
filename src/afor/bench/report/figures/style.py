"""Define sizes, colours and markers of figures; they differ without colour vision too."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.common.files import write_output
from afor.bench.common.text import printable

MM = 1 / 25.4  # inches
COLUMN_MM = 88  # one column of the journals of this field
FORMATS = (".pdf", ".svg", ".png")
DPI = 300

# Okabe & Ito 2008: distinct for the common forms of colour blindness. Markers differ as well.
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, BLACK, GREY = "#0072B2", "#D55E00", "#CC79A7", "#000000", "#7F7F7F"
COLORS: Mapping[str, str] = MappingProxyType(
    {
        "adam": BLACK,
        "adamw": GREY,
        "radam": SKY,
        "adamp": GREEN,
        "sophia": PURPLE,
        "mars": ORANGE,
        "afor": VERMILION,
    }
)
MARKERS: Mapping[str, str] = MappingProxyType(
    {"adam": "s", "adamw": "D", "radam": "^", "adamp": "v", "sophia": "P", "mars": "X", "afor": "o"}
)
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
SHAPES = ("o", "s", "^", "D", "v", "P", "X", "*")

STYLE: Mapping[str, object] = MappingProxyType(
    {
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 7,
        "axes.titlesize": 7.5,
        "axes.labelsize": 7,
        "xtick.labelsize": 6.5,
        "ytick.labelsize": 6.5,
        "legend.fontsize": 6.5,
        "axes.linewidth": 0.6,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "lines.linewidth": 1.1,
        "legend.frameon": False,
        "grid.color": "#E3E3E3",
        "grid.linewidth": 0.5,
        "axes.axisbelow": True,
        "pdf.fonttype": 42,  # text stays text, which publishers ask for
        "svg.hashsalt": "afor",  # the same figure gives the same bytes
        "savefig.dpi": DPI,
        "figure.dpi": DPI,
    }
)


@contextmanager
def house_style() -> Iterator[None]:
    """Draw inside the block in the house style and leave matplotlib's settings as they were."""
    import matplotlib as mpl

    with mpl.rc_context(dict(STYLE)):
        yield


def new_figure(height_mm: float, *, rows: int = 1, columns: int = 1, **options: Any) -> Any:
    """Return (figure, axes as a 2-D array), one journal column wide; needs no display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN_MM * MM, height_mm * MM), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def save_figure(figure: Any, path: Path, *, dpi: int = DPI) -> None:
    """Write a figure; the suffix decides between PDF, SVG and PNG."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise ConfigError(f"{path}: a figure is written as {', '.join(FORMATS)}.")
    stamp = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(suffix, {})
    content = io.BytesIO()
    with house_style():
        figure.savefig(content, format=suffix[1:], metadata=stamp, dpi=dpi)
    write_output(path, content.getvalue())


def color_of(name: str, position: int = 0) -> str:
    """Return an optimizer's colour, the same in every figure."""
    return COLORS.get(name, CYCLE[position % len(CYCLE)])


def marker_of(name: str, position: int = 0) -> str:
    """Return an optimizer's marker, the same in every figure."""
    return MARKERS.get(name, SHAPES[position % len(SHAPES)])


def plain(text: str) -> str:
    """Return text that matplotlib prints as it is: no mathematics, no control characters."""
    return printable(text).replace("$", r"\$")
