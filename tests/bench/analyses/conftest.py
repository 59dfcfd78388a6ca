"""Fixtures of the analyses: a small study, and a store of it that nobody had to train."""

from pathlib import Path

import pytest

from afor.bench.execution.sources import open_sources
from afor.bench.store.database import open_or_create
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import parse_study
from afor.bench.training.record import Epoch, FinishedRun, Metrics, RunRecord, encode

EPOCH = Epoch(0.7, 0.7, 0.5, 0.1, 0.1)
METRICS = Metrics(4, 0.5, 0.5, 0.5, 0.5, 0.0, ((1, 1), (1, 1)))


def make_record(beta2_by_tensor, steps=10) -> RunRecord:
    return RunRecord(
        "done", "", (EPOCH,), 0, METRICS, METRICS, (2, 2), 4, steps, {}, "cpu", 0.1, beta2_by_tensor
    )


@pytest.fixture
def record_of():
    return make_record


@pytest.fixture
def made_store(tmp_path, window_cache):
    """Return a function that writes a store whose records come from `record(cell)`."""

    def make(toml: str, record, name="study.db") -> Path:
        study = parse_study(toml)
        plan = make_plan(study, open_sources(study, window_cache))
        path = tmp_path / name
        with open_or_create(path) as store:
            store.set_plan(plan, toml)
            for cell in plan.runs:
                content = record(cell)
                if content is not None:
                    run = FinishedRun(cell.key, "done", "", cell.spec, content, "", {}, "", 0.1)
                    store.add(encode(run))
        return path

    return make
