import json

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError

runner = CliRunner()


@pytest.fixture
def study(study_file, small_study):
    afor = {"name": "afor", "settings": {"warmup_steps": 4}}
    training = {"max_epochs": 1, "batch_size": 16}
    options = {"n_subjects": 5, "trials": 4}
    return study_file(small_study(optimizers=[afor], training=training, options=options))


def test_the_verdict_has_four_links_and_a_figure(study, tmp_path) -> None:
    small = ["--batches-per-block", "4", "--rounds", "2", "-o", "shift.png"]
    done = runner.invoke(app, ["shift", study, *small, "--subject-shift", "0"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "shift.png").is_file()
    for name in ("residual", "agreement", "score", "β₂"):
        assert f"\n  {name}" in done.stdout
    assert "1 at a time for 4 batches; score statistics: paper" in done.stdout
    assert "Next: afor shift tiny.toml --statistics calibrated" in done.stderr
    as_json = runner.invoke(app, ["shift", study, *small, "--statistics", "calibrated", "--json"])
    found = json.loads(as_json.stdout)
    assert found["statistics"] == "calibrated"
    assert [link["claim"] for link in found["links"]] == ["rises", "falls", "falls", "falls"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "shift.txt"], "this command writes .pdf, .svg, .png files"),
        (["--statistics", "robust"], "Accepted: paper, calibrated"),
        (["--subjects-per-block", "2"], "at most 1 fit"),
        (["--rounds", "1", "--batches-per-block", "1"], "Raise --rounds"),
        (["--dataset", "deap"], "no data set"),
    ],
)
def test_what_cannot_be_asked_for_is_one_sentence(study, arguments, words) -> None:
    result = runner.invoke(app, ["shift", study, *arguments])
    assert isinstance(result.exception, ConfigError)
    assert words in str(result.exception)


def test_only_synthetic_subjects_can_be_moved(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, ["shift", "physionet", "--subject-shift", "0"])
    assert isinstance(result.exception, ConfigError)
    assert "needs synthetic subjects; physionet_mi holds recordings" in str(result.exception)
