"""The section of a report that shows a loss landscape."""

from afor.bench.analyses.landscape.figure import landscape_figure
from afor.bench.analyses.landscape.record import Landscape, content_of
from afor.bench.analyses.landscape.table import landscape_table
from afor.bench.analyses.landscape.text import findings
from afor.bench.report.page import Section


def landscape_section(measured: Landscape) -> Section:
    """Return the figure, the findings and the table of a landscape as a section."""
    return Section(
        name="landscape",
        title="Loss landscape",
        figure=landscape_figure(measured),
        caption=f"{measured.label}; {measured.directions} directions. One run, not a mean.",
        findings=findings(measured),
        table=landscape_table(content_of(measured)),
    )
