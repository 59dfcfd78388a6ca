import os
import subprocess
import sys

import psutil
import pytest

from afor.bench.common.errors import ConfigError, EngineError
from afor.bench.execution.engines.local import LocalEngine
from afor.bench.execution.jobs import Ended, Started
from afor.bench.execution.runner import open_jobs
from afor.bench.execution.sources import open_sources
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import load_study
from afor.bench.training.record import decode


@pytest.fixture
def work(tiny):
    def make(**settings):
        tiny.write(**settings)
        study = load_study(str(tiny.file))
        plan = make_plan(study, open_sources(study))
        return open_jobs(plan.runs, {}), plan.sources, tiny.folder / "spool"

    return make


def test_every_job_starts_and_ends_once_and_leaves_its_file_to_the_driver(work):
    jobs, sources, spool = work(subjects=3, repetitions=1)
    events = list(LocalEngine(2).run(jobs, sources, spool))
    keys = sorted(job.key for job in jobs)
    assert sorted(e.key for e in events if isinstance(e, Started)) == keys
    ended = [e for e in events if isinstance(e, Ended)]
    assert sorted(e.key for e in ended) == keys
    assert all(e.spool.exists() for e in ended)
    assert {decode(e.content).status for e in ended} == {"done"}


def test_workers_die_with_the_iterator_of_their_engine(work, assert_gone):
    jobs, sources, spool = work(delay_s=5.0)
    before = set(psutil.Process().children())
    events = LocalEngine(2).run(jobs, sources, spool)
    next(events)
    mine = [p for p in psutil.Process().children() if p not in before]
    assert len(mine) == 2
    events.close()
    assert_gone(mine)


def test_no_more_workers_than_jobs_are_started(work):
    jobs, sources, spool = work(delay_s=1.0)
    before = set(psutil.Process().children())
    events = LocalEngine(8).run(jobs[:1], sources, spool)
    next(events)
    assert len(set(psutil.Process().children()) - before) == 1
    events.close()


def test_workers_that_cannot_start_end_the_study_with_their_last_words(work, monkeypatch):
    jobs, sources, spool = work()
    folder = spool.parent / "broken"
    folder.mkdir()
    (folder / "pickle.py").write_text("raise RuntimeError('this python is broken')")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    with pytest.raises(
        EngineError, match=r"5 workers in a row.*exit code 1.*this python is broken"
    ):
        list(LocalEngine(1).run(jobs, sources, spool))


class Poison:
    """A window source that no worker can read."""

    def __reduce__(self):
        return sys.exit, ("these windows are broken",)


def test_workers_that_end_before_their_first_run_end_the_study_too(work):
    jobs, sources, spool = work()
    with pytest.raises(EngineError, match=r"5 workers in a row.*these windows are broken"):
        list(LocalEngine(1).run(jobs, dict.fromkeys(sources, Poison()), spool))


KILLED_AT_BIRTH = """
import os, signal
with open({log!r}, "a") as file:
    file.write("x")
if os.path.getsize({log!r}) <= {count}:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def kill_first_workers(tmp_path, monkeypatch):
    """Let the next processes be killed before their first line; the file given has one x each."""

    def arrange(count):
        folder, log = tmp_path / "killers", tmp_path / "births.txt"
        folder.mkdir()
        text = KILLED_AT_BIRTH.format(log=str(log), count=count)
        (folder / "sitecustomize.py").write_text(text)  # python runs it at its start
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        return log

    return arrange


def test_workers_killed_before_they_can_start_count_against_nothing(
    work, monkeypatch, kill_first_workers
):
    monkeypatch.setattr("afor.bench.execution.engines.local.LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr("afor.bench.execution.engines.local.FIRST_PAUSE_S", 0.01)
    jobs, sources, spool = work(subjects=3, repetitions=1)
    births = kill_first_workers(60)
    ended = [e for e in LocalEngine(2).run(jobs, sources, spool) if isinstance(e, Ended)]
    assert births.stat().st_size > 60
    assert sorted(e.key for e in ended) == sorted(job.key for job in jobs)
    assert {decode(e.content).status for e in ended} == {"done"}


def test_workers_that_are_killed_for_good_end_the_study_after_a_while(
    work, monkeypatch, kill_first_workers
):
    monkeypatch.setattr("afor.bench.execution.engines.local.GIVE_UP_AFTER_S", 1.0)
    jobs, sources, spool = work(subjects=3, repetitions=1)
    kill_first_workers(10_000)
    with pytest.raises(EngineError, match=r"were killed before their first.*the same command"):
        list(LocalEngine(1).run(jobs, sources, spool))


def test_no_worker_at_all_is_refused():
    with pytest.raises(ConfigError, match="-j 0"):
        LocalEngine(0)


def test_workers_are_spread_over_the_gpus_and_each_sees_one(work, monkeypatch):
    jobs, sources, spool = work(delay_s=0.3)
    seen = []
    start = subprocess.Popen

    def record(*arguments, env, **options):
        seen.append(env["CUDA_VISIBLE_DEVICES"])
        assert env["CUBLAS_WORKSPACE_CONFIG"]
        return start(*arguments, env=env, **options)

    monkeypatch.setattr("afor.bench.execution.engines.local.subprocess.Popen", record)
    events = list(LocalEngine(3, gpus=("4", "7")).run(jobs[:6], sources, spool))
    assert sorted(seen) == ["4", "4", "7"]
    names = {event.worker for event in events if isinstance(event, Started)}
    assert names <= {"worker 1 on GPU 4", "worker 2 on GPU 7", "worker 3 on GPU 4"}
