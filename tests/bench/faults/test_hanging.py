import signal
import sys
import time
from dataclasses import replace

import psutil
import pytest

from afor.bench.cli.studies.status import print_status
from afor.bench.common.errors import ConfigError, StoreError
from afor.bench.execution.engines.local import LocalEngine
from afor.bench.execution.jobs import Died, Ended, Started
from afor.bench.execution.run_times import LEAST_S, UNKNOWN_S, RunTimes
from afor.bench.execution.status import read_running, status_of
from afor.bench.store.database import open_store
from afor.bench.store.lock import driver_of
from afor.bench.store.spool import spool_folder

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals and open files")


class Interfering:
    """A local engine; `interfere` is called once, with the first event of a kind."""

    def __init__(self, interfere, kind=Started, limits=None):
        self.engine = LocalEngine(1, limits=limits)
        self.interfere, self.kind = interfere, kind
        self.events = []

    def run(self, jobs, sources, spool):
        for event in self.engine.run(jobs, sources, spool):
            if isinstance(event, self.kind) and not any(
                isinstance(e, self.kind) for e in self.events
            ):
                self.interfere(event)
            self.events.append(event)
            yield event


@posix
def test_a_worker_that_is_stopped_for_ever_is_replaced_and_its_run_is_trained(tiny):
    tiny.write(optimizers=("a",), subjects=3, repetitions=1, delay_s=0.2)
    before = set(psutil.Process().children())

    def stop_worker(_):
        (worker,) = set(psutil.Process().children()) - before
        worker.send_signal(signal.SIGSTOP)

    engine = Interfering(stop_worker, limits=RunTimes(3.0))
    summary = tiny.run_here(engine=engine)
    assert (summary.done, summary.failed) == (3, 0)
    (died,) = [event for event in engine.events if isinstance(event, Died)]
    assert "ended after 3 s, its time limit" in died.reason
    assert set(psutil.Process().children()) <= before


def test_a_run_that_always_exceeds_its_limit_fails_and_the_others_go_on(tiny):
    tiny.write(optimizers=("a",), subjects=3, repetitions=1, delay_s=60.0)
    summary = tiny.run_here(engine=LocalEngine(3, limits=RunTimes(0.5)))
    assert summary.failed == 3
    with open_store(tiny.store) as store:
        reasons = {cell.reason for cell in store.runs()}
    assert all("died 3 times (ended after 0 s, its time limit" in reason for reason in reasons)


def test_limits_come_from_the_median_of_the_like_and_are_generous():
    limits = RunTimes()
    like = ("deap", "hslt", "adam")
    assert limits.limit_s(like) == UNKNOWN_S
    for seconds in (1.0, 100.0, 5000.0):
        limits.add(like, seconds)
    assert limits.limit_s(like) == limits.limit_s(("deap", "hslt", "afor")) == 2000.0
    assert limits.limit_s(("deap", "eegnet", "adam")) == UNKNOWN_S
    limits.add(("deap", "eegnet", "adam"), 0.1)
    assert limits.limit_s(("deap", "eegnet", "adam")) == LEAST_S
    assert RunTimes(7.0).limit_s(like) == 7.0


def test_time_in_which_the_driver_itself_was_stopped_counts_for_no_worker(monkeypatch):
    from types import SimpleNamespace

    from afor.bench.execution.engines import local as engine

    worker = SimpleNamespace(since=100.0)
    monkeypatch.setattr(engine.time, "monotonic", lambda: 1000.0)
    assert engine._extend_after_sleep([worker], 995.0) == 1000.0
    assert worker.since == 100.0
    engine._extend_after_sleep([worker], 500.0)
    assert worker.since == 100.0 + 500.0 - engine.CHECK_EVERY_S


def test_a_time_limit_that_is_none_is_refused_and_dask_has_its_own():
    from afor.bench.cli.studies.run import make_engine

    assert make_engine("", 1, 1, 2.0).limits.fixed_limit_s == 120.0
    for minutes in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="--time-limit"):
            make_engine("", 1, 1, minutes)
    with pytest.raises(ConfigError, match="worker-ttl"):
        make_engine("tcp://127.0.0.1:1", 1, 1, 5.0)


def test_status_says_who_runs_and_what_has_been_running_unusually_long(tiny, monkeypatch, capsys):
    tiny.write(optimizers=("a", "b"), subjects=3, repetitions=1)
    seen = []

    def look(event):
        with open_store(tiny.store) as store:
            seen.append(status_of(store))
            (run,) = read_running(spool_folder(tiny.store))
            assert run.key == event.key or run.key in store.statuses()
            monkeypatch.setattr("afor.bench.execution.status.time.time", lambda: run.since + 4000.0)
            seen.append(status_of(store))
            monkeypatch.setattr(
                "afor.bench.execution.status.read_running", lambda _: [replace(run, together=1000)]
            )
            seen.append(status_of(store))
            monkeypatch.undo()

    class Looking(Interfering):
        def run(self, jobs, sources, spool):
            started = 0
            for event in self.engine.run(jobs, sources, spool):
                yield event  # the driver has written it when it asks for the next
                started += isinstance(event, Started)
                if isinstance(event, Started) and started == 5:
                    look(event)

    tiny.run_here(engine=Looking(None))
    now, later, bundled = seen
    assert now["driver"].split()[0] == str(psutil.Process().pid)
    (run,) = now["running"]
    assert not run["unusually_long"]
    assert later["running"][0]["unusually_long"]
    assert not bundled["running"][0]["unusually_long"]  # its share is a thousandth
    print_status(later)
    text = capsys.readouterr().out
    assert "UNUSUALLY LONG: synthetic × tiny ×" in text
    assert "1 h 06 min on worker 1" in text
    with open_store(tiny.store) as store:
        after = status_of(store)
    assert (after["driver"], after["running"]) == (None, [])
    assert not (spool_folder(tiny.store) / "running.json").exists()
    print_status(after)
    assert "No driver is running." in capsys.readouterr().out


def test_asking_for_the_driver_takes_no_lock(tiny):
    tiny.run_inline()
    assert driver_of(tiny.store) is None
    tiny.run_inline()


@posix
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_store_removed_during_a_run_is_written_anew_and_the_study_goes_on(tiny, what):
    import shutil

    tiny.write(optimizers=("a", "b"), subjects=3, repetitions=1)

    def remove(_):
        shutil.rmtree(tiny.store.parent) if what == "folder" else tiny.store.unlink()

    seen = []

    class Removing(Interfering):
        def run(self, jobs, sources, spool):
            for event in self.engine.run(jobs, sources, spool):
                seen.append(event)
                ended = [e for e in seen if isinstance(e, Ended)]
                if isinstance(event, Ended) and len(ended) == 4:
                    remove(event)
                yield event

    with pytest.raises(StoreError, match=r"was removed while its study ran. All 4 finished runs"):
        tiny.run_here(engine=Removing(None))
    with open_store(tiny.store) as store:
        store.check()
        assert list(store.statuses().values()) == ["done"] * 4
        assert len(store.runs()) == 6
    assert tiny.run_here().trained <= 2
    assert len(tiny.numbers()) == 6


@posix
def test_a_store_removed_after_the_last_run_is_noticed_too(tiny):
    tiny.write(optimizers=("a",), subjects=3, repetitions=1)

    class Removing(Interfering):
        def run(self, jobs, sources, spool):
            yield from self.engine.run(jobs, sources, spool)
            tiny.store.unlink()

    with pytest.raises(StoreError, match="All 3 finished runs were written to it anew"):
        tiny.run_here(engine=Removing(None))
    assert len(tiny.numbers()) == 3


@posix
def test_runs_of_a_store_that_was_replaced_are_kept_beside_the_other_file(tiny):
    tiny.write(optimizers=("a",), subjects=3, repetitions=1)

    def replace(_):
        tiny.store.rename(tiny.store.with_name("away.db"))
        tiny.store.write_bytes(b"something else")

    with pytest.raises(StoreError, match=r"replaced.*1 finished runs are in .*tiny\.rescued-1\.db"):
        tiny.run_here(engine=Interfering(replace, kind=Ended))
    assert tiny.store.read_bytes() == b"something else"
    assert len(tiny.numbers(tiny.store.with_name("tiny.rescued-1.db"))) == 1


@posix
def test_a_driver_whose_store_is_removed_ends_with_code_4(tiny, workers_of):
    tiny.write(optimizers=("a", "b"), subjects=5, repetitions=2, delay_s=0.3)
    driver = tiny.start("-j", "1")
    workers_of(driver)
    while len(tiny.trainings()) < 3:
        assert driver.poll() is None
        time.sleep(0.02)
    tiny.store.unlink()
    out, err = driver.communicate(timeout=120)
    assert driver.returncode == 4, out + err
    assert "was removed while its study ran" in err
    assert "Traceback" not in err
    tiny.run("-j", "2")
    assert len(tiny.finished()) == 20
