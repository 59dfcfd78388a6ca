import csv
import io
import json
import os
import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from afor.bench.report.tables.formats import (
    Column,
    Row,
    Table,
    TableCell,
    escape_latex,
    escape_markdown,
    to_csv,
    to_json,
    to_latex,
    to_markdown,
    to_terminal,
)
from afor.bench.report.tables.main import main_table
from afor.bench.report.tables.paper import beside_paper_table
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.results import Results

NASTY = "<script>alert(1)</script> 50% & a_b $x$ #1 \\ {y} ~ ^ | [red]*\n\x1b[31m"
TABLE = Table(
    name="main",
    title=f"A title with {NASTY}",
    columns=(Column("Acc", "EEGNet"), Column("wF1", "EEGNet"), Column("Acc", NASTY)),
    rows=(
        Row(NASTY, heading=True),
        Row(
            "Adam", (TableCell("60.90±7.48"), TableCell("52.58±9.79", second=True), TableCell("–"))
        ),
        Row(
            NASTY,
            (
                TableCell("62.94±7.25", best=True, star=True),
                TableCell("54.59±9.34", mark="≈"),
                TableCell("61.00±7.00", partial="3/10"),
            ),
        ),
        Row("Majority class", (TableCell("1"), TableCell("2"), TableCell("3")), rule=True),
    ),
    notes=(f"* a note {NASTY}",),
    records=({"name": NASTY, "value": 0.1}, {"name": "b", "value": float("nan"), "more": 1}),
)


def as_text(table, width=200, styled=False):
    console = Console(
        width=width,
        force_terminal=styled,
        color_system="standard" if styled else None,
        file=io.StringIO(),
    )
    for grid in to_terminal(table, width=width, styled=styled):
        console.print(grid)
    return console.file.getvalue()


def test_the_terminal_shows_names_as_text_and_lets_none_drive_it():
    text = as_text(TABLE)
    assert "<script>alert(1)</script>" in text
    assert "[red]" in text
    assert "\x1b" not in text


def test_without_style_best_and_second_have_signs():
    text = as_text(TABLE)
    assert "62.94±7.25*¹" in text
    assert "52.58±9.79²" in text
    assert "54.59±9.34≈" in text
    assert "61.00±7.00 (3/10)" in text


def test_with_style_best_is_reversed_and_second_underlined():
    text = as_text(TABLE, styled=True)
    assert re.search(r"\x1b\[[0-9;]*7m62\.94±7\.25\*", text)
    assert re.search(r"\x1b\[4m52\.58±9\.79", text)
    assert "¹" not in text


def test_a_wide_table_is_split_by_groups_and_loses_nothing():
    columns = tuple(Column(m, f"net{i}") for i in range(4) for m in ("Acc", "wF1"))
    row = Row("Adam", tuple(TableCell(f"{i}0.00±0.00") for i in range(1, 9)))
    table = Table("t", "t", columns, (row,))
    assert len(to_terminal(table, width=60, styled=False)) > 1
    text = as_text(table, width=60)
    assert max(len(line) for line in text.splitlines()) <= 60
    for cell in row.cells:
        assert cell.text in text


def test_markdown_has_as_many_cells_in_every_line_and_no_live_html():
    text = to_markdown(TABLE)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert r"**62.94±7.25\***" in text
    assert "<u>52.58±9.79</u>" in text


def check_latex(text):
    """Check what a compiler would refuse: braces, environments, cells per row, stray specials."""
    bare = re.sub(r"^%.*$", "", text, flags=re.M)
    assert "\\ " not in bare.replace("\\\\", "")
    unescaped = re.sub(r"\\[\\{}$&#%_]", "", bare)
    depth = 0
    for sign in unescaped:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        assert depth >= 0
    assert depth == 0
    assert unescaped.count("$") % 2 == 0
    assert "#" not in unescaped
    assert "%" not in unescaped
    stack = []
    for kind, name in re.findall(r"\\(begin|end)\{([a-z*]+)\}", bare):
        if kind == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert stack == []
    width = len(re.search(r"\\begin\{tabular\}\{(l[cr]*)\}", bare)[1])
    body = bare[bare.index("\\toprule") : bare.index("\\bottomrule")]
    for row in body.split("\\\\\n")[:-1]:
        spans = [int(n) for n in re.findall(r"\\multicolumn\{(\d+)\}", row)]
        cells = len(re.findall(r"(?<!\\)&", row)) + 1
        assert cells - len(spans) + sum(spans) == width, row


def test_latex_is_well_formed_with_any_name_in_it():
    text = to_latex(TABLE)
    check_latex(text)
    assert r"\cellcolor{gray!40}62.94$\pm$7.25$^{*}$" in text
    assert r"\underline{52.58$\pm$9.79}" in text
    assert r"{\scriptsize (3/10)}" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-4}" in text


DOCUMENT = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[landscape,margin=15mm]{geometry}
\usepackage{booktabs}
\usepackage[table]{xcolor}
\begin{document}
%s\end{document}
"""


def printed_tables():
    """Return tables as they are printed, by name."""
    results = Results.of(*simulate_results({"adam": 0.0, "afor": 0.02}))
    return {"main": main_table(results), "beside-paper": beside_paper_table(results)}


PRINTED = printed_tables()


@pytest.fixture(scope="session")
def font_folder(tmp_path_factory):
    """Give a folder where LaTeX keeps the fonts that it draws, a second for each document."""
    return tmp_path_factory.mktemp("fonts")


@pytest.mark.parametrize("name", ["a table full of odd names", *PRINTED])
def test_latex_compiles(name, tmp_path, font_folder):
    compiler = next((c for c in ("pdflatex", "tectonic", "lualatex") if shutil.which(c)), None)
    if compiler is None:
        pytest.skip("no LaTeX is installed here; the structure is checked by the test above")
    table = PRINTED.get(name, TABLE)
    (tmp_path / "table.tex").write_text(DOCUMENT % to_latex(table), "utf-8")
    command = [compiler, "table.tex"]
    if compiler != "tectonic":
        command[1:1] = ["-interaction=nonstopmode", "-halt-on-error"]
    fonts = os.environ | {"HOME": str(font_folder), "TEXMFVAR": str(font_folder)}
    done = subprocess.run(
        command, cwd=tmp_path, env=fonts, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "table.pdf").stat().st_size > 1000
    if name in PRINTED:  # the odd names are too long for any page
        assert "Overfull" not in done.stdout


@given(st.text())
def test_any_text_leaves_latex_well_formed(text):
    table = Table("t", text, (Column(text),), (Row(text, (TableCell(text),)),), notes=(text,))
    check_latex(to_latex(table))


@given(st.text())
def test_escaped_markdown_has_no_tag_and_no_bare_bar(text):
    escaped = escape_markdown(text)
    assert "<" not in escaped
    assert not re.search(r"(?<!\\)(\\\\)*\|", escaped.replace("\\\\", "")) or "\\|" in escaped
    assert "\n" not in escaped


def test_latex_specials_are_escaped_once():
    assert escape_latex(r"a\b{c}") == r"a\textbackslash{}b\{c\}"
    assert escape_latex("β₂=0.99") == r"$\beta_2$=0.99"


def test_csv_and_json_give_the_numbers_back():
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert rows[0]["name"] == NASTY
    assert float(rows[0]["value"]) == 0.1
    content = json.loads(to_json(TABLE))
    assert content["rows"][0]["name"] == NASTY
    assert content["rows"][1]["value"] is None
