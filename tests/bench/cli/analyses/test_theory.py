import json

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError

runner = CliRunner()


def test_the_toy_says_that_the_bound_is_vacuous():
    result = runner.invoke(app, ["theory", "--steps", "20"])
    assert result.exit_code == 0, result.output
    for text in ("smoothness L", "known:", "times the largest", "vacuous by"):
        assert text in result.stdout
    assert "Next: afor theory demo" in result.stderr


def test_the_toy_at_its_largest_learning_rate_keeps_the_condition():
    arguments = ["--lr", "0", "--eps", "1", "--weight-decay", "0", "--steps", "200", "--json"]
    found = json.loads(runner.invoke(app, ["theory", *arguments]).stdout)
    assert found["condition_holds"]
    assert found["measured"] < found["bound_at_largest_lr"]["total"] < found["trivial_bound"]


def test_a_run_of_a_study_is_estimated(tmp_path, small_study):
    file = tmp_path / "tiny.toml"
    file.write_text(small_study(training={"max_epochs": 1, "batch_size": 16}))
    targets = ["-o", str(tmp_path / "run.svg"), "-o", str(tmp_path / "run.json")]
    cache = ["--cache-dir", str(tmp_path / "cache")]
    result = runner.invoke(app, ["theory", str(file), *targets, *cache])
    assert result.exit_code == 0, result.output
    assert "Training again: synthetic, eegnet, afor, fold 0, draw 0" in result.stderr
    found = json.loads((tmp_path / "run.json").read_text())
    assert found["steps_to_inform"] is None  # infinite
    assert found["lr_factor"] > 1e10
    assert "temporal.weight" in found["memory_length"]
    assert "<svg" in (tmp_path / "run.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--eps", "0"], "--eps must be above 0"),
        (["--steps", "0"], "--steps at least 1"),
        (["--format", "html"], "--format cannot be 'html'"),
        (["no-such-study"], "no-such-study"),
    ],
)
def test_mistakes_are_told(arguments, words):
    result = runner.invoke(app, ["theory", *arguments])
    assert isinstance(result.exception, ConfigError)
    assert words in str(result.exception)
