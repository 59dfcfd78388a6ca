"""Bundles of jobs: who belongs together, and what happens when one of them ends its worker."""

from collections import Counter
from dataclasses import replace

import pytest

from afor.bench.execution.engines.local import LocalEngine
from afor.bench.execution.jobs import Died, Ended, Job, make_bundles
from afor.bench.execution.run_times import UNKNOWN_S, RunTimes
from afor.bench.execution.runner import open_jobs, run_study
from afor.bench.execution.sources import open_sources
from afor.bench.store.database import open_store
from afor.bench.study.bundling import bundle_key
from afor.bench.study.plan import make_plan, shard
from afor.bench.study.schema import load_study, parse_study
from afor.bench.training.execute import execute_bundle, train_run
from afor.bench.training.record import decode


def job(key: str, fold: int = 0, *, bundled: bool = True, **training: object) -> Job:
    spec = {
        "optimizer": {"name": key},
        "split": {"fold": fold},
        "training": training,
    }
    return Job(key, spec, "eyes", bundle_key(spec) if bundled else "")


def keys(bundles) -> list[str]:
    return ["".join(job.key for job in bundle) for bundle in bundles]


def test_runs_that_differ_in_optimizer_clipping_and_kept_state_are_put_together() -> None:
    kept, reset = ({"state": state, "passes": 2} for state in ("kept", "reset"))
    jobs = [job("a", adaptation=kept), job("b", 1, adaptation=kept)]
    jobs += [job("c", adaptation=reset), job("d", clip_norm=0.5, adaptation=kept)]
    jobs += [job("e", bundled=False), job("f", bundled=False), job("g", batch_size=8)]
    assert keys(make_bundles(jobs, 8, 1)) == ["acd", "b", "e", "f", "g"]


def test_bundles_are_of_nearly_equal_size_and_give_every_worker_something_to_do() -> None:
    jobs = [job(key) for key in "abcdefghi"]
    assert keys(make_bundles(jobs, 8, 1)) == ["abcd", "efghi"]
    assert keys(make_bundles(jobs, 9, 2)) == ["abcde", "fghi"]
    assert keys(make_bundles(jobs[:2], 8, 5)) == ["a", "b"]
    folds = [job(key, fold) for fold, members in enumerate(("abc", "def", "gh")) for key in members]
    assert keys(make_bundles(folds, 8, 2)) == ["abc", "de", "f", "gh"]
    assert keys(make_bundles(folds, 8, 3)) == ["abc", "def", "gh"]
    assert make_bundles([], 8, 2) == []


def test_a_bundle_may_take_the_time_of_all_its_runs_once_that_is_known() -> None:
    adam, afor = ("eyes", "eegnet", "adam"), ("eyes", "eegnet", "afor")
    assert RunTimes(30.0).bundle_limit_s([adam, afor]) == 60.0
    limits = RunTimes()
    assert limits.bundle_limit_s([adam, afor]) == UNKNOWN_S
    limits.add(adam, 100.0)
    assert limits.bundle_limit_s([adam, adam]) == 2 * limits.limit_s(adam)


@pytest.fixture
def bundled_jobs(tiny):
    """Return the jobs of a tiny study as if its trainer could train them together."""

    def make(**settings):
        tiny.write(**settings)
        study = load_study(str(tiny.file))
        plan = make_plan(study, open_sources(study))
        jobs = open_jobs(plan.runs, {})
        jobs = [replace(job, bundle_key=bundle_key(job.spec)) for job in jobs]
        return jobs, plan.sources, tiny.folder / "spool"

    return make


def test_a_run_that_kills_its_worker_fails_and_takes_no_companion_along(bundled_jobs) -> None:
    jobs, sources, spool = bundled_jobs(
        optimizers=("a", "killer", "b", "raiser"), subjects=3, repetitions=1
    )
    fold = jobs[:4]
    events = list(LocalEngine(1).run(fold, sources, spool))
    ended = [decode(event.content) for event in events if isinstance(event, Ended)]
    assert Counter(run.key for run in ended) == Counter(job.key for job in fold)
    status = {run.spec["optimizer"]["name"]: run for run in ended}
    assert [status[name].status for name in ("a", "b")] == ["done", "done"]
    assert "its worker died 3 times" in status["killer"].reason
    assert "never works" in status["raiser"].reason
    # `a` had ended before the death; the killer and two others were in the bundle, then in halves.
    assert status["a"].key not in {event.key for event in events if isinstance(event, Died)}


STUDY = """
name = "bundled"
backbones = ["eegnet"]
training = { max_epochs = 4, patience = 1, batch_size = 16 }
protocol = { repetitions = 1, only_folds = [0, 1] }
datasets = [{ name = "synthetic", options = { n_subjects = 3, trials = 4, rate_hz = 64.0 } }]
[[optimizers]]
name = "adam"
[[optimizers]]
name = "afor"
lr = 0.1
[[optimizers]]
name = "sophia"
clip_norm = 0.5
"""


def test_a_stopped_study_goes_on_and_gives_the_bits_of_runs_by_themselves(
    tmp_path, window_cache, inline_engine
) -> None:
    study, store = parse_study(STUDY), tmp_path / "bundled.db"
    sources = open_sources(study, window_cache)
    plan = make_plan(study, sources)
    jobs, spool = open_jobs(plan.runs, {}), tmp_path / "bundled.db.spool"
    events = LocalEngine(1).run(jobs, sources, spool)
    first = next(event for event in events if isinstance(event, Ended))
    events.close()  # ends the workers; what they have finished is in the spool
    assert first.spool.exists()
    summary = run_study(study, STUDY, store, LocalEngine(1), cache_dir=window_cache)
    assert (summary.done, summary.failed) == (6, 0)
    assert 0 < summary.trained < 6
    alone = tmp_path / "alone.db"
    run_study(study, STUDY, alone, inline_engine, cache_dir=window_cache)
    with open_store(store) as ours, open_store(alone) as theirs:
        for planned in plan.runs:
            record = ours.run(planned.key).record
            assert repr(record.numbers()) == repr(theirs.run(planned.key).record.numbers())


def test_shards_keep_the_runs_of_a_bundle_together(window_cache) -> None:
    study = parse_study(STUDY)
    runs = make_plan(study, open_sources(study, window_cache)).runs
    assert [[run.fold for run in shard(runs, i, 2)] for i in (1, 2)] == [[0] * 3, [1] * 3]
    alone = planned(study, window_cache, bundle=False)
    assert shard(alone, 2, 4) == alone[1::4]


def planned(study, cache_dir, **changes):
    """Return the runs of a study with other settings."""
    return make_plan(study.model_copy(update=changes), open_sources(study, cache_dir)).runs


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("batch_size = 16", "batch_size = 513"),
        ('"synthetic",', '"synthetic", batch_size = 513,'),
        ("rate_hz = 64.0", "rate_hz = 640.0"),
    ],
)
def test_runs_that_are_faster_alone_are_not_bundled(old, new, window_cache) -> None:
    assert old in STUDY
    assert all(run.bundle_key for run in planned(parse_study(STUDY), window_cache))
    runs = planned(parse_study(STUDY.replace(old, new)), window_cache)
    assert not any(run.bundle_key for run in runs)


def test_only_the_compiled_eegnet_is_bundled_and_the_keys_stay(window_cache) -> None:
    backbones = """["eegnet", "nsal_dgat",
        { name = "plain", use = "eegnet", settings = { form = "plain" } }]"""
    text = STUDY.replace('["eegnet"]', backbones).replace("rate_hz = 64.0", "rate_hz = 128.0")
    study = parse_study(text)
    together, alone = (planned(study, window_cache, bundle=bundle) for bundle in (True, False))
    assert [run.key for run in together] == [run.key for run in alone]
    assert {run.backbone for run in together if run.bundle_key} == {"eegnet"}
    assert not any(run.bundle_key for run in alone)


def test_the_plan_says_why_a_network_is_trained_one_by_one(window_cache) -> None:
    study = parse_study(STUDY.replace('["eegnet"]', '["eegnet", "acrnn_authors"]'))
    decisions = make_plan(study, open_sources(study, window_cache)).bundling
    assert decisions["synthetic", "eegnet"].sentence().startswith("up to 8 runs as one network")
    reason = decisions["synthetic", "acrnn_authors"].sentence()
    assert reason == "one by one: only EEGNets on the CPU have the same bits in a bundle"


def test_a_worker_without_compiled_code_trains_one_by_one_to_the_same_bits(
    window_cache, monkeypatch
) -> None:
    study = parse_study(STUDY)
    sources = open_sources(study, window_cache)
    jobs = [(run.key, run.spec) for run in make_plan(study, sources).runs[:2]]
    source = sources["synthetic"]

    def numbers() -> dict[str, str]:
        contents = {}
        execute_bundle(jobs, source, contents.__setitem__)
        return {key: repr(decode(content).record.numbers()) for key, content in contents.items()}

    expected = {key: repr(train_run(spec, source).numbers()) for key, spec in jobs}
    assert numbers() == expected
    monkeypatch.setattr("afor.bench.models.stacked_eegnet.unavailable_reason", lambda: "none here")
    assert numbers() == expected


def test_an_error_of_the_bundle_is_seen_and_keeps_what_had_ended(window_cache, monkeypatch) -> None:
    study = parse_study(STUDY)
    sources = open_sources(study, window_cache)
    jobs = [(run.key, run.spec) for run in make_plan(study, sources).runs[:3]]
    contents, record = {}, train_run(jobs[1][1], sources["synthetic"])

    def broken(bundle, source, make_model, ended):
        ended(1, record, 1.0)
        raise ArithmeticError("a fault in the code of bundles")

    monkeypatch.setattr("afor.bench.training.loop.train_bundle", broken)
    execute_bundle(jobs, sources["synthetic"], contents.__setitem__)
    first, second, third = (decode(contents[key]) for key, _ in jobs)
    assert second.status == "done"
    for run in (first, third):
        assert run.reason == "ArithmeticError: a fault in the code of bundles"
        assert "while 3 runs were trained as one network" in run.traceback
