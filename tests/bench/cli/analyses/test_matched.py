import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import StoreError
from afor.bench.execution.runner import run_study
from afor.bench.study.schema import load_study, parse_study

runner = CliRunner(env={"COLUMNS": "160"})


@pytest.fixture(scope="module")
def store(tmp_path_factory, small_study, inline_engine):
    """Train one AFOR run, so that its averages are real."""
    folder = tmp_path_factory.mktemp("matched")
    text = small_study(
        optimizers=["afor"],
        training={"max_epochs": 1},
        protocol={"only_folds": [1]},
        options={"n_subjects": 3, "trials": 4},
    )
    path = folder / "tiny.db"
    run_study(parse_study(text), text, path, inline_engine, cache_dir=folder / "cache")
    return path


def test_the_study_is_written_and_the_next_command_runs_it(store, tmp_path) -> None:
    target = tmp_path / "new" / "matched.toml"
    done = runner.invoke(app, ["analyse", "matched", str(store), "-o", str(target)])
    assert done.exit_code == 0, done.output
    assert "Mean beta2 of afor on synthetic × eegnet: 1 runs" in done.stdout
    assert f"Next: afor run {target} --store {store}" in done.stderr
    study = load_study(str(target))
    assert len(study.optimizers) == 6
    assert study.protocol.only_folds == [1]


def test_what_cannot_be_asked_for_is_one_sentence(store, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    missing = runner.invoke(app, ["analyse", "matched", "nowhere"])
    assert isinstance(missing.exception, StoreError)
