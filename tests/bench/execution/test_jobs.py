import inspect
import pickle
from dataclasses import FrozenInstanceError

import pytest

from afor.bench.execution.engines.dask import DaskEngine
from afor.bench.execution.engines.local import LocalEngine
from afor.bench.execution.jobs import MAX_DEATHS, Ended, Engine, Job, Started


def test_jobs_and_events_cannot_be_changed_on_their_way():
    for thing in (Job("k", {}, "deap"), Started("k", "worker 1"), Ended("k", b"")):
        with pytest.raises(FrozenInstanceError):
            thing.key = "other"
    assert Ended("k", b"").spool is None  # a result that came back without a file


def test_a_job_survives_the_way_to_another_process():
    job = Job("k", {"split": {"train": ["s1"]}, "lr": 1e-3}, "deap")
    assert pickle.loads(pickle.dumps(job)) == job


@pytest.mark.parametrize("engine", [LocalEngine, DaskEngine])
def test_every_engine_is_called_alike(engine):
    wanted = list(inspect.signature(Engine.run).parameters)
    assert list(inspect.signature(engine.run).parameters) == wanted


def test_a_job_may_take_down_three_workers_as_documented():
    assert MAX_DEATHS == 3
