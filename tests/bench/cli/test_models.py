import json

import torch
from typer.testing import CliRunner

from afor.bench.cli import app
from afor.bench.cli.models import model_table

runner = CliRunner()


def test_the_table_shows_every_backbone_with_its_size():
    result = runner.invoke(app, ["models"], env={"COLUMNS": "140", "NO_COLOR": "1"})
    assert result.exit_code == 0
    for name in ("eegnet", "acrnn", "nsal_dgat", "hslt"):
        assert name in result.stdout
    for text in ("1,746 / 12", "250,709 / 23", "ISRUC", "PhysioNet MI", "Next: afor"):
        assert text in result.stdout
    assert "\x1b" not in result.stdout


def test_json_holds_the_same_numbers():
    result = runner.invoke(app, ["models", "--json"])
    rows = json.loads(result.stdout)
    assert [row["name"] for row in rows] == ["eegnet", "acrnn", "nsal_dgat", "hslt"]
    assert rows[0]["sizes"]["DEAP"] == {"parameters": 1746, "tensors": 12}
    assert all(len(row["sizes"]) == 4 for row in rows)


def test_counting_draws_no_random_number():
    before = torch.random.get_rng_state()
    model_table()
    assert torch.equal(torch.random.get_rng_state(), before)
