import base64
import csv
import io
import re

import pytest

from afor.bench.common.text import escape_cell, unescape_cell
from afor.bench.report.tables.formats import Table, to_csv
from afor.bench.stats.results import Results
from afor.bench.store.files import load_results, results_csv
from afor.bench.store.files import to_csv as rows_csv
from afor.bench.store.results import RunResult

HOSTILE = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "a\r=1", "'=1", "''@x"]


@pytest.mark.parametrize("text", [*HOSTILE, "adam", "-0.5", "1e-3", "-inf", "", "'", "it's"])
def test_every_text_comes_back_and_none_begins_a_formula(text):
    escaped = escape_cell(text)
    assert unescape_cell(escaped) == text.replace("\r", "\n")
    is_number = text in ("-0.5", "1e-3", "-inf")
    assert is_number or not escaped.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert escape_cell(-0.5) == -0.5


def result(name, fold=0):
    return RunResult("s", "d", "b", name, fold, 0, ("x",), {"accuracy": -0.5}, 0.5, 2, 10, "k")


def cells_of(text):
    return [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]


def test_no_csv_that_is_written_holds_a_formula(tmp_path):
    runs = [result(name) for name in HOSTILE]
    table = Table("t", "t", (), (), records=tuple({"=h": name, "mean": -1.0} for name in HOSTILE))
    texts = [results_csv(runs), to_csv(table), rows_csv([{"reason": name} for name in HOSTILE])]
    for text in texts:
        for cell in cells_of(text):
            assert not cell.startswith(("=", "+", "@", "\t", "\r"))
            assert not cell.startswith("-") or float(cell) < 0
    file = tmp_path / "runs.csv"
    file.write_bytes(texts[0].encode())
    assert [run.method for run in load_results([file])[0]] == [
        name.replace("\r", "\n") for name in HOSTILE
    ]


def test_downloads_inside_the_report_hold_no_formula():
    pytest.importorskip("jinja2")
    from afor.bench.report.page import render_report

    runs = [result(name, fold) for name in ("adam", "=HYPERLINK(1)") for fold in range(3)]
    page = render_report(Results.of(runs, metrics=["accuracy"]))
    links = re.findall(r"data:text/csv;charset=utf-8;base64,([A-Za-z0-9+/=]+)", page)
    assert len(links) > 1
    for link in links:
        text = base64.b64decode(link).decode()
        assert not any(cell.startswith("=") for cell in cells_of(text))
