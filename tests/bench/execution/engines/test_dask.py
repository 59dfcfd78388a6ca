import sys
from pathlib import Path

import pytest

from afor.bench.common.errors import ConfigError, EngineError
from afor.bench.execution.engines.dask import DaskEngine, _Session
from afor.bench.execution.jobs import Job
from afor.bench.store.database import open_store

pytest.importorskip("distributed")


@pytest.mark.skipif(sys.platform != "linux", reason="hides a folder behind /proc/self/cwd")
def test_a_cluster_gives_the_same_bits_also_without_the_drivers_files(
    tiny, cluster, tmp_path, monkeypatch
):
    tiny.write(optimizers=("a", "raiser"), subjects=3, draws=1)
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
    tiny.write(subjects=3, draws=1)
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
    tiny.write(optimizers=("a", "raiser", "killer"), subjects=3, draws=1)
    summary = tiny.run_here(engine=DaskEngine(cluster.address))
    assert (summary.done, summary.failed) == (3, 6)
    with open_store(tiny.store) as store:
        reasons = {cell.optimizer: cell.reason for cell in store.runs()}
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
