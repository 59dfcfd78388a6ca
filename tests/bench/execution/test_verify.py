import json
from dataclasses import replace

import pytest

from afor.bench.common.errors import DataError
from afor.bench.execution.sources import open_sources
from afor.bench.execution.verify import _compare, sample_runs, verify_runs
from afor.bench.store.database import open_store
from afor.bench.study.schema import load_study
from afor.bench.training.execute import failed_run
from afor.bench.training.record import decode, encode


@pytest.fixture
def store(tiny):
    tiny.write(optimizers=("a", "b", "raiser", "diverger"), subjects=3, repetitions=2)
    tiny.run_inline()
    with open_store(tiny.store, write=True) as opened:
        yield opened


@pytest.fixture
def sources(tiny):
    return open_sources(load_study(str(tiny.file)))


def alter(store, key, change):
    """Write a run as if it had been trained to something else."""
    fields = json.loads(encode(store.run(key)))
    change(fields)
    store.forget([key])
    store.add(json.dumps(fields, separators=(",", ":")).encode())


def test_differing_bits_are_explained_by_gpu_cuda_cudnn_driver_and_tf32(store):
    (stored,) = sample_runs(store, 1, seed=0)
    run = store.run(stored.key)
    then = {"gpu": "A100", "cuda": "12.8", "cudnn": "91002", "driver": "570.1", "tf32": "off"}
    now = {"gpu": "H100", "cuda": "13.0", "cudnn": "91300", "driver": "580.2", "tf32": "on"}
    spec = {**run.spec, "device": "cuda"}
    before = replace(run, spec=spec, environment={**run.environment, **then})
    other = replace(before.record, steps=before.record.steps + 1)
    after = replace(before, record=other, environment={**run.environment, **now})
    verdict = _compare(stored, before, after)
    assert verdict.differs_in == ("steps",)
    expected = [f"{name} {then[name]} then, {now[name]} now" for name in then]
    assert verdict.note == "; ".join(expected)
    same = _compare(stored, before, replace(before, record=other))
    assert same.note.startswith("the same GPU and versions: on CUDA torch gives the same bits only")
    assert _compare(stored, before, before).note == ""


def test_only_what_has_numbers_is_drawn_and_the_seed_decides_which(store):
    everything = sample_runs(store, 0, seed=0)
    assert {cell.status for cell in everything} == {"done", "diverged"}
    assert len(everything) == 3 * 6
    assert sample_runs(store, 100, seed=0) == everything
    three = sample_runs(store, 3, seed=0)
    assert len({cell.key for cell in three}) == 3
    assert three == sample_runs(store, 3, seed=0)
    assert three != sample_runs(store, 3, seed=1)


def test_a_run_that_two_studies_share_is_drawn_once(store, tiny):
    tiny.write(name="second", optimizers=("a", "b"), subjects=3, repetitions=2)
    tiny.run_inline()
    keys = [cell.key for cell in sample_runs(store, 0, seed=0)]
    assert len(keys) == len(set(keys)) == 18


def test_each_run_gets_a_verdict_that_names_what_differs_and_the_store_stays(
    store, sources, tmp_path
):
    cells = sample_runs(store, 0, seed=0)
    done = [cell for cell in cells if cell.status == "done"][:3]
    diverged = next(cell for cell in cells if cell.status == "diverged")
    same, other, older = (cell.key for cell in done)
    alter(store, other, lambda run: run["record"]["history"][0].update(train_loss=0.125))
    alter(store, older, lambda run: run["environment"].update(python="2.7.18", host="elsewhere"))
    before = list(store.contents())
    spool = tmp_path / "spool"
    chosen = [*done, diverged]
    verdicts = {
        v.stored.key: v for v in verify_runs(store, chosen, sources, spool, workers=1, trust=True)
    }
    assert list(store.contents()) == before
    assert not list(spool.glob("*.run"))
    assert (verdicts[same].is_same, verdicts[same].differs_in) == (True, ())
    assert verdicts[diverged.key].is_same
    assert (verdicts[other].is_same, verdicts[other].differs_in) == (False, ("history",))
    assert verdicts[older].is_same
    assert "python 2.7.18 then" in verdicts[older].note
    assert "elsewhere" not in verdicts[older].note  # the name of a machine changes no bit


def test_a_run_that_now_fails_is_told_with_its_reason(store, sources, tmp_path, monkeypatch):
    cell = sample_runs(store, 1, seed=0)[0]
    spec = store.run(cell.key).spec

    class Failing:
        def __init__(self, *_):
            pass

        def run(self, jobs, *_):
            from afor.bench.execution.jobs import Ended

            yield Ended(jobs[0].key, failed_run(jobs[0].key, spec, "no memory"))

    monkeypatch.setattr("afor.bench.execution.verify.LocalEngine", Failing)
    (verdict,) = verify_runs(store, [cell], sources, tmp_path, workers=1, trust=True)
    assert (verdict.is_same, verdict.differs_in) == (False, ("no memory",))


def test_other_data_than_then_is_refused_before_anything_is_trained(
    store, tiny, tmp_path, monkeypatch
):
    cells = sample_runs(store, 2, seed=0)
    tiny.write(optimizers=("a",), subjects=4, repetitions=1)
    other = open_sources(load_study(str(tiny.file)))
    monkeypatch.setattr("afor.bench.execution.verify.LocalEngine", None)
    with pytest.raises(DataError, match=r"synthetic: the data here is not the data run"):
        next(verify_runs(store, cells, other, tmp_path, workers=1, trust=True))
    assert decode(next(iter(store.contents()))).spec["data"]["dataset"] == "synthetic"
