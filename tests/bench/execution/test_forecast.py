import math

import pytest

from afor.bench.data.loading import expected_windows
from afor.bench.execution.forecast import Span, StepTimes, forecast
from afor.bench.execution.sources import open_sources
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import parse_study

STEP_S, WINDOW_S = 0.5, 0.001


class FixedTimer:
    """A timer that knows its times."""

    def times(self, spec, shape, together):  # noqa: ARG002
        return StepTimes(STEP_S, WINDOW_S)


def make(text, cache_dir):
    study = parse_study(text)
    sources = open_sources(study, cache_dir)
    return make_plan(study, sources), sources


def test_the_time_of_a_run_is_steps_times_epochs_and_evaluations(small_study, cache_dir):
    text = small_study(training={"max_epochs": 12, "patience": 2}, optimizers=["adam"])
    plan, sources = make(text, cache_dir)
    needs = forecast(plan.runs, sources, FixedTimer())
    source = sources["synthetic"]
    subject = source.count_windows(source.subjects[:1])
    split = plan.runs[0].spec["split"]
    steps = math.ceil(subject * len(split["train"]) / 32)
    epoch_s = steps * STEP_S + subject * len(split["validation"]) * WINDOW_S
    runs, test_s = len(plan.runs), subject * WINDOW_S
    expected = [runs * (epochs * epoch_s + test_s) for epochs in (3, 6, 12)]
    assert [needs.total.low, needs.total.middle, needs.total.high] == pytest.approx(expected)
    assert needs.by_condition == {("synthetic", "eegnet", "adam"): needs.total}
    assert needs.prepared_bytes == sum(4 * math.prod(p.shape) for p in source.prepared)


def test_a_study_without_its_data_has_a_forecast_too(small_study, cache_dir):
    plan, _ = make(small_study(), cache_dir)
    windows = expected_windows("deap", {}, subjects=["s01", "s02", "s03"])
    study = plan.study.model_copy(
        update={"datasets": [plan.study.datasets[0].model_copy(update={"name": "deap"})]}
    )
    made = make_plan(study, {"deap": windows})
    needs = forecast(made.runs, {"deap": windows}, FixedTimer())
    assert needs.total.middle > 0
    assert needs.prepared_bytes == 3 * 40 * 32 * 60 * 128 * 4


def test_spans_add_up():
    assert Span(1, 2, 3) + Span(10, 20, 30) == Span(11, 22, 33)


def test_a_stream_passes_once_over_each_subject(small_study, cache_dir):
    stream = {"order": "stream", "normalization": "window", "passes": 3, "max_epochs": 200}
    plan, sources = make(small_study(training=stream), cache_dir)
    run, source = plan.runs[0], sources["synthetic"]
    needs = forecast([run], sources, FixedTimer())
    assert needs.total.low == needs.total.middle == needs.total.high
    train = run.spec["split"]["train"]
    steps = 3 * sum(math.ceil(source.count_windows([s]) / 32) for s in train)
    validation = source.count_windows(run.spec["split"]["validation"])
    scored = source.count_windows(train[1:]) + len(train) * validation
    scored += source.count_windows(run.spec["split"]["test"])
    assert needs.total.middle == pytest.approx(steps * STEP_S + scored * WINDOW_S)
