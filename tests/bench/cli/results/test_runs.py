import json

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.store.database import open_store

runner = CliRunner()


@pytest.fixture
def ended(tiny, monkeypatch):
    """A study with good and bad runs, in the folder of the command."""
    monkeypatch.chdir(tiny.folder)
    tiny.write(optimizers=("a", "raiser", "diverger"), subjects=3, repetitions=1)
    tiny.run_inline()
    return tiny


def keys_of(tiny, optimizer):
    with open_store(tiny.store) as store:
        return [cell.key for cell in store.runs() if cell.method == optimizer]


def test_failures_are_listed_one_a_line_with_key_place_and_reason(ended):
    result = runner.invoke(app, ["store", "failures", "tiny"])
    lines = result.stdout.splitlines()
    assert len(lines) == 6
    first = keys_of(ended, "raiser")[0][:12]
    assert (
        f"{first}  failed    synthetic × tiny × raiser, fold 0, repetition 0: RuntimeError"
        in lines[0]
    )
    assert "diverged  synthetic × tiny × diverger" in lines[1]
    assert f"Next: afor store show tiny {first}" in result.stderr
    rows = json.loads(runner.invoke(app, ["store", "failures", "tiny", "--json"]).stdout)
    assert [row["status"] for row in rows] == ["failed", "diverged"] * 3


def test_retry_forgets_failed_runs_alone_and_diverged_ones_stay_results(ended):
    result = runner.invoke(app, ["store", "failures", "tiny", "--retry"])
    assert "3 failed runs of results/tiny.db will be trained again." in result.stdout
    assert "Next: afor run tiny" in result.stderr
    with open_store(ended.store) as store:
        assert sorted(cell.status for cell in store.runs()) == (
            ["diverged"] * 3 + ["done"] * 3 + ["open"] * 3
        )


def test_a_study_without_failures_says_so(tiny, monkeypatch):
    monkeypatch.chdir(tiny.folder)
    tiny.write(subjects=3, repetitions=1)
    tiny.run_inline()
    result = runner.invoke(app, ["store", "failures", "tiny"])
    assert result.stdout == "No run failed or diverged.\n"


def test_show_finds_a_run_in_any_store_here_or_in_the_one_that_is_named(ended):
    key = keys_of(ended, "a")[0]
    other = ended.folder / "elsewhere.db"
    ended.write(optimizers=("b",), subjects=3, repetitions=1)
    ended.run_inline(other)
    assert f"key        {key}" in runner.invoke(app, ["store", "show", key[:12]]).stdout
    for words in (["tiny", key[:12]], ["results/tiny.db", key[:12]]):
        assert f"key        {key}" in runner.invoke(app, ["store", "show", *words]).stdout
    assert isinstance(
        runner.invoke(app, ["store", "show", "nowhere", key[:12]]).exception, StoreError
    )
    missing = runner.invoke(app, ["store", "show", str(other), key[:12]])
    assert isinstance(missing.exception, StoreError)
    assert "elsewhere.db" in str(missing.exception)


def test_show_of_an_open_run_names_the_run_that_trains_it(ended):
    key = keys_of(ended, "raiser")[0]
    runner.invoke(app, ["store", "failures", "tiny", "--retry"])
    result = runner.invoke(app, ["store", "show", key[:12]])
    assert "status     open: not trained yet" in result.stdout
    assert "Next: afor run tiny" in result.stderr
    content = json.loads(runner.invoke(app, ["store", "show", key[:12], "--json"]).stdout)
    assert content == {"key": key, "status": "open"}


def test_verify_repeats_one_run_by_its_key(ended):
    key = keys_of(ended, "a")[1]
    result = runner.invoke(
        app, ["store", "verify", "tiny", "--key", key[:12], "-j", "1", "--trust"]
    )
    assert result.exit_code == 0, result.output
    assert f"same bits  {key[:12]}  synthetic × tiny × a, fold 1, repetition 0" in result.stdout
    assert "1 of 1 repeated runs gave the same bits." in result.stdout
    assert "Training 1 of its runs again, 1 at once." in result.stderr
    assert "Next: afor export tiny" in result.stderr


def test_verify_refuses_what_cannot_be_repeated(ended):
    failed = keys_of(ended, "raiser")[0]
    result = runner.invoke(app, ["store", "verify", "tiny", "--key", failed])
    assert isinstance(result.exception, ConfigError)
    assert "has no finished run" in str(result.exception)
    result = runner.invoke(app, ["store", "verify", "tiny", "--count", "-1"])
    assert "--count -1" in str(result.exception)


def test_a_number_that_does_not_come_back_leads_to_its_run(ended):
    key = keys_of(ended, "a")[0]
    with open_store(ended.store, write=True) as store:
        (content,) = [c for c in store.contents() if key.encode() in c[:200]]
        store.forget([key])
        store.add(content.replace(b'"steps":1', b'"steps":7'))
    result = runner.invoke(app, ["store", "verify", "tiny", "--key", key, "-j", "1", "--trust"])
    assert result.exit_code == 1
    assert f"DIFFERENT  {key[:12]}" in result.stdout
    assert f"Next: afor store show results/tiny.db {key[:12]}" in result.stderr
    found = runner.invoke(
        app, ["store", "verify", "tiny", "--key", key, "-j", "1", "--trust", "--json"]
    )
    assert found.exit_code == 1
    content = json.loads(found.stdout)
    assert (content["store"], content["different"]) == ("results/tiny.db", 1)
    assert [(run["key"], run["same"]) for run in content["runs"]] == [(key, False)]
    assert content["runs"][0]["differs_in"]
