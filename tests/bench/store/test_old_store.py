"""A store written when all modules of the benchmark lay in one folder still opens, run for run."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from afor.bench.execution.sources import open_sources
from afor.bench.models.registry import NETWORK_NUMERICS
from afor.bench.store.database import open_store
from afor.bench.study.plan import make_plan
from afor.bench.study.planned_runs import run_key
from afor.bench.study.schema import parse_study
from afor.bench.training.run_spec import DEFAULT_TRAINER

BEFORE = Path(__file__).with_name("before_packages.db")


@pytest.fixture
def old_store(tmp_path):
    with open_store(Path(shutil.copy(BEFORE, tmp_path / "old.db"))) as store:
        yield store


def test_every_run_is_there_under_the_key_of_its_spec(old_store):
    runs = {key: old_store.run(key) for key in old_store.statuses()}
    assert [run.status for run in runs.values()] == ["done"] * 3
    for key, run in runs.items():
        assert run_key(run.spec) == key
        assert len(run.record.history) == 2
        assert 0 <= run.record.test.accuracy <= 1
    assert [r.optimizer for r in old_store.results()] == ["adam", "sophia", "afor"]


def test_its_study_plans_the_same_runs(old_store, cache_dir):
    (text,) = old_store.studies().values()
    assert f'trainer = "{DEFAULT_TRAINER}"' in text  # the name from before the move
    study = parse_study(text, "old.toml")
    plan = make_plan(study, open_sources(study, cache_dir=cache_dir))
    stored = [old_store.run(cell.key).spec for cell in old_store.runs()]
    for cell, spec in zip(plan.runs, stored, strict=True):
        # Samples of synthetic subjects may differ in the last bit from machine to machine.
        fingerprint = {"fingerprint": spec["data"]["fingerprint"]}
        planned = {**cell.spec, "data": {**cell.spec["data"], **fingerprint}}
        # The arithmetic of EEGNet has changed since, and nothing else.
        code = planned["backbone"].pop("code")
        assert planned == spec
        assert code == NETWORK_NUMERICS["eegnet"]
        assert "trainer" not in cell.spec


def test_its_runs_show_the_metrics_they_have_and_repeat_without_those_that_came_later(old_store):
    result = old_store.results()[0]
    assert "accuracy" in result.metrics
    assert "nll" not in result.metrics
    record = old_store.run(result.key).record
    again = replace(record, test=replace(record.test, nll=0.5, brier=0.2))
    assert again.numbers() != record.numbers()
    assert again.numbers_known_to(record) == record.numbers()
    wrong = replace(record, test=replace(record.test, accuracy=0.123, nll=0.5))
    assert wrong.numbers_known_to(record) != record.numbers()
