from pathlib import Path

import pytest

from afor.bench.cli.printing import FORMATS, by_suffix, choose, render
from afor.bench.common.errors import ConfigError
from afor.bench.report.tables.formats import Column, Row, Table, TableCell

TABLE = Table("t", "A title", (Column("x"),), (Row("one", (TableCell("7"),)),), notes=("a note",))


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
