import json
from pathlib import Path

import pytest

from afor.bench.cli.printing import WRITERS, OutputOptions, by_suffix, choose, render
from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.formats import Column, Row, Table, TableCell

TABLE = Table("t", "A title", (Column("x"),), (Row("one", (TableCell("7"),)),), notes=("a note",))


FORMATS = ("terminal", *WRITERS)


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_holds_the_title_or_the_values(form):
    text = render(TABLE, form)
    assert "A title" in text or form == "csv"


def test_a_files_name_decides_its_form():
    assert by_suffix(Path("a.tex")) == "latex"
    assert by_suffix(Path("a.unknown")) == by_suffix(None) == "terminal"


def test_what_is_not_accepted_is_told_with_the_nearest():
    assert choose("csv", FORMATS, "--format") == "csv"
    with pytest.raises(ConfigError, match="Did you mean 'latex'"):
        choose("latx", FORMATS, "--format")


def test_an_analysis_prints_the_values_that_it_writes(tmp_path, capsys):
    written = tmp_path / "values.json"
    values = {"loss": float("nan"), "β₂": (0.99, 0.999)}
    OutputOptions(output=[written], as_json=True).show("words", values)
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(written.read_text("utf-8")) == {"loss": None, "β₂": [0.99, 0.999]}
    OutputOptions(output=[written]).show("words", values)
    out, err = capsys.readouterr()
    assert (out, err) == ("words\n", f"{written}\n")


@pytest.mark.parametrize("name", ["a.pdf", "a.tex"])
def test_a_file_that_an_analysis_does_not_have_is_refused_before_the_work(name):
    with pytest.raises(ConfigError, match=f"{name}: this command writes .json"):
        OutputOptions(output=[Path(name)]).check(figure=name != "a.pdf")
