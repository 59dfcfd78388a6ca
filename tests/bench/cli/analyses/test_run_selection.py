"""The analyses that train a run again take a study by every name that `afor run` takes."""

from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from afor.bench.store.database import open_or_create

NAMES = ("mine.toml", "mine", "far", "results/far.db")


@pytest.mark.parametrize("command", ["landscape", "memory", "shift"])
@pytest.mark.parametrize("name", NAMES)
def test_a_study_is_named_one_way(command, name, tmp_path, monkeypatch, small_study):
    from afor.bench.cli.app import app

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(small_study(name="mine", seed=5))
    with open_or_create(tmp_path / "results" / "far.db") as store:
        store.replace_study("far", small_study(name="far", seed=5), [])
    chosen = []

    def select(study, options, optimizer):
        chosen.append(SimpleNamespace(seed=study.seed, fold=options.fold, optimizer=optimizer))
        raise KeyboardInterrupt  # what follows trains

    monkeypatch.setattr("afor.bench.cli.analyses.select_run", select)
    CliRunner().invoke(app, ["analyse", command, name, "--fold", "2"])
    assert [(run.seed, run.fold) for run in chosen] == [(5, 2)]


@pytest.mark.parametrize("command", ["landscape", "memory", "shift"])
def test_an_unknown_study_is_one_sentence(command, tmp_path, monkeypatch, refuse):
    monkeypatch.chdir(tmp_path)
    assert 'There is no study "fra".' in refuse("analyse", command, "fra")
