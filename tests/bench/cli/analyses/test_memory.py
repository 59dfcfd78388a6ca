import json

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError

runner = CliRunner()


@pytest.fixture
def study(study_file, small_study):
    return study_file(
        small_study(training={"max_epochs": 1, "batch_size": 16}, options={"trials": 4})
    )


def test_the_figure_and_the_numbers_come_from_one_command(study, tmp_path) -> None:
    arguments = ["analyse", "memory", study, "--steps", "5", "-o", "out/memory.png"]
    done = runner.invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "memory.png").is_file()
    assert "synthetic, eegnet, afor, fold 0, repetition 0: 5 steps" in done.stdout
    assert "half of the tensors active: never" in done.stdout
    assert "Distance from AdamW at 0.9945" in done.stdout
    assert "training: AFOR calibrated" in done.stderr
    assert "Next: afor analyse shift tiny.toml" in done.stderr


def test_a_program_reads_the_numbers(study) -> None:
    done = runner.invoke(
        app, ["analyse", "memory", study, "--steps", "3", "-o", "memory.svg", "--json"]
    )
    found = json.loads(done.stdout)
    assert found["steps"] == 3
    assert list(found["apart"]["printed"]["by_step"]) == ["1", "2", "3"]
    assert done.stderr.count("memory.svg") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "memory.txt"], "this command writes .json, .pdf, .svg, .png files"),
        (["--method", "afro"], "Did you mean"),
        (["--method", "adamw"], "AdamW has no controller"),
        (["--fold", "7"], "Folds: 0 to 3"),
        (["--steps", "-2"], "expected 1 or more"),
    ],
)
def test_what_cannot_be_asked_for_is_one_sentence(study, arguments, words) -> None:
    result = runner.invoke(app, ["analyse", "memory", study, *arguments])
    assert isinstance(result.exception, ConfigError)
    assert words in str(result.exception)
