import json

from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.registry import OPTIMIZERS


def test_the_table_names_every_optimizer_and_the_next_command() -> None:
    result = CliRunner().invoke(app, ["optimizers"], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    for name in OPTIMIZERS:
        assert f"\n{name} " in result.stdout
    assert "afor with direction_weight 0" in result.stdout
    assert "afor with betas (0.9, 0.99)" in result.stdout
    assert "Next: `afor optimizers NAME`" in result.stdout


def test_json_carries_the_whole_table() -> None:
    rows = json.loads(CliRunner().invoke(app, ["optimizers", "--json"]).stdout)
    assert [row["name"] for row in rows] == list(OPTIMIZERS)
    mars = next(row for row in rows if row["name"] == "mars")
    assert mars["settings"]["gamma"] == 0.025
    assert mars["decay"] == "decoupled"
    sophia = next(row for row in rows if row["name"] == "sophia")
    assert sophia["loop"] == "a second backward pass every 10 steps"


def test_one_optimizer_shows_its_settings_beside_the_defaults() -> None:
    result = CliRunner().invoke(app, ["optimizers", "mars_authors"])
    assert result.exit_code == 0
    assert "(0.95, 0.99)" in result.stdout
    assert "matrices_only" in result.stdout


def test_a_class_outside_the_table_shows_its_arguments() -> None:
    result = CliRunner().invoke(app, ["optimizers", "torch.optim:NAdam", "--json"])
    arguments = {row["setting"]: row["default"] for row in json.loads(result.stdout)["arguments"]}
    assert arguments["momentum_decay"] == 0.004


def test_an_unknown_name_is_an_error_with_the_nearest() -> None:
    result = CliRunner().invoke(app, ["optimizers", "sofia"])
    assert isinstance(result.exception, ConfigError)
    assert 'Did you mean "sophia"' in str(result.exception)


def test_a_class_in_the_current_folder_is_found_as_a_study_finds_it(tmp_path, monkeypatch) -> None:
    (tmp_path / "optimizer_beside_command.py").write_text(
        "import torch\n"
        "class Slow(torch.optim.SGD):\n"
        "    def __init__(self, params, lr=0.1, weight_decay=0.0, patience=7):\n"
        "        super().__init__(params, lr=lr, weight_decay=weight_decay)\n"
    )
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(app, ["optimizers", "optimizer_beside_command:Slow", "--json"])
    arguments = {row["setting"]: row["default"] for row in json.loads(answer.stdout)["arguments"]}
    assert arguments["patience"] == 7
