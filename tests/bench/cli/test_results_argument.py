"""One way to point at results: a study's name, its TOML file or a store file."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError
from afor.bench.store.database import open_store

runner = CliRunner()
WAYS = ("tiny", "tiny.toml", "results/tiny.db")


@pytest.fixture
def finished(tiny, monkeypatch):
    """A finished study, in the folder of the command."""
    monkeypatch.chdir(tiny.folder)
    tiny.write(optimizers=("adam", "afor"), subjects=3, repetitions=1)
    tiny.run_inline()
    return tiny


def call(*words):
    result = runner.invoke(app, words)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["status", "RESULTS", "--json"],
        ["store", "failures", "RESULTS"],
        ["export", "RESULTS"],
        ["judge", "RESULTS", "--json"],
        ["table", "main", "RESULTS"],
        ["table", "convergence", "RESULTS"],
        ["figure", "folds", "RESULTS", "-o", "folds.svg"],
        ["report", "RESULTS", "-o", "page.html"],
        ["store", "merge", "all.db", "RESULTS"],
        ["store", "repair", "RESULTS", "-o", "new.db"],
    ],
    ids=" ".join,
)
def test_a_command_accepts_a_name_a_toml_file_and_a_store_file(finished, words):
    said = set()
    for way in WAYS:
        for made in ("all.db", "new.db"):
            Path(made).unlink(missing_ok=True)
        said.add(call(*[way if word == "RESULTS" else word for word in words]))
    assert len(said) == 1


def test_show_looks_in_the_results_that_are_named(finished):
    with open_store(finished.store) as store:
        key = store.runs()[0].key
    said = {call("store", "show", way, key) for way in WAYS} | {call("store", "show", key)}
    assert len(said) == 1
    assert f"key        {key}" in said.pop()


def test_verify_accepts_all_three(finished):
    for way in WAYS:
        refused = runner.invoke(app, ["store", "verify", way, "--key", "nothing", "--trust"])
        assert isinstance(refused.exception, ConfigError)
        assert str(refused.exception) == "results/tiny.db has no finished run nothing to repeat."


def test_an_exported_file_is_read_where_tables_are_made(finished):
    call("export", "tiny", "-o", "runs.csv")
    assert call("judge", "runs.csv", "--json") == call("judge", "tiny", "--json")


def test_a_store_file_may_have_any_name(finished):
    finished.store.rename("kept-results")
    assert json.loads(call("status", "kept-results", "--json"))["studies"][0]["done"] == 6
    assert call("judge", "kept-results")


def test_a_name_without_results_gives_a_sentence_with_those_that_are_here(finished):
    for command in (
        ["status"],
        ["export"],
        ["judge"],
        ["table", "main"],
        ["report"],
        ["store", "show", "a"],
    ):
        refused = runner.invoke(app, [*command, "paper"])
        assert "Results here: tiny." in str(refused.exception), command


def test_repair_needs_the_name_of_the_new_store(finished):
    refused = runner.invoke(app, ["store", "repair", "tiny"])
    assert refused.exit_code == 2
    assert "--output" in refused.output


def test_the_command_that_continues_a_study_names_its_store_where_the_user_did(finished):
    with open_store(finished.store, write=True) as store:
        store.forget([store.runs()[0].key])
    expected = {
        "tiny": "afor run tiny\n",
        "tiny.toml": "afor run tiny.toml\n",
        "results/tiny.db": "afor run tiny --store results/tiny.db\n",
    }
    for way, command in expected.items():
        assert runner.invoke(app, ["status", way]).stderr.endswith(f"Next: {command}")
