from pathlib import Path

import pytest

from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.store.locations import find_store, parse_part, store_path


def test_a_study_has_its_store_in_results_and_a_part_its_own():
    assert store_path("paper") == Path("results/paper.db")
    assert store_path("paper", part=(2, 8)) == Path("results/paper.part-2-of-8.db")
    assert store_path("paper", Path("x.db"), (2, 8)) == Path("x.db")


@pytest.mark.parametrize("text", ["", "2", "0/3", "4/3", "1/0", "a/b", "1/2/3", "-1/2"])
def test_a_bad_shard_is_refused(text):
    with pytest.raises(ConfigError, match="expected i/n"):
        parse_part(text)


def test_missing_results_name_those_that_are_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    Path("results/demo.db").touch()
    assert find_store("demo") == Path("results/demo.db")
    assert find_store("any/x.db") == Path("any/x.db")
    with pytest.raises(StoreError, match="Results here: demo"):
        find_store("paper")


def test_a_study_is_named_by_its_file_without_the_suffix(tmp_path, monkeypatch, small_study):
    monkeypatch.chdir(tmp_path)
    Path("eegmat.toml").write_text(small_study(name="eegmat-study"))
    Path("results").mkdir()
    Path("results/eegmat-study.db").touch()
    assert find_store("eegmat") == Path("results/eegmat-study.db")


def test_parts_of_a_study_are_named_where_the_whole_is_missing(tmp_path, monkeypatch, small_study):
    monkeypatch.chdir(tmp_path)
    Path("shardy.toml").write_text(small_study(name="shardy"))
    Path("results").mkdir()
    for number in (1, 2):
        Path(f"results/shardy.part-{number}-of-2.db").touch()
    for name in ("shardy", "shardy.toml"):
        with pytest.raises(
            StoreError, match=r"afor store merge results/shardy.db results/shardy.part-1"
        ):
            find_store(name)


def test_a_changed_study_is_named_where_the_study_itself_was_not_run(
    tmp_path, monkeypatch, small_study
):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(small_study(name="mine"))
    assert find_store("mine.toml") == Path("results/mine.db")
    Path("results").mkdir()
    Path("results/mine-changed.db").touch()
    with pytest.raises(StoreError, match=r"other options do: results/mine-changed.db"):
        find_store("mine.toml")
