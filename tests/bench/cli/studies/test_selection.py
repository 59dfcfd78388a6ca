import pytest

from afor.bench.cli.studies.run import _results_command
from afor.bench.cli.studies.selection import resolve_study, step_timer
from afor.bench.common.errors import ConfigError
from afor.bench.store.database import open_or_create


@pytest.fixture
def stored(tmp_path, monkeypatch, small_study):
    """Give a store of a changed study, whose TOML is nowhere else."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "results" / "demo-changed.db"
    with open_or_create(path) as store:
        store.replace_study("demo-changed", small_study(name="demo-changed", seed=5), [])
    return path


def test_a_study_is_named_by_preset_file_store_or_the_name_of_its_store(stored, small_study):
    (stored.parents[1] / "mine.toml").write_text(small_study(seed=7))
    assert resolve_study("demo").name == "demo"
    assert resolve_study("mine.toml").seed == resolve_study("mine").seed == 7
    assert resolve_study("demo-changed").seed == 5
    assert resolve_study(str(stored)).seed == 5


def test_a_store_of_several_studies_is_no_name_of_one(stored, small_study):
    with open_or_create(stored) as store:
        store.replace_study("other", small_study(name="other"), [])
    with pytest.raises(ConfigError, match="holds 2 studies: demo-changed, other"):
        resolve_study(str(stored))


def test_code_that_a_store_names_needs_trust(stored, small_study):
    with open_or_create(stored) as store:
        text = small_study(name="demo-changed", trainer="mine:train")
        store.replace_study("demo-changed", text, [])
    with pytest.raises(ConfigError, match="--trust"):
        resolve_study("demo-changed")
    assert resolve_study("demo-changed", trust=True).trainer == "mine:train"


def test_the_timing_of_many_networks_is_said_once(capsys):
    timer = step_timer()
    for what in ("eegnet with adam", "eegnet with afor"):
        timer._announce(what)
    assert capsys.readouterr().err.count("Timing steps") == 1


def test_a_study_of_beta2_leads_to_its_analysis(tmp_path):
    assert _results_command("headroom", tmp_path / "h.db").startswith("afor analyse headroom ")
    assert _results_command("lr-search", tmp_path / "h.db") == ""
