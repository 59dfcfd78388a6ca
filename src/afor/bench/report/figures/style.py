"""Define sizes, colours and markers of figures; they differ without colour vision too."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from afor.bench.common.errors import ConfigError
from afor.bench.common.files import write_output
from afor.bench.common.text import printable

MM = 1 / 25.4  # inches
COLUMN_MM, PAGE_MM = 88, 180  # one column and two columns of the journals of this field
NOTE = {"fontsize": 6, "color": "#444444"}  # of the text below a figure
FIGURE_SUFFIXES = (".pdf", ".svg", ".png")
DPI = 300

# Okabe & Ito 2008: distinct for the common forms of colour blindness. Markers differ as well.
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, BLACK, GREY = "#0072B2", "#D55E00", "#CC79A7", "#000000", "#7F7F7F"
COLORS: Mapping[str, str] = {
    "adam": BLACK, "adamw": GREY, "radam": SKY, "adamp": GREEN, "sophia": PURPLE, "mars": ORANGE,
    "afor": VERMILION,
}  # fmt: skip
MARKERS: Mapping[str, str] = {
    "adam": "s", "adamw": "D", "radam": "^", "adamp": "v", "sophia": "P", "mars": "X", "afor": "o",
}  # fmt: skip
COLOR_CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
MARKER_CYCLE = ("o", "s", "^", "D", "v", "P", "X", "*")

STYLE: Mapping[str, object] = {
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


@contextmanager
def house_style() -> Iterator[None]:
    """Draw inside the block in the house style and leave matplotlib's settings as they were."""
    import matplotlib as mpl

    with mpl.rc_context(dict(STYLE)):
        yield


def empty_figure(height_mm: float, width_mm: float = PAGE_MM) -> Any:
    """Return a figure without axes, two journal columns wide; needs no display."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_mm * MM, height_mm * MM), layout="constrained")


def new_figure(height_mm: float, *, rows: int = 1, columns: int = 1, **options: Any) -> Any:
    """Return (figure, axes as a 2-D array), one journal column wide."""
    figure = empty_figure(height_mm, COLUMN_MM)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def name_rows(axis: Any, labels: Sequence[str], **text: Any) -> None:
    """Write a label beside each row of an axis, the first on top."""
    axis.set_yticks(range(len(labels)), [plain(label) for label in labels], **text)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x")


def set_right_title(axis: Any, text: str) -> None:
    """Write a second, lighter title above the right end of an axis."""
    axis.set_title(text, loc="right", fontsize=6.5, fontweight="normal")


def legend_below(figure: Any, axis: Any, columns: int, **options: Any) -> Any:
    """Put the legend of an axis below the figure."""
    handles, labels = axis.get_legend_handles_labels()
    return figure.legend(handles, labels, loc="outside lower center", ncols=columns, **options)


def save_figure(figure: Any, path: Path, *, dpi: int = DPI) -> None:
    """Write a figure; the suffix decides between PDF, SVG and PNG."""
    suffix = path.suffix.lower()
    if suffix not in FIGURE_SUFFIXES:
        raise ConfigError(f"{path}: a figure is written as {', '.join(FIGURE_SUFFIXES)}.")
    stamp = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(suffix, {})
    content = io.BytesIO()
    with house_style():
        figure.savefig(content, format=suffix[1:], metadata=stamp, dpi=dpi)
    write_output(path, content.getvalue())


def color_at(position: int) -> str:
    """Return the colour of what stands at a position of a figure; colours repeat."""
    return COLOR_CYCLE[position % len(COLOR_CYCLE)]


def marker_at(position: int) -> str:
    """Return the marker of what stands at a position of a figure; markers repeat."""
    return MARKER_CYCLE[position % len(MARKER_CYCLE)]


def color_of(name: str, position: int = 0) -> str:
    """Return a method's colour, the same in every figure."""
    return COLORS.get(name, color_at(position))


def marker_of(name: str, position: int = 0) -> str:
    """Return a method's marker, the same in every figure."""
    return MARKERS.get(name, marker_at(position))


def plain(text: str) -> str:
    """Return text that matplotlib prints as it is: no mathematics, no control characters."""
    return printable(text).replace("$", r"\$")
