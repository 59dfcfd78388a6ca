"""The tables on the pages about power are those that the commands print."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app

DOCS = Path(__file__).parents[3] / "docs"
PILOT = DOCS / "results" / "physionet" / "runs.csv"
ACCURACY = ["--metric", "accuracy"]

pytestmark = pytest.mark.skipif(not PILOT.exists(), reason="the documentation is not here")


@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("results/physionet/variance.md", ["variance", PILOT, *ACCURACY]),
        ("results/physionet/power.md", ["power", PILOT, "--family", "1"]),
        ("explanation/published-power.md", ["table", "published-power"]),
        pytest.param(
            "results/physionet/calibration.md",
            ["calibrate", PILOT, *ACCURACY],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_table_is_what_its_command_prints(page, command):
    study = [] if command[0] == "table" else ["--study", "physionet"]
    printed = CliRunner().invoke(app, [*map(str, command), *study, "--format", "markdown"])
    assert printed.exit_code == 0, printed.output
    written = (DOCS / page).read_text("utf-8")
    assert printed.stdout.split() == written.split()
