import json
import sys
from types import ModuleType

import pytest
from torch import nn

from afor.bench.common.errors import ConfigError, TrainingError
from afor.bench.execution import forecast as step_timing
from afor.bench.execution.forecast import StepTimer
from afor.bench.execution.sources import open_sources
from afor.bench.models.input_shape import InputShape
from afor.bench.study.plan import make_plan
from afor.bench.study.schema import parse_study


@pytest.fixture(scope="module")
def planned(small_study, tmp_path_factory):
    study = parse_study(small_study(optimizers=["adam", "sophia"]))
    sources = open_sources(study, tmp_path_factory.mktemp("cache"))
    plan = make_plan(study, sources)
    return plan, sources, InputShape.of(sources["synthetic"])


def specs(plan):
    return [next(r.spec for r in plan.runs if r.method == name) for name in ("adam", "sophia")]


def test_steps_are_timed_once_for_each_network_and_optimizer(planned, tmp_path):
    plan, _, shape = planned
    announced = []
    timer = StepTimer(tmp_path, announced.append)
    adam, sophia = specs(plan)
    times = timer.times(adam, shape)
    assert min(times.step_s, times.window_s) > 0
    timer.times(sophia, shape)
    assert announced == ["eegnet with adam", "eegnet with sophia"]
    assert StepTimer(tmp_path, announced.append).times(adam, shape) == times
    assert len(announced) == 2


def test_the_rate_is_no_reason_to_measure_again(planned, tmp_path):
    plan, _, shape = planned
    adam, _ = specs(plan)
    announced = []
    timer = StepTimer(tmp_path, announced.append)
    timer.times(adam, shape)
    timer.times({**adam, "optimizer": {**adam["optimizer"], "lr": 0.5}}, shape)
    assert len(announced) == 1


def test_a_bundled_run_is_timed_in_a_bundle(planned, tmp_path):
    plan, _, shape = planned
    adam, _ = specs(plan)
    timer = StepTimer(tmp_path)
    timer.times(adam, shape)
    share = timer.times(adam, shape, 3)
    assert min(share.step_s, share.window_s) > 0
    stored = step_timing._read(tmp_path / step_timing.FILE)
    assert sorted("together" in json.loads(key) for key in stored) == [False, True]


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"a": 1}', b'{"a": {"b": 1}}', b"\xff"])
def test_a_damaged_file_of_times_counts_as_empty(content, tmp_path):
    path = tmp_path / step_timing.FILE
    path.write_bytes(content)
    assert step_timing._read(path) == {}


def test_measuring_leaves_the_random_numbers_as_they_were(planned, tmp_path):
    import torch

    plan, _, shape = planned
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    StepTimer(tmp_path).times(specs(plan)[0], shape)
    assert torch.equal(torch.rand(3), expected)
    assert json.loads((tmp_path / step_timing.FILE).read_text())


def test_a_network_that_raises_ends_the_forecast_with_its_error(planned, tmp_path):
    plan, _, shape = planned
    spec = specs(plan)[0]
    with pytest.raises(ConfigError, match="dropuot"):
        StepTimer(tmp_path).times(
            {**spec, "backbone": {"name": "eegnet", "settings": {"dropuot": 0.5}}}, shape
        )


def test_a_network_that_fails_on_windows_of_this_shape_ends_it_in_a_sentence(
    planned, tmp_path, monkeypatch
):
    class Narrow(nn.Module):
        def __init__(self, shape):
            super().__init__()
            self.layer = nn.Conv1d(shape.channels, shape.classes, shape.samples + 1)

        def forward(self, signal):
            return self.layer(signal)[..., 0]

    module = ModuleType("narrow_networks")
    module.Narrow = Narrow
    monkeypatch.setitem(sys.modules, "narrow_networks", module)
    plan, _, shape = planned
    spec = {**specs(plan)[0], "backbone": {"name": "narrow_networks:Narrow", "settings": {}}}
    with pytest.raises(TrainingError, match=r"Narrow on random windows: RuntimeError: Calculated"):
        StepTimer(tmp_path).times(spec, shape)
