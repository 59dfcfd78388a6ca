"""Pictures of a report: they take the page's colours and name what the pointer is on."""

import io
import re
from html import escape
from typing import Any

from afor.bench.report.tables.formats import printable
from afor.bench.stats.groups import Condition, paired_fold_values
from afor.bench.stats.labels import metric_label, metric_scale, optimizer_label, signed

# What is drawn for white paper, in colours that show on a dark page as well.
PAGE_COLORS = {
    "#000000": "currentColor",
    "#444444": "#808790",
    "#555555": "#808790",
    "#d9d9d9": "#88888855",
    "#e3e3e3": "#88888844",
}
WIDTH, ROW, TOP, BOTTOM, LEFT, RIGHT = 560, 15, 26, 34, 92, 16


def inline_svg(figure: Any, name: str) -> str:
    """Return a matplotlib figure as SVG that takes the page's text colour; no ids are shared."""
    import matplotlib as mpl

    from afor.bench.report.figures.style import STYLE

    file = io.StringIO()
    # The salt enters the ids of shapes, which must differ between the figures of a page.
    with mpl.rc_context({**STYLE, "svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    for color, shown in PAGE_COLORS.items():
        text = text.replace(color, shown)
    return text


def folds_svg(condition: Condition, baseline: Condition, metric: str) -> str:
    """Draw both results of every fold; each row names its subjects and both numbers."""
    folds, ours, theirs = paired_fold_values(condition, baseline, metric)
    if not folds:
        return ""
    scale = metric_scale(metric)
    subjects = {fold: run.test_subjects for (fold, _), run in condition.runs.items()}
    order = sorted(range(len(folds)), key=lambda i: ours[i] - theirs[i], reverse=True)
    values = [scale * float(value) for value in (*ours, *theirs)]
    low, high = min(values), max(values)
    pad = max((high - low) * 0.06, 0.5)
    low, high = low - pad, high + pad

    def x(value: float) -> float:
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    height = TOP + ROW * len(order) + BOTTOM
    name, base = (
        escape(optimizer_label(condition.optimizer)),
        escape(optimizer_label(baseline.optimizer)),
    )
    parts = [
        f'<svg class="folds" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{name} and {base}, fold by fold">',
        f'<circle cx="{LEFT + 6}" cy="11" r="3.5" class="base"/>'
        f'<text x="{LEFT + 14}" y="15">{base}</text>'
        f'<circle cx="{LEFT + 126}" cy="11" r="4" class="ours"/>'
        f'<text x="{LEFT + 134}" y="15">{name}</text>',
    ]
    bottom = TOP + ROW * len(order)
    for tick in _ticks(low, high):
        place = f"{x(tick):.1f}"
        parts.append(
            f'<line class="grid" x1="{place}" x2="{place}" y1="{TOP - 4}" y2="{bottom}"/>'
            f'<text x="{place}" y="{bottom + 13}" text-anchor="middle">{tick:g}</text>'
        )
    for row, i in enumerate(order):
        y = TOP + ROW * (row + 0.5)
        who = [printable(subject) for subject in subjects[folds[i]]]
        label = who[0] if len(who) == 1 else f"fold {folds[i]}"
        title = (
            f"{', '.join(who)} (fold {folds[i]}): {printable(optimizer_label(condition.optimizer))} "
            f"{scale * ours[i]:.2f}, {printable(optimizer_label(baseline.optimizer))} "
            f"{scale * theirs[i]:.2f}, difference {signed(scale * (ours[i] - theirs[i]))}"
        )
        kind = "up" if ours[i] >= theirs[i] else "down"
        short = label if len(label) <= 12 else label[:11] + "…"
        parts.append(
            f'<g class="fold" data-subjects="{escape(", ".join(who))}">'
            f"<title>{escape(title)}</title>"
            f'<rect x="0" y="{y - ROW / 2:.1f}" width="{WIDTH}" height="{ROW}" class="hit"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(short)}</text>'
            f'<line class="{kind}" x1="{x(scale * theirs[i]):.1f}" x2="{x(scale * ours[i]):.1f}" '
            f'y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<circle cx="{x(scale * theirs[i]):.1f}" cy="{y:.1f}" r="3.5" class="base"/>'
            f'<circle cx="{x(scale * ours[i]):.1f}" cy="{y:.1f}" r="4" class="ours"/></g>'
        )
    unit = " (%)" if scale != 1 else ""
    parts.append(
        f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{height - 4}" text-anchor="middle">'
        f"{escape(metric_label(metric))}{unit}</text></svg>"
    )
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50):
        if (high - low) / step <= 7:
            break
    first = int(low // step) + 1
    return [round(step * k, 6) for k in range(first, int(high // step) + 1)]
