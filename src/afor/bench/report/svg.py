"""Put Matplotlib figures into a report, in the page's colours."""

import io
import re
from html import escape
from typing import Any

import matplotlib as mpl

from afor.bench.report.figures.style import STYLE

# What is drawn for white paper, in colours that show on a dark page as well.
PAGE_COLORS = {
    "#000000": "currentColor",
    "#444444": "var(--dim)",
    "#4d4d4d": "var(--dim)",
    "#555555": "var(--dim)",
    "#ffffff": "var(--bg)",
    "#d9d9d9": "#88888855",
    "#f2f2f2": "#88888822",
    "#e8e8e8": "#88888833",
    "#e3e3e3": "#88888844",
}


def inline_svg(figure: Any, name: str, label: str) -> str:
    """Return a Matplotlib figure as an `svg` element of any width, in the page's text colour.

    Args:
        figure: The figure.
        name: Its name on the page; it enters the ids of shapes, so that no two figures share one.
        label: What it shows, for readers who do not see it.
    """
    file = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", text)
    text = text.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    for color, shown in PAGE_COLORS.items():
        text = text.replace(color, shown)
    return text
