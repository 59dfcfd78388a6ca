import json

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError
from afor.bench.data.stand_ins import write_stand_in


@pytest.fixture
def call(cache_dir, monkeypatch, tmp_path):
    monkeypatch.setenv("AFOR_CACHE", str(cache_dir))
    monkeypatch.setenv("AFOR_DATA", str(tmp_path / "data"))
    return lambda *words: CliRunner().invoke(app, ["data", *map(str, words)])


def test_list_says_what_where_and_whether_found(call, tmp_path):
    (tmp_path / "data" / "isruc").mkdir(parents=True)
    answer = call("list")
    assert answer.exit_code == 0
    for words in ("deap", "signed agreement", "ODC-By", "https://physionet.org", "moabb:<Name>"):
        assert words in answer.stdout
    listed = {entry["name"]: entry for entry in json.loads(call("list", "--json").stdout)}
    assert listed["isruc"]["found"] == str(tmp_path / "data" / "isruc")
    assert listed["deap"]["found"] == ""
    assert listed["synthetic"]["found"] == "computed"
    assert "Next: afor data check" in answer.stderr


def test_check_prints_one_line_a_subject_and_names_the_next_command(call, tmp_path):
    root = tmp_path / "isruc"
    write_stand_in("isruc", root, ["1", "8"], trials=12)
    answer = call("check", "isruc", "--root", root)
    assert answer.exit_code == 0
    lines = answer.stdout.splitlines()
    assert lines[0].startswith("subject")
    assert lines[1].split()[:5] == ["1", "12", "360", "6", "200"]
    assert "! F3 is not recorded, C3 stands in" in answer.stdout
    assert "2 subjects, 24 trials" in answer.stdout
    assert f"Next: afor data import {root} > mine.toml" in answer.stderr


def test_check_exits_with_3_and_lists_the_faults(call, tmp_path):
    root = tmp_path / "isruc"
    write_stand_in("isruc", root, ["1", "8"], trials=12)
    (root / "8" / "8.rec").write_bytes(b"")
    answer = call("check", "isruc", "--root", root)
    assert answer.exit_code == 3
    assert "1 fault:" in answer.stderr
    assert "8.rec: the file is empty" in answer.stderr
    report = json.loads(call("check", "isruc", "--root", root, "--json").stdout)
    assert len(report["faults"]) == 1
    assert report["subjects"][0]["subject"] == "1"


def test_options_are_toml_values_or_plain_words(call):
    answer = call(
        "check", "synthetic", "--option", "n_subjects=2", "--option", "trials=4", "--option",
        'channels=["C3", "C4"]', "--option", "kind=imagery", "--json",
    )  # fmt: skip
    subjects = json.loads(answer.stdout)["subjects"]
    assert [line["channels"] for line in subjects] == [2, 2]
    bad = call("check", "synthetic", "--option", "shift")
    assert isinstance(bad.exception, ConfigError)
    assert "expected KEY=VALUE" in str(bad.exception)


def test_a_truncated_recording_needs_the_users_word(call, tmp_path):
    root = tmp_path / "isruc"
    write_stand_in("isruc", root, ["1"], trials=12)
    path = root / "1" / "1.rec"
    path.write_bytes(path.read_bytes()[:-50_000])
    refused = call("check", "isruc", "--root", root)
    assert refused.exit_code == 3
    assert "with the option allow_truncated=true" in refused.stderr
    accepted = call("check", "isruc", "--root", root, "--option", "allow_truncated=true")
    assert accepted.exit_code == 0


def test_a_file_that_was_fetched_again_is_read(call, tmp_path):
    root = tmp_path / "isruc"
    path = write_stand_in("isruc", root, ["1"], trials=12)[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-50_000])
    assert "Fetch the file again" in call("check", "isruc", "--root", root).stderr
    path.write_bytes(whole)
    first = call("check", "isruc", "--root", root, "--json")
    write_stand_in("isruc", root, ["1"], trials=12, seed=1)
    other = call("check", "isruc", "--root", root, "--json")
    sums = [json.loads(answer.stdout)["subjects"][0]["checksum"] for answer in (first, other)]
    assert sums[0] != sums[1]


def test_a_stand_in_is_written_and_never_beside_other_files(call, tmp_path):
    root = tmp_path / "stand-in"
    answer = call("stand-in", "isruc", root, "--subject", "1", "--trials", "4")
    assert answer.exit_code == 0
    assert (root / "1" / "1.rec").is_file()
    assert "synthetic" in answer.stdout
    other = tmp_path / "real"
    other.mkdir()
    (other / "s01.dat").write_bytes(b"real")
    assert isinstance(call("stand-in", "deap", other).exception, ConfigError)
    assert (other / "s01.dat").read_bytes() == b"real"
