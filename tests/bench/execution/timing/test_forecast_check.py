import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from afor.bench.cli.app import app
from afor.bench.common.errors import ConfigError
from afor.bench.execution.runner import run_study
from afor.bench.execution.sources import open_sources
from afor.bench.execution.timing.forecast_check import check_forecast, describe_check
from afor.bench.execution.timing.step_timing import StepTimes
from afor.bench.store.database import open_store
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import parse_study


class FixedTimer:
    """A timer in which a step takes a second, and an evaluation nothing."""

    def times(self, spec, shape, together):  # noqa: ARG002
        return StepTimes(gradient_s=0.75, optimizer_s=0.25, window_s=0.0)


class FakeStore:
    """Finished runs with the number of epochs and the seconds that a test gives them."""

    path = Path("fake.db")

    def __init__(self, runs, *, epochs, elapsed_s, processor_s):
        record = SimpleNamespace(history=[None] * epochs, processor_s=processor_s)
        finished = SimpleNamespace(record=record, elapsed_s=elapsed_s)
        self._planned, self._finished = {run.key: run for run in runs}, finished

    def statuses(self):
        return dict.fromkeys(self._planned, "done")

    def runs(self):
        names = ("key", "dataset", "backbone", "optimizer")
        rows = [{n: getattr(run, n) for n in names} for run in self._planned.values()]
        return [SimpleNamespace(**row, status="done") for row in rows]

    def run(self, key):
        return self._finished if key in self._planned else None


@pytest.fixture
def planned(small_study, cache_dir):
    """Return the runs of two optimizers and two folds, their windows, and the steps of an epoch."""
    text = small_study(
        training={"max_epochs": 16, "patience": 3},
        protocol={"only_folds": [0, 1]},
        optimizers=["adam", "afor"],
    )
    study = parse_study(text)
    sources = open_sources(study, cache_dir)
    runs = make_plan(study, sources).runs
    trained = sources["synthetic"].count_windows(runs[0].spec["split"]["train"])
    return runs, sources, -(-trained // 32)


def test_forecast_and_measured_time_are_compared_by_condition_and_in_all(planned):
    runs, sources, steps = planned
    store = FakeStore(runs[:3], epochs=5, elapsed_s=90.0, processor_s=4.0 * steps)
    check = check_forecast(runs, sources, FixedTimer(), store)
    assert check.processor_time
    adam, afor = (check.by_condition["synthetic", "eegnet", name] for name in ("adam", "afor"))
    assert (adam.runs, afor.runs) == (2, 1)
    assert adam.forecast_s == pytest.approx(2 * 5 * steps)  # two runs of five epochs
    assert adam.before_s == pytest.approx(2 * 8 * steps)  # between four epochs and sixteen
    assert adam.measured_s == pytest.approx(2 * 4 * steps)
    assert check.total.runs == 3
    assert check.total.ratio == pytest.approx(5 / 4)
    assert check.total.ratio_before == pytest.approx(8 / 4)
    *_, total, before = describe_check(check)
    assert total.startswith("forecast against 3 finished runs, processor time: ")
    assert total.endswith("ratio 1.25")
    assert before.endswith("ratio 2.00")


def test_without_processor_times_the_clock_is_compared(planned):
    runs, sources, steps = planned
    store = FakeStore(runs, epochs=5, elapsed_s=10.0 * steps, processor_s=None)
    check = check_forecast(runs, sources, FixedTimer(), store)
    assert not check.processor_time
    assert check.total.ratio == pytest.approx(0.5)
    assert "time on the clock" in describe_check(check)[-2]


def test_a_store_without_a_finished_run_of_the_study_is_refused(planned):
    runs, sources, _ = planned
    store = FakeStore([], epochs=5, elapsed_s=1.0, processor_s=1.0)
    with pytest.raises(ConfigError, match=r"fake\.db has no finished run of this study"):
        check_forecast(runs, sources, FixedTimer(), store)


def test_a_run_has_its_processor_time_and_the_command_checks_it(
    small_study, cache_dir, tmp_path, inline_engine, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    text = small_study(optimizers=["adam"], protocol={"only_folds": [0]})
    store = tmp_path / "results" / "tiny.db"
    store.parent.mkdir()
    (tmp_path / "tiny.toml").write_text(text)
    run_study(parse_study(text), text, store, inline_engine, cache_dir=cache_dir)
    with open_store(store) as opened:
        (key,) = opened.statuses()
        record = opened.run(key).record
    assert 0.0 < record.processor_s < record.elapsed_s + 60.0
    assert replace(record, processor_s=None).numbers() == record.numbers()  # no part of the result
    monkeypatch.setattr("afor.bench.cli.studies.study.StepTimer", lambda *_: FixedTimer())
    words = ["plan", "tiny.toml", "--check", str(store), "--cache-dir", str(cache_dir)]
    printed = CliRunner().invoke(app, words)
    assert printed.exit_code == 0, printed.output
    assert "forecast against 1 finished runs, processor time: " in printed.output
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["check"]
    assert found["total"]["runs"] == 1
    assert found["total"]["measured_s"] == pytest.approx(record.processor_s)
    assert found["processor_time"]
