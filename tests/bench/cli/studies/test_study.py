import csv
import json
import tomllib

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.study.schema import load_study, preset_names, preset_text

runner = CliRunner()


def test_study_lists_the_presets_and_prints_each_as_toml():
    listing = runner.invoke(app, ["study"])
    assert listing.stdout.count("\n") == len(preset_names())
    for name in ("demo", "paper", "lr-search"):
        assert name in listing.stdout
        printed = runner.invoke(app, ["study", name])
        assert tomllib.loads(printed.stdout)["name"] == f"my-{name}"
        assert "Next: afor" in printed.stderr


def test_a_study_and_the_list_of_presets_come_as_json():
    presets = json.loads(runner.invoke(app, ["study", "--json"]).stdout)
    assert presets["demo"] == load_study("demo").description
    content = json.loads(runner.invoke(app, ["study", "demo", "--epochs", "3", "--json"]).stdout)
    assert content["training"]["max_epochs"] == 3
    assert [entry["name"] for entry in content["optimizers"]][-1] == "afor"


def test_a_printed_study_has_a_name_of_its_own_and_keeps_its_comments(tiny):
    printed = runner.invoke(app, ["study", "demo", "--name", "pilot"])
    preset = preset_text("demo")
    assert printed.stdout == preset.replace('name = "demo"\n', 'name = "pilot"\n')
    assert "Next: afor study demo --name pilot > my-study.toml" in printed.stderr
    tiny.write()
    assert tomllib.loads(tiny.call(command="study").partition("Next:")[0])["name"] == "tiny"
    changed = runner.invoke(app, ["study", "demo", "--epochs", "3"])
    assert tomllib.loads(changed.stdout)["name"] == "demo-changed"
    assert runner.invoke(app, ["study", "demo", "--name", "no/path"]).exit_code != 0


def test_the_command_after_a_plan_keeps_what_changes_the_answer(tiny):
    tiny.write(subjects=3, repetitions=1)
    asked = ["--device", "cpu", "--store", "other.db", "--trust", "--epochs", "3"]
    planned = tiny.call(*asked, "-j", "1", command="plan")
    expected = "--epochs 3 --store other.db --trust --device cpu --jobs 1"
    assert planned.endswith(f"Next: afor run {tiny.file} {expected}\n")


def test_a_plan_answers_in_a_few_lines_whatever_the_size_of_the_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = runner.invoke(app, ["plan", "paper", "--no-timing"])
    assert shown.stdout.startswith("paper: 7140 runs: 7140 open\n")
    assert len(shown.output.splitlines()) <= 22  # of 80 columns


@pytest.mark.usefixtures("train_here")
def test_the_plan_of_a_study_that_has_ended_leads_to_what_is_left(tiny):
    tiny.write(subjects=3, repetitions=1)
    tiny.call()
    assert tiny.call(command="plan").endswith("Next: afor judge results/tiny.db\n")
    tiny.write(optimizers=("a", "raiser"), subjects=3, repetitions=1)
    tiny.call(code=1)
    assert tiny.call(command="plan").endswith("Next: afor store failures results/tiny.db\n")


def test_a_study_goes_from_nothing_to_results_one_command_after_another(tiny):
    tiny.write(optimizers=("adam", "afor"), subjects=3, repetitions=2)
    planned = tiny.call(command="plan")
    assert "12 runs" in planned
    assert "1 / 1 / 1 to train / validate / test" in planned
    assert "not known before the first run" in planned
    assert "Next: afor run" in planned
    assert "synthetic × tiny × afor" not in planned
    assert "synthetic × tiny × afor: 3 folds × 2 repetitions, lr" in tiny.call(
        "--details", command="plan"
    )
    content = json.loads(tiny.call("--json", command="plan"))
    assert (content["open"], len(content["runs"])) == (12, 12)
    done = tiny.call("-j", "2")
    assert "12 done (12 trained now) in results/tiny.db" in done
    status = json.loads(tiny.call("--json", command="status"))
    assert status["studies"][0]["done"] == 12
    assert "12 done" in tiny.call(command="status")
    assert "No run failed" in tiny.call(command="store failures")
    assert "AFOR" in tiny.call("results/tiny.db", command="table", study="main")


@pytest.mark.usefixtures("train_here")
def test_show_verify_and_export_work_on_the_same_store(tiny):
    tiny.write(optimizers=("a", "raiser"), subjects=3, repetitions=1)
    tiny.call("-j", "2", code=1)
    rows = list(csv.DictReader(tiny.call(command="export").splitlines()))
    assert len(rows) == 6
    good = next(row for row in rows if row["status"] == "done")
    shown = tiny.call(command="store show", study=good["key"][:10])
    assert "status     done" in shown
    assert f"Next: afor store verify results/tiny.db --key {good['key'][:12]} --trust" in shown
    assert (
        json.loads(tiny.call("--json", command="store show", study=good["key"]))["status"] == "done"
    )
    bad = next(row for row in rows if row["status"] == "failed")["key"]
    assert "Traceback" in tiny.call(command="store show", study=bad[:12])
    assert "No run with the key" in tiny.call(command="store show", study="zzz", code=4)
    assert "fits" in tiny.call(command="store show", study="", code=2)
    verified = tiny.call("--count", "2", "--trust", command="store verify")
    assert "2 of 2 repeated runs gave the same bits" in verified
    exported = tiny.call("--output", "out/x.json", command="export")
    assert "out/x.json: 6 runs" in exported
    content = json.loads((tiny.folder / "out" / "x.json").read_text())
    assert [row["status"] for row in content["runs"]].count("done") == 3
    assert len(content["runs"]) == 6
    assert "must end in" in tiny.call("-o", "x.xls", command="export", code=2)


@pytest.mark.usefixtures("train_here")
def test_verify_finds_a_number_that_does_not_come_back(tiny):
    from afor.bench.store.database import open_store

    tiny.write(optimizers=("a",), subjects=3, repetitions=1)
    tiny.call()
    with open_store(tiny.store, write=True) as store:
        contents = [c.replace(b'"steps":1', b'"steps":7') for c in store.contents()]
        store.forget(list(store.statuses()))
        for content in contents:
            store.add(content)
    text = tiny.call("--trust", command="store verify", code=1)
    assert "DIFFERENT" in text
    assert "steps" in text
    assert "0 of 3" in text


@pytest.mark.usefixtures("train_here")
def test_shards_run_apart_and_merge_into_one_store(tiny):
    tiny.write(repetitions=2)
    for number in (1, 2):
        text = tiny.call("--shard", f"{number}/2")
        assert f"10 trained now) in results/tiny.part-{number}-of-2.db" in text
        assert "Next: afor store merge results/tiny.db" in text
    parts = ["results/tiny.part-1-of-2.db", "results/tiny.part-2-of-2.db"]
    merged = tiny.call(*parts, command="store merge", study="results/tiny.db")
    assert "results/tiny.db: 20 runs" in merged
    assert "(0 trained now)" in tiny.call()
    assert "target and as a part" in tiny.call(
        "results/tiny.db", command="store merge", study="results/tiny.db", code=2
    )


@pytest.mark.usefixtures("train_here")
def test_a_part_of_a_study_is_said_to_be_incomplete_and_gets_no_verdict(tiny):
    tiny.write(optimizers=("a", "b", "c"), subjects=3, repetitions=1)
    tiny.call("--shard", "1/2")
    judged = tiny.call(command="judge", study="results/tiny.part-1-of-2.db")
    assert "Incomplete: 3 of 3 conditions lack 4 runs." in judged
    assert "No verdict yet" in judged


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shard", "3/2"], "expected i/n"),
        (["--scheduler", "tcp://x:1", "--time-limit", "3"], "--time-limit does not work"),
        (["--lr", "each", "--shard", "1/2"], "--lr-from"),
        (["--lr-from", "nothing"], "no results"),
        (["--lr", "fast"], "expected a number above 0"),
        (["--root", "deap=/data"], "expected NAME=FOLDER with a data set of the study: synthetic"),
    ],
)
def test_what_cannot_be_asked_for_is_one_sentence(tiny, monkeypatch, arguments, message):
    monkeypatch.chdir(tiny.folder)
    from afor.bench.common.errors import AforError

    result = runner.invoke(app, ["run", str(tiny.file), *arguments])
    assert isinstance(result.exception, AforError)
    assert message in str(result.exception)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ("-1", "greater than or equal to 0"),
        ("99999999999999999999", "less than or equal to 1024"),
        ("many", "valid integer"),
    ],
)
def test_a_number_of_workers_out_of_range_is_refused_before_anything_runs(tiny, jobs, message):
    result = runner.invoke(app, ["run", str(tiny.file), "--jobs", jobs], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert message in result.output
    assert not tiny.store.exists()


@pytest.mark.usefixtures("train_here")
def test_a_place_given_on_the_command_line_changes_no_run(tiny):
    from afor.bench.cli.studies.selection import with_roots
    from afor.bench.study.schema import load_study

    study = with_roots(load_study("paper"), ["deap=/data/deap", "isruc=/data/isruc"])
    assert [entry.root for entry in study.datasets] == ["/data/deap", "", "/data/isruc"]
    tiny.call()
    assert "(0 trained now)" in tiny.call("--root", f"synthetic={tiny.folder}")


def test_more_jobs_than_a_machine_can_hold_are_refused():
    for jobs in ("99999999999999999999", "-1"):
        shown = runner.invoke(app, ["plan", "demo", "-j", jobs])
        assert shown.exit_code == 2
        assert "Invalid value for '-j'" in shown.output
