"""The table on the page about power is the one that the command prints."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app

DOCS = Path(__file__).parents[3] / "docs"
PILOT = DOCS / "results" / "physionet" / "runs.csv"

pytestmark = pytest.mark.skipif(not PILOT.exists(), reason="the documentation is not here")


def test_the_table_is_what_the_command_prints():
    words = ["power", PILOT, "--family", "1", "--study", "physionet", "--format", "markdown"]
    printed = CliRunner().invoke(app, list(map(str, words)))
    assert printed.exit_code == 0, printed.output
    written = (DOCS / "results" / "physionet" / "power.md").read_text("utf-8")
    assert printed.stdout.split() == written.split()
