import numpy as np
import pytest

from afor.bench.analyses.theory.summary import RUN_SOURCES, report
from afor.bench.analyses.theory.table import theory_table
from afor.bench.analyses.theory.theorem import Assumptions
from afor.bench.report.tables.formats import to_csv, to_latex, to_markdown


@pytest.fixture
def table():
    given = Assumptions(
        smoothness=2.0, gradient_bound=1.0, noise_sq=1.0, drift_sq=np.zeros(2), gap=3.0,
        parameters=4, start_norm=0.5, beta1=0.5, eps=1.0, weight_decay=0.5,
    )  # fmt: skip
    trace = {"a.weight": np.array([0.5, 0.5]), "a.bias": np.array([0.5, 0.5])}
    values = report(given, 0.01, trace, 0.2, title="by hand", sources=RUN_SOURCES)
    return theory_table(values)


def test_values_stand_beside_where_they_come_from(table):
    rows = {row.label: [cell.text for cell in row.cells] for row in table.rows}
    assert rows["smoothness L"] == ["2", "lower estimate: power iteration on secants"]
    assert rows["growth b₀"] == ["6", "2M²(1 + κ²)"]
    assert rows["weight decay χ"][0] == "2"
    assert rows["largest permitted"][0] == "0.003125"  # 0.125 / (2 · 20)
    assert rows["how many times too large"][0] == "3.2"
    assert rows["without a theorem"] == ["4", "N G²"]
    assert rows["memory of a, steps"][0] == "1.333"


def test_only_a_permitted_learning_rate_has_its_bound_claimed(table):
    rows = {row.label: [cell.text for cell in row.cells] for row in table.rows}
    assert rows["at the largest permitted η"][1] == "claimed"
    assert rows["at the η used"][1] == "not claimed"


def test_the_verdict_stands_below_in_every_form(table):
    assert "vacuous" in to_markdown(table)
    latex = to_latex(table)
    assert "vacuous" in latex
    assert latex.isascii()  # what LaTeX does not know stops it
    assert "largest_lr,0.003125" in to_csv(table)
