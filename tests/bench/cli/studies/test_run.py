import json
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.cli.studies.run import (
    describe_summary,
    make_engine,
    stopped_by_signals,
    stopped_in_run,
)
from afor.bench.common.errors import ConfigError
from afor.bench.execution.engines.dask import DaskEngine
from afor.bench.execution.engines.local import LocalEngine
from afor.bench.execution.runner import Summary

runner = CliRunner()


@pytest.fixture
def here(tiny, monkeypatch):
    """Run commands in this process and without workers, in the study's folder."""
    monkeypatch.chdir(tiny.folder)
    made = []

    class Inline:
        def __init__(self, workers, threads, limits=None, gpus=()):  # noqa: ARG002
            made.append((workers, threads))

        def run(self, jobs, sources, spool):  # noqa: ARG002
            from afor.bench.execution.jobs import Ended
            from afor.bench.training.execute import execute

            for job in jobs:
                yield Ended(job.key, execute(job.key, job.spec, sources[job.dataset]))

    monkeypatch.setattr("afor.bench.cli.studies.run.LocalEngine", Inline)
    tiny.engines = made
    return tiny


def test_json_is_one_object_on_stdout_and_all_else_goes_to_stderr(here):
    here.write(subjects=3, repetitions=1)
    result = runner.invoke(app, ["run", str(here.file), "--json"])
    assert result.exit_code == 0
    content = json.loads(result.stdout)
    (verdict,) = content.pop("verdicts")
    assert verdict.startswith("Synthetic, tiny, 3 folds. Undecided: b and a are not shown")
    assert content == {
        "study": "tiny",
        "store": "results/tiny.db",
        "planned": 6,
        "done": 6,
        "diverged": 0,
        "failed": 0,
        "trained": 6,
        "report": "results/tiny.html",
        "notes": [],
    }
    assert "Next: open results/tiny.html" in result.stderr


def test_what_the_curves_show_is_printed_below_the_table(here, monkeypatch):
    found = [f"fault {number}" for number in range(5)]
    monkeypatch.setattr("afor.bench.cli.studies.run.diagnose", lambda _: found)
    here.write(subjects=3, repetitions=1)
    printed = runner.invoke(app, ["run", str(here.file)]).stdout
    below = " ".join(printed.partition("note")[2].split())
    assert below.startswith("fault 0 fault 1 fault 2 2 more like these are in the report")
    assert (
        json.loads(runner.invoke(app, ["run", str(here.file), "--json"]).stdout)["notes"] == found
    )


def test_a_run_ends_with_the_verdict_and_the_report_that_judge_and_report_give(here):
    here.write(subjects=3, repetitions=1)
    result = runner.invoke(app, ["run", str(here.file)])
    table = runner.invoke(app, ["table", "main", "results/tiny.db"])
    assert table.stdout.strip() in result.stdout
    assert result.stdout.endswith("report  results/tiny.html\n")
    assert runner.invoke(app, ["report", "tiny", "-o", "again.html"]).exit_code == 0
    assert Path("again.html").read_text() == Path("results/tiny.html").read_text()


def test_without_a_report_the_verdict_is_printed_alone(here):
    here.write(subjects=3, repetitions=1)
    result = runner.invoke(app, ["run", str(here.file), "--no-report"])
    assert "Undecided: b and a are not shown to differ" in result.stdout
    assert "Next: afor judge results/tiny.db" in result.stderr
    assert not Path("results/tiny.html").exists()


def test_one_optimizer_has_no_verdict_and_the_reason_is_said(here):
    here.write(optimizers=("a",), subjects=3, repetitions=1)
    result = runner.invoke(app, ["run", str(here.file)])
    assert result.exit_code == 0
    assert "There is no verdict: There is nothing to compare" in result.stderr
    assert not Path("results/tiny.html").exists()


def test_the_report_concerns_the_study_that_ran_and_no_other_of_its_store(here):
    here.write(optimizers=("a", "c"), subjects=3, repetitions=1)
    runner.invoke(app, ["run", str(here.file), "--store", "both.db"])
    here.write(name="second", subjects=3, repetitions=1)
    result = runner.invoke(app, ["run", str(here.file), "--store", "both.db"])
    assert "b and a are not shown to differ" in result.stdout
    assert "Others" not in result.stdout


def test_failed_runs_give_exit_code_1_and_lead_to_the_list_of_failures(here):
    here.write(optimizers=("a", "raiser"), subjects=3, repetitions=1)
    result = runner.invoke(app, ["run", str(here.file), "--store", "mine.db"])
    assert result.exit_code == 1
    assert "tiny: 6 runs: 3 done, 3 failed (6 trained now) in mine.db" in result.stdout
    assert "Next: afor store failures mine.db" in result.stderr
    assert not Path("results").exists()


def test_diverged_runs_are_a_result_and_no_failure(here):
    here.write(optimizers=("diverger",), subjects=3, repetitions=1)
    result = runner.invoke(app, ["run", str(here.file)])
    assert result.exit_code == 0
    assert "0 done, 3 diverged" in result.stdout


def test_a_shard_names_its_store_and_the_merge_that_follows(here):
    here.write(subjects=3, repetitions=1)
    result = runner.invoke(app, ["run", str(here.file), "--shard", "2/3"])
    assert "2 runs: 2 done (2 trained now) in results/tiny.part-2-of-3.db" in result.stdout
    assert "Next: afor store merge results/tiny.db results/tiny.part-2-of-3.db" in result.stderr


def test_the_search_of_rates_prints_them_and_names_the_study_that_takes_them(here):
    here.write(subjects=3, repetitions=1, best_lr=3e-3, extra="search = { grid = [1e-3, 3e-3] }")
    result = runner.invoke(app, ["run", str(here.file)])
    assert result.exit_code == 0, result.output
    assert "learning rate of synthetic × tiny × a: 0.003" in result.stdout
    assert "Next: afor run paper --lr-from results/tiny.db" in result.stderr


def test_workers_are_as_many_as_cores_hold_runs_and_threads_come_from_the_study(here, monkeypatch):
    monkeypatch.setattr("afor.bench.cli.studies.run.cores", lambda: 7)
    here.write(subjects=3, repetitions=1, extra="threads = 3")
    runner.invoke(app, ["run", str(here.file)])
    runner.invoke(app, ["run", str(here.file), "-j", "5"])
    monkeypatch.setattr("afor.bench.cli.studies.run.cores", lambda: 2)
    runner.invoke(app, ["run", str(here.file)])
    assert here.engines == [(2, 3), (5, 3), (1, 3)]


def test_engines_are_made_as_they_are_asked_for():
    local = make_engine("", 3, 2)
    assert isinstance(local, LocalEngine)
    assert (local.workers, local.threads) == (3, 2)
    cluster = make_engine("tcp://10.0.0.1:8786", 3, 2)
    assert isinstance(cluster, DaskEngine)
    assert cluster.scheduler == "tcp://10.0.0.1:8786"
    with pytest.raises(ConfigError, match="--time-limit does not work with --scheduler"):
        make_engine("tcp://x", 1, 1, time_limit=5.0)


def test_a_summary_leaves_out_what_is_zero():
    path = Path("results/x.db")
    calm = Summary(planned=4, done=4, diverged=0, failed=0, trained=0)
    assert describe_summary("x", path, calm) == "x: 4 runs: 4 done (0 trained now) in results/x.db"
    rough = Summary(planned=9, done=2, diverged=1, failed=3, trained=5)
    assert "2 done, 1 diverged, 3 failed, 3 open (5 trained now)" in describe_summary(
        "x", path, rough
    )


@pytest.fixture
def handler():
    """Put a handler of our own in place, and the former one back."""

    def mine(*_):
        raise AssertionError("the command does not heed the signal")

    former = signal.signal(signal.SIGTERM, mine)
    yield mine
    signal.signal(signal.SIGTERM, former)


def test_a_signal_ends_the_command_with_130_and_the_handlers_are_put_back(handler, capsys):
    with pytest.raises(SystemExit) as ended, stopped_in_run("afor demo", Path("results/demo.db")):
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 130
    assert signal.getsignal(signal.SIGTERM) is handler
    told = capsys.readouterr()
    assert told.out == ""
    assert "All finished runs are kept in results/demo.db." in told.err
    assert "continues where this one stopped (afor demo)" in told.err


def test_other_errors_pass_through_a_command_that_heeds_signals():
    with pytest.raises(ZeroDivisionError), stopped_by_signals("kept", "next"):
        raise ZeroDivisionError
