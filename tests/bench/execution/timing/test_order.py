from types import SimpleNamespace

import pytest

from afor.bench.execution.bundles import Bundle
from afor.bench.execution.engines.dask import DaskEngine
from afor.bench.execution.jobs import Job
from afor.bench.execution.runner import open_jobs, run_study
from afor.bench.execution.sources import open_sources
from afor.bench.execution.timing.order import longest_first
from afor.bench.execution.timing.step_timing import StepTimes
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import parse_study


class Timer:
    """Knows how long a step of each optimizer takes, and remembers what was timed where."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.devices: set[str] = set()
        self.together: list[int] = []

    def times(self, spec, shape, together):  # noqa: ARG002
        self.devices.add(spec["device"])
        self.together.append(together)
        return StepTimes(self.seconds[spec["optimizer"]["name"]], 0.0, 0.0)


@pytest.fixture
def planned(small_study, cache_dir):
    """Return a function that makes the jobs of a study of three optimizers, and its windows."""

    def make(**settings):
        text = small_study(optimizers=["adam", "afor", "adamw"], **settings)
        study = parse_study(text)
        sources = open_sources(study, cache_dir)
        return one_by_one(open_jobs(make_plan(study, sources).runs, {})), sources

    return make


def one_by_one(jobs):
    return [(job,) for job in jobs]


def describe(bundles):
    return [
        (job.spec["split"]["draw"], job.spec["optimizer"]["name"])
        for bundle in bundles
        for job in bundle
    ]


def test_the_longest_runs_of_each_draw_come_first(planned):
    jobs, sources = planned(protocol={"draws": 2, "only_folds": [0, 1]})
    ordered = longest_first(jobs, sources, Timer(adam=1.0, afor=3.0, adamw=2.0))
    names = ["afor", "afor", "adamw", "adamw", "adam", "adam"]
    assert describe(ordered) == [(draw, name) for draw in (0, 1) for name in names]
    folds = [job.spec["split"]["fold"] for (job,) in ordered]
    assert folds == [0, 1] * 6  # runs of equal time stay in the order of the plan
    assert {job.key for (job,) in ordered} == {job.key for (job,) in jobs}


def test_a_bundle_takes_the_sum_of_the_shares_of_its_runs(planned):
    jobs, sources = planned(protocol={"only_folds": [0, 1]})
    (adam, afor, adamw), others = (job for (job,) in jobs[:3]), jobs[3:]
    timer = Timer(adam=1.0, afor=3.0, adamw=1.5)
    ordered = longest_first([*others, (adam, adamw), (afor,)], sources, timer)
    assert [name for _, name in describe(ordered)] == [
        *("afor", "afor"),  # 3.0 each, in the order given
        *("adam", "adamw"),  # 2.5 together
        *("adamw", "adam"),
    ]
    assert sorted(timer.together) == [1, 1, 1, 1, 2, 2]


def test_several_workers_end_sooner_and_closer_together_than_in_the_order_of_the_plan(planned):
    jobs, sources = planned(protocol={"only_folds": [0]})
    timer = Timer(adam=1.0, afor=5.0, adamw=1.0)
    jobs = sorted(jobs, key=lambda bundle: timer.seconds[bundle[0].spec["optimizer"]["name"]])

    def last_end(order: list[Bundle]) -> float:
        ends = [0.0, 0.0]  # two workers; each takes the next run when it is free
        for (job,) in order:
            ends[ends.index(min(ends))] += timer.seconds[job.spec["optimizer"]["name"]]
        return max(ends)

    assert last_end(jobs) == 6.0
    assert last_end(longest_first(jobs, sources, timer)) == 5.0


def test_a_gpu_that_the_driver_lacks_is_timed_on_its_processor(planned):
    jobs, sources = planned(protocol={"only_folds": [0]})
    elsewhere = one_by_one(
        Job(job.key, {**job.spec, "device": "cuda"}, job.dataset) for (job,) in jobs
    )
    timer = Timer(adam=1.0, afor=3.0, adamw=2.0)
    ordered = longest_first(elsewhere, sources, timer)
    assert [name for _, name in describe(ordered)] == ["afor", "adamw", "adam"]
    import torch

    assert timer.devices == {"cuda" if torch.cuda.is_available() else "cpu"}


def test_runs_of_a_custom_trainer_stay_in_the_order_of_the_plan():
    jobs = one_by_one(
        Job(str(i), {"trainer": {"source": "mine:train"}}, "synthetic") for i in range(3)
    )
    assert longest_first(jobs, {}, Timer()) == jobs


def test_dask_gets_the_runs_in_that_order_also_for_a_device_that_the_driver_lacks(
    small_study, cache_dir, tmp_path, monkeypatch
):
    seen: list[Job] = []

    class Session:
        def __init__(self, *_):
            pass

        def room(self):
            return 2

        def run(self, bundles):
            seen.extend(job for bundle in bundles for job in bundle)
            return iter(())

    fakes = SimpleNamespace(Client=lambda *_, **__: SimpleNamespace(close=lambda **_: None))
    monkeypatch.setattr("afor.bench.execution.engines.dask._import_distributed", lambda: fakes)
    monkeypatch.setattr("afor.bench.execution.engines.dask._Session", Session)
    text = small_study(optimizers=["adam", "afor"], protocol={"only_folds": [0]}, device="cuda")
    engine = DaskEngine("tcp://127.0.0.1:1", Timer(adam=1.0, afor=3.0))
    summary = run_study(parse_study(text), text, tmp_path / "s.db", engine, cache_dir=cache_dir)
    assert summary.open == 2
    assert [job.spec["optimizer"]["name"] for job in seen] == ["afor", "adam"]
    assert {job.spec["device"] for job in seen} == {"cuda"}
