"""Draw the blocks of the four backbones and the regions of HSLT.

    python docs/figures/backbones.py     writes docs/images/backbone_*.png

The shapes under the boxes are those of DEAP: 32 channels, 128 samples, 2 classes.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch

from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.regions import canonical_name, electrode_positions, region_indices

IMAGES = Path(__file__).resolve().parents[1] / "images"

FILL = {
    "data": "#eef1f5",
    "filter": "#cfe3f7",
    "norm": "#dcefe0",
    "attention": "#fbe3c4",
    "recurrent": "#f6d4dd",
    "linear": "#e3daf3",
}
EDGE = {
    "data": "#8a94a3",
    "filter": "#3f7db8",
    "norm": "#4d9a63",
    "attention": "#c8842a",
    "recurrent": "#bb4f72",
    "linear": "#7a5cb0",
}
INK, MUTED = "#1d2733", "#5b6674"


@dataclass(frozen=True)
class Box:
    """One block: its name, what it does, the shape it hands on."""

    name: str
    detail: str
    shape: str
    colour: str  # a key of FILL and EDGE


WIDTH, HEIGHT, GAP, PITCH = 2.2, 0.92, 0.34, 1.86


def draw_box(axes: Axes, box: Box, x: float, y: float) -> None:
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            WIDTH,
            HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.09",
            facecolor=FILL[box.colour],
            edgecolor=EDGE[box.colour],
            linewidth=1.2,
        )
    )
    middle = x + WIDTH / 2
    axes.text(
        middle, y + HEIGHT * 0.71, box.name,
        ha="center", va="center", fontsize=9.5, color=INK, fontweight="bold",
    )  # fmt: skip
    axes.text(
        middle, y + HEIGHT * 0.32, box.detail,
        ha="center", va="center", fontsize=8, color=INK, linespacing=1.15,
    )  # fmt: skip
    axes.text(middle, y - 0.17, box.shape, ha="center", va="center", fontsize=8, color=MUTED)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], bend: str = "") -> None:
    style = {"arrowstyle": "-|>", "color": MUTED, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    if bend:
        style["connectionstyle"] = bend
    axes.annotate("", xy=end, xytext=start, arrowprops=style)


def draw_row(axes: Axes, boxes: list[Box], y: float, label: str = "", first: int = 0) -> None:
    """Draw boxes from left to right, ``first`` columns in, with arrows between them."""
    for column, box in enumerate(boxes):
        x = (first + column) * (WIDTH + GAP)
        draw_box(axes, box, x, y)
        if column:
            arrow(axes, (x - GAP, y + HEIGHT / 2), (x, y + HEIGHT / 2))
    if label:
        axes.text(
            first * (WIDTH + GAP), y + HEIGHT + 0.2, label,
            fontsize=9.5, color=MUTED, va="center", style="italic",
        )  # fmt: skip


def canvas(columns: int, top: float) -> tuple[plt.Figure, Axes]:
    """Return an empty drawing for boxes up to ``top``, the upper end of the highest one."""
    width = columns * (WIDTH + GAP) - GAP
    figure, axes = plt.subplots(figsize=(0.84 * (width + 0.16), 0.84 * (top + 0.4)))
    axes.set_xlim(-0.08, width + 0.08)
    axes.set_ylim(-0.32, top + 0.08)
    axes.set_aspect("equal")
    axes.axis("off")
    return figure, axes


def turn(axes: Axes, columns: int, y: float) -> None:
    """Lead from the end of the row above to the start of the row at ``y``."""
    right = (columns - 1) * (WIDTH + GAP) + WIDTH / 2
    left, middle = WIDTH / 2, y + HEIGHT + 0.42
    above = y + PITCH - 0.3
    axes.plot([right, right, left], [above, middle, middle], color=MUTED, linewidth=1.2)
    arrow(axes, (left, middle), (left, y + HEIGHT))


def save(figure: plt.Figure, name: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGES / f"{name}.png", dpi=130, bbox_inches="tight", facecolor="white")
    plt.close(figure)


def eegnet() -> None:
    top, mix, statistics, bottom = 3 * PITCH + 0.3, 2 * PITCH + 0.05, PITCH + 0.25, 0.0
    figure, axes = canvas(columns=5, top=top + HEIGHT + 0.3)
    window = Box("window", "x", "32 × 128", "data")
    draw_row(
        axes,
        [
            window,
            Box("temporal conv", "8 filters of fs/2,\non every channel", "8 × 32 × 128", "filter"),
            Box("batch norm", "per filter", "8 × 32 × 128", "norm"),
            Box("spatial conv", "depthwise, over\nall channels", "16 × 128", "filter"),
        ],
        top,
        "first block, plain form",
    )
    draw_row(
        axes,
        [
            window,
            Box("mix channels", "z = W·x", "16 × 128", "filter"),
            Box("temporal filter", "h·γ/σ on every z", "16 × 128", "filter"),
        ],
        mix,
        "first block, fast form: the same numbers",
    )
    column = WIDTH + GAP
    moments = Box("second moments", "mean, variance of the\nfiltered channels", "8 + 8", "norm")
    draw_box(axes, moments, column, statistics)
    level = statistics + HEIGHT / 2
    axes.plot([WIDTH / 2, WIDTH / 2], [mix - 0.3, level], color=MUTED, linewidth=1.2)
    arrow(axes, (WIDTH / 2, level), (column, level))
    beyond = 2 * column + WIDTH / 2
    axes.plot([column + WIDTH, beyond], [level, level], color=MUTED, linewidth=1.2)
    arrow(axes, (beyond, level), (beyond, mix - 0.3))
    draw_row(
        axes,
        [
            Box("norm, ELU", "pool 4, dropout", "16 × 32", "norm"),
            Box("depthwise conv", "16 taps per map", "16 × 32", "filter"),
            Box("pointwise conv", "16 → 16", "16 × 32", "filter"),
            Box("norm, ELU", "pool 8, dropout", "16 × 4", "norm"),
            Box("linear", "max-norm 0.25", "2 logits", "linear"),
        ],
        bottom,
        "the rest, in both forms",
    )
    save(figure, "backbone_eegnet")


def acrnn() -> None:
    figure, axes = canvas(columns=4, top=PITCH + HEIGHT)
    draw_row(
        axes,
        [
            Box("window", "x", "32 × 128", "data"),
            Box(
                "channel attention",
                "time mean → 15 → 32,\nsoftmax, multiply",
                "32 × 128",
                "attention",
            ),
            Box("convolution", "40 filters, all channels\n× 45 samples", "40 × 84", "filter"),
            Box("ELU, max pool", "75, stride 10;\nmap dropout", "40 × 1", "norm"),
        ],
        PITCH,
    )
    turn(axes, 4, 0)
    draw_row(
        axes,
        [
            Box("LSTM", "2 layers, 64 units,\none time step", "64", "recurrent"),
            Box("self-attention", "softmax over features\nof s∘h, multiply", "64", "attention"),
            Box("dropout", "0.5, twice", "64", "norm"),
            Box("linear", "64 → 2", "2 logits", "linear"),
        ],
        0,
    )
    save(figure, "backbone_acrnn")


def nsal_dgat() -> None:
    top, middle = 2 * PITCH, PITCH
    figure, axes = canvas(columns=5, top=top + HEIGHT + 0.3)
    draw_row(
        axes,
        [
            Box("random vector", "fixed, in the\nstate dict", "1024", "data"),
            Box("linear, ELU", "1024 → 8", "8", "linear"),
            Box("linear", "8 → 1024,\ntanh, ReLU", "32 × 32", "linear"),
            Box("adjacency", "+ identity,\ncolumns sum to 1", "32 × 32", "attention"),
        ],
        top,
        "the graph, learned",
    )
    draw_row(
        axes,
        [
            Box("window", "x", "32 × 128", "data"),
            Box("band entropies", "FFT, 5 bands,\nbatch norm", "5 × 32", "filter"),
            Box("graph layer 1", "conv 3, norm, ELU,\n× adjacency, + input", "5 × 32", "filter"),
            Box("graph layer 2", "the same", "5 × 32", "filter"),
        ],
        middle,
    )
    column = WIDTH + GAP
    source, junction = 3 * column + WIDTH / 2, middle + HEIGHT + 0.36
    arrow(axes, (source, top - 0.3), (source, middle + HEIGHT))
    axes.plot([source, source - column], [junction, junction], color=MUTED, linewidth=1.2)
    arrow(axes, (source - column, junction), (source - column, middle + HEIGHT))
    turn(axes, 4, 0)
    draw_row(
        axes,
        [
            Box("concatenate", "input and both\noutputs", "15 × 32", "data"),
            Box("CBAM", "weigh maps, then\nelectrodes; + input", "15 × 32", "attention"),
            Box("linear, ReLU", "480 → 64, dropout", "64", "linear"),
            Box("linear, ReLU", "64 → 64, dropout", "64", "linear"),
            Box("linear", "64 → 2", "2 logits", "linear"),
        ],
        0,
    )
    save(figure, "backbone_nsal_dgat")


def hslt() -> None:
    figure, axes = canvas(columns=4, top=PITCH + HEIGHT)
    draw_row(
        axes,
        [
            Box("window", "x", "32 × 128", "data"),
            Box("tokenizer", "8 filters, norm,\nlog power", "32 × 8", "filter"),
            Box("9 regions", "linear 8, class token,\nposition", "9 × (4 to 6) × 8", "data"),
            Box(
                "2 blocks each", "attention among a\nregion's electrodes", "9 × 4 × 8", "attention"
            ),
        ],
        PITCH,
    )
    turn(axes, 4, 0)
    draw_row(
        axes,
        [
            Box("merge", "linear 32 → 16", "9 × 16", "linear"),
            Box("regions", "class token,\nposition", "10 × 16", "data"),
            Box("2 blocks", "attention among\nregions", "10 × 16", "attention"),
            Box("linear", "class token → 2", "2 logits", "linear"),
        ],
        0,
    )
    save(figure, "backbone_hslt")


def regions() -> None:
    """Draw every data set's regions on a head seen from above, nose up."""
    positions = electrode_positions()
    colours = list(plt.get_cmap("tab10").colors)
    figure, panels = plt.subplots(1, 4, figsize=(12.4, 3.4))
    for axes, (dataset, shape) in zip(panels, DATASET_SHAPES.items(), strict=True):
        axes.add_patch(Circle((0, 0), 1.0, fill=False, edgecolor="#aab2bd", linewidth=1.4))
        axes.plot([-0.12, 0, 0.12], [0.99, 1.13, 0.99], color="#aab2bd", linewidth=1.4)
        crowded = shape.channels > 40
        for number, region in enumerate(region_indices(shape.channel_names)):
            for index in region:
                name = shape.channel_names[index]
                x, y = flat(positions[canonical_name(name)])
                axes.add_patch(
                    Circle((x, y), 0.082 if crowded else 0.105, color=colours[number % 10])
                )
                axes.text(
                    x, y - 0.004, name, ha="center", va="center",
                    fontsize=4.6 if crowded else 6.2, color="white", fontweight="bold",
                )  # fmt: skip
        axes.set_title(f"{dataset}: {len(region_indices(shape.channel_names))} regions", color=INK)
        axes.set_xlim(-1.27, 1.27)
        axes.set_ylim(-1.16, 1.16)
        axes.set_aspect("equal")
        axes.axis("off")
    figure.tight_layout()
    save(figure, "backbone_hslt_regions")


def flat(position: tuple[float, float, float]) -> tuple[float, float]:
    """Unroll a position on the scalp onto a disc whose rim is the ears' height."""
    # Relative to the centre of the head, in metres.
    x, y, z = position[0], position[1] + 0.018, position[2] - 0.004
    radius = math.hypot(x, y)
    inclination = math.atan2(radius, z) / (math.pi / 2)
    scale = 0.86 * inclination / max(radius, 1e-9)
    return x * scale, y * scale


def main() -> None:
    plt.rcParams["font.family"] = "DejaVu Sans"
    for draw in (eegnet, acrnn, nsal_dgat, hslt, regions):
        draw()


if __name__ == "__main__":
    main()
