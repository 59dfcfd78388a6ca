import json

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError

runner = CliRunner(env={"COLUMNS": "160"})


@pytest.fixture
def study(study_file, small_study):
    afor = {"name": "afor", "settings": {"warmup_steps": 4}}
    training = {"max_epochs": 1, "batch_size": 16}
    options = {"n_subjects": 5, "trials": 4}
    return study_file(small_study(optimizers=[afor], training=training, options=options))


def test_the_verdict_has_four_links_and_a_figure(study, tmp_path) -> None:
    small = ["--batches-per-block", "4", "--blocks", "2", "-o", "shift.png"]
    done = runner.invoke(app, ["analyse", "shift", study, *small])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "shift.png").is_file()
    for name in ("residual", "agreement", "score", "β₂"):
        assert f"\n  {name}" in done.stdout
    assert "every 4 batches; score statistics: paper" in done.stdout
    assert "Next: afor analyse shift tiny.toml --statistics calibrated" in done.stderr
    as_json = runner.invoke(
        app, ["analyse", "shift", study, *small, "--statistics", "calibrated", "--json"]
    )
    found = json.loads(as_json.stdout)
    assert found["statistics"] == "calibrated"
    assert [link["claim"] for link in found["links"]] == ["rises", "falls", "falls", "falls"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "shift.txt"], "this command writes .json, .pdf, .svg, .png files"),
        (["--blocks", "1", "--batches-per-block", "1"], "Raise --blocks"),
        (["--dataset", "deap"], "no data set"),
    ],
)
def test_what_cannot_be_asked_for_is_one_sentence(study, arguments, words) -> None:
    result = runner.invoke(app, ["analyse", "shift", study, *arguments])
    assert isinstance(result.exception, ConfigError)
    assert words in str(result.exception)


def test_statistics_are_one_of_two(study) -> None:
    result = runner.invoke(app, ["analyse", "shift", study, "--statistics", "robust"])
    assert result.exit_code == 2
    assert "'robust' is not one of 'paper', 'calibrated'" in result.output
