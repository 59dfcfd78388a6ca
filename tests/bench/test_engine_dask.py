import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from afor.bench.engine_dask import DaskEngine
from afor.bench.errors import ConfigError, EngineError
from afor.bench.store import open_store

pytest.importorskip("distributed")


@pytest.fixture
def cluster(tiny, tmp_path):
    """Start a real scheduler and two real workers, in other processes and another folder."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    address_file = folder / "scheduler.json"
    environment = {
        **tiny.environment,
        "AFOR_CACHE": str(folder / "cache"),
        "DASK_DISTRIBUTED__WORKER__DAEMON": "False",
    }
    common = {"cwd": folder, "env": environment, "start_new_session": True}
    log = (folder / "log").open("wb")
    python = [sys.executable, "-m", "dask"]
    quiet = ["--no-dashboard", "--host", "127.0.0.1"]
    started = [
        subprocess.Popen(
            [*python, "scheduler", *quiet, "--port", "0", "--scheduler-file", address_file],
            stdout=log,
            stderr=log,
            **common,
        )
    ]
    import json

    end = time.monotonic() + 60
    while not address_file.exists() or not address_file.read_text().strip():
        assert time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.05)
    address = json.loads(address_file.read_text())["address"]
    workers = ["--nthreads", "1", "--nworkers", "2", "--local-directory", folder / "space"]
    started.append(
        subprocess.Popen(
            [*python, "worker", address, *quiet, *workers], stdout=log, stderr=log, **common
        )
    )
    yield address
    for process in reversed(started):  # with the nannies and workers of its group
        os.killpg(process.pid, signal.SIGTERM)
    for process in reversed(started):
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    log.close()


@pytest.mark.skipif(sys.platform != "linux", reason="hides a folder behind /proc/self/cwd")
def test_a_cluster_gives_the_same_bits_also_without_the_drivers_files(
    tiny, cluster, tmp_path, monkeypatch
):
    tiny.write(optimizers=("a", "raiser"), subjects=3, draws=1)
    local = tmp_path / "results" / "local.db"
    tiny.run_here(local)
    # A path that leads somewhere else in every process: the workers cannot see these files.
    monkeypatch.chdir(tmp_path)
    summary = tiny.run_here(
        tmp_path / "results" / "dask.db",
        engine=DaskEngine(cluster),
        cache_dir=Path("/proc/self/cwd/hidden-cache"),
    )
    assert (summary.done, summary.failed) == (3, 3)
    assert tiny.numbers(tmp_path / "results" / "dask.db") == tiny.numbers(local)
    assert list((tmp_path / "cluster" / "cache" / "received").rglob("*.f32"))
    assert not list((tmp_path / "results" / "dask.db.spool").glob("*.run"))


@pytest.mark.slow
def test_a_run_that_kills_its_worker_again_and_again_fails_and_the_rest_goes_on(tiny, cluster):
    tiny.write(optimizers=("a", "raiser", "killer"), subjects=3, draws=1)
    summary = tiny.run_here(engine=DaskEngine(cluster))
    assert (summary.done, summary.failed) == (3, 6)
    with open_store(tiny.store) as store:
        reasons = {cell.optimizer: cell.reason for cell in store.cells()}
    assert "died" in reasons["killer"]
    assert "never works" in reasons["raiser"]


def test_no_scheduler_and_no_address_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr("afor.bench.engine_dask.CONNECT_S", 0.5)
    with pytest.raises(ConfigError, match="--scheduler"):
        DaskEngine("")
    with pytest.raises(EngineError, match="No dask scheduler answers"):
        list(DaskEngine("tcp://127.0.0.1:9").run([], {}, tmp_path))
