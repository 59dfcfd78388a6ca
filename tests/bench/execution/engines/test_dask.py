import sys
from pathlib import Path

import pytest

from afor.bench.common.errors import ConfigError, EngineError
from afor.bench.execution.engines.dask import DaskEngine, _Session, _write_token, run_remotely
from afor.bench.execution.jobs import Ended, Job, Started, make_bundles
from afor.bench.store.database import open_store
from afor.bench.store.spool import SUFFIX, read_spool, write_spool
from afor.bench.training.record import decode

pytest.importorskip("distributed")


@pytest.mark.skipif(sys.platform != "linux", reason="hides a folder behind /proc/self/cwd")
def test_a_cluster_gives_the_same_bits_also_without_the_drivers_files(
    tiny, cluster, tmp_path, monkeypatch
):
    tiny.write(optimizers=("a", "raiser"), subjects=3, repetitions=1)
    local = tmp_path / "results" / "local.db"
    tiny.run_inline(local)
    # A path that leads somewhere else in every process: the workers cannot see these files.
    monkeypatch.chdir(tmp_path)
    summary = tiny.run_here(
        tmp_path / "results" / "dask.db",
        engine=DaskEngine(cluster.address),
        cache_dir=Path("/proc/self/cwd/hidden-cache"),
    )
    assert (summary.done, summary.failed) == (3, 3)
    assert tiny.numbers(tmp_path / "results" / "dask.db") == tiny.numbers(local)
    assert list((cluster.folder / "cache" / "received").rglob("*.f32"))
    assert not list((tmp_path / "results" / "dask.db.spool").glob("*.run"))


def test_a_cluster_trains_a_real_network_to_the_same_bits(tiny, real_study, cluster):
    real_study()
    local = tiny.folder / "results" / "local.db"
    tiny.run_inline(local)
    tiny.run_here(engine=DaskEngine(cluster.address))
    assert len(tiny.numbers()) == 6
    assert tiny.numbers() == tiny.numbers(local)


def test_a_cluster_finds_a_module_beside_the_study_file(tiny, cluster, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    tiny.write(subjects=3, repetitions=1)
    (tiny.folder / "cluster_trainer.py").write_text("from cluster_helper import train\n")
    (tiny.folder / "cluster_helper.py").write_text("from tiny_trainer import train\n")
    mark = tiny.folder / "executed"
    (tiny.folder / "numpy.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    tiny.file.write_text(
        tiny.file.read_text().replace("tiny_trainer:train", "cluster_trainer:train")
    )
    summary = tiny.run_here(engine=DaskEngine(cluster.address))
    assert (summary.done, summary.failed) == (6, 0)
    assert not mark.exists()


@pytest.mark.slow
def test_a_run_that_kills_its_worker_again_and_again_fails_and_the_rest_goes_on(tiny, cluster):
    tiny.write(optimizers=("a", "raiser", "killer"), subjects=3, repetitions=1)
    summary = tiny.run_here(engine=DaskEngine(cluster.address))
    assert (summary.done, summary.failed) == (3, 6)
    with open_store(tiny.store) as store:
        reasons = {cell.method: cell.reason for cell in store.runs()}
    assert "died" in reasons["killer"]
    assert "never works" in reasons["raiser"]


def test_no_scheduler_and_no_address_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr("afor.bench.execution.engines.dask.CONNECT_S", 0.5)
    with pytest.raises(ConfigError, match="--scheduler"):
        DaskEngine("")
    with pytest.raises(EngineError, match="No dask scheduler answers"):
        list(DaskEngine("tcp://127.0.0.1:9").run([], {}, tmp_path))


@pytest.mark.parametrize(
    ("device", "resources", "expected"),
    [("cuda", {"GPU": 1}, {"GPU": 1}), ("cuda", {}, None), ("cpu", {"GPU": 1}, None)],
)
def test_a_run_on_cuda_waits_for_a_gpu_if_workers_declare_theirs(device, resources, expected):
    class Client:
        def scheduler_info(self, n_workers):
            assert n_workers == -1  # all of them
            return {"workers": {"tcp://1": {"resources": {}}, "tcp://2": {"resources": resources}}}

    session = _Session(Client(), None, {}, Path(), "")
    assert session._resources(Job("key", {"device": device}, "synthetic")) == expected


class FakeFuture:
    """Ends with a result, or with an error."""

    def __init__(self, outcome):
        self.outcome = outcome

    def result(self):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class FakeClient:
    """A cluster of one thread whose workers die of the runs that are named `killer`."""

    loop, status = None, "running"

    def __init__(self, spool):
        self.spool = spool
        self.tasks: list[str] = []

    def nthreads(self):
        return {"worker": 1}

    def submit(self, function, jobs, *_, **__):
        assert function is run_remotely
        keys = [key for key, _ in jobs]
        self.tasks.append("".join(keys))
        if "k" not in keys:
            return FakeFuture(("ended", {key: key.encode() for key in keys}))
        for key in keys[: keys.index("k")]:  # ended before the death, in the spool
            write_spool(self.spool, key, key.encode())
        return FakeFuture(FakeDistributed.KilledWorker("k"))


class FakeDistributed:
    class KilledWorker(Exception):  # noqa: N818  named by distributed
        pass

    class CancelledError(Exception):
        pass

    class as_completed(list):  # noqa: N801  named by distributed
        def __init__(self, loop):
            assert loop is None

        add = list.append

        def __next__(self):
            return self.pop(0)


def test_a_bundle_is_one_task_and_a_run_that_kills_its_worker_takes_no_companion_along(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("afor.bench.execution.engines.dask.pack_source", lambda _: b"")
    spec = {"device": "cpu", "split": {"test": ["s"]}, "data": {"fingerprint": "f"}}
    jobs = [Job(key, spec, "eyes", bundle_key="same") for key in "abkcd"]
    client = FakeClient(tmp_path)
    session = _Session(client, FakeDistributed, {"eyes": None}, tmp_path, "")
    events = list(session.run(make_bundles(jobs, 8, session.room())))
    # The first two had ended; the others are tried in halves, in the end one by one.
    assert client.tasks == ["abkcd", "kc", "d", "k", "c"]
    ended = {event.key: event for event in events if isinstance(event, Ended)}
    assert {key: event.content for key, event in ended.items() if key != "k"} == {
        key: key.encode() for key in "abcd"
    }
    assert "its worker died 3 times" in decode(ended["k"].content).reason
    assert ended["a"].spool is not None
    together = [event.together for event in events if isinstance(event, Started)]
    assert together == [5] * 5 + [2] * 2 + [1] * 3


def test_a_worker_trains_only_what_a_dead_one_has_not_finished(tmp_path, monkeypatch):
    dask = "afor.bench.execution.engines.dask"
    trained = []

    def execute_bundle(jobs, source, finished):
        for key, _ in jobs:
            trained.append((key, source))
            finished(key, b"new")

    monkeypatch.setattr(f"{dask}.execute_bundle", execute_bundle)
    monkeypatch.setattr(f"{dask}._unpack", lambda packed, _: packed)
    monkeypatch.setattr(f"{dask}._locate", lambda source: source)
    write_spool(tmp_path, "a", b"old")
    spec = {"data": {"fingerprint": "f"}}
    jobs = [(key, spec) for key in "abc"]
    token = _write_token(tmp_path)
    outcome = run_remotely(jobs, b"windows", str(tmp_path), token, [])
    assert outcome == ("ended", {"a": b"old", "b": b"new", "c": b"new"})
    assert trained == [("b", b"windows"), ("c", b"windows")]
    assert read_spool(tmp_path / f"c{SUFFIX}") == b"new"
    # A worker on another machine sees another folder, and trains all.
    assert set(run_remotely(jobs, b"", str(tmp_path), "another token", [])[1].values()) == {b"new"}
