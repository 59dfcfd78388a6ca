import pytest

from afor.bench.execution.sources import open_sources
from afor.bench.training.execute import execute, failed_run, run_settings
from afor.bench.training.record import decode, encode


@pytest.fixture
def job(tiny):
    from afor.bench.study.plan import make_plan
    from afor.bench.study.schema import load_study

    study = load_study(str(tiny.file))
    plan = make_plan(study, open_sources(study))
    return plan.runs[0], plan.sources["synthetic"]


def test_a_run_comes_back_as_it_was_written(job):
    planned, source = job
    content = execute(planned.key, planned.spec, source)
    run = decode(content)
    assert (run.key, run.status, run.reason) == (planned.key, "done", "")
    assert encode(run) == content
    assert run.spec == planned.spec
    assert run.environment["numpy"]


def test_a_run_that_raises_is_a_record_with_the_traceback(job):
    planned, source = job
    spec = {**planned.spec, "optimizer": {**planned.spec["optimizer"], "name": "raiser"}}
    run = decode(execute(planned.key, spec, source))
    assert run.status == "failed"
    assert run.reason == "RuntimeError: this optimizer never works"
    assert "tiny_trainer.py" in run.traceback
    assert run.record is None


def test_a_trainer_that_is_no_function_fails_the_run_with_what_is_accepted(job):
    planned, source = job
    run = decode(
        execute(planned.key, {**planned.spec, "trainer": {"source": "json:absent"}}, source)
    )
    assert "module:function" in run.reason


def test_what_is_no_run_is_refused(job):
    content = failed_run("k", {}, "why")
    for bad in (b"", b"[]", b"{}", content.replace(b'"format":1', b'"format":2'), content[:-2]):
        with pytest.raises(ValueError):
            decode(bad)


def test_settings_of_the_training_come_from_the_spec(job):
    planned, _ = job
    settings = run_settings(planned.spec)
    assert settings.split.test == tuple(planned.spec["split"]["test"])
    assert (settings.max_epochs, settings.patience, settings.threads) == (200, 30, 1)
