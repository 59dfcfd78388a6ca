from collections import OrderedDict

import pytest
import torch
from torch import nn

from afor.bench.optimizers import build_optimizer
from afor.bench.traces import Traces, layer_group


@pytest.fixture
def network() -> nn.Module:
    layers = {
        "mix": nn.Conv1d(3, 6, 5, bias=False),
        "norm": nn.BatchNorm1d(6),
        "pool": nn.Flatten(),
        "head": nn.Linear(168, 2),
    }
    return nn.Sequential(OrderedDict(layers))


def run(name: str, model: nn.Module, epochs: int = 2) -> Traces:
    optimizer = build_optimizer(name, model, lr=1e-2, weight_decay=0.0)
    traces = Traces(optimizer, model)
    for _ in range(epochs):
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(4, 3, 32)).square().mean().backward()
            optimizer.step()
            traces.after_step()
        traces.end_epoch()
    return traces


def test_other_optimizers_leave_no_trace(network) -> None:
    assert run("adamw", network).result == {}


def test_each_layer_group_has_one_value_per_epoch(network) -> None:
    result = run("afor", network).result
    assert list(result) == ["mix", "norm", "head"]
    for trace in result.values():
        assert set(trace) == {"beta2", "beta2_sd", "score", "awake"}
        assert all(len(values) == 2 for values in trace.values())
        assert all(0.99 <= value <= 0.999 for value in trace["beta2"])
        assert all(0 <= value <= 1 for value in trace["awake"])
        assert all(value > 0 for value in trace["score"])


def test_a_fixed_coefficient_shows_as_one(network) -> None:
    for trace in run("afor_fixed_0999", network).result.values():
        assert trace["beta2"] == pytest.approx([0.999, 0.999], abs=1e-7)
        assert trace["beta2_sd"] == pytest.approx([0, 0], abs=1e-6)


def test_tensors_that_never_get_a_gradient_are_left_out(network) -> None:
    network.mix.weight.requires_grad_(False)
    assert list(run("afor", network).result) == ["norm", "head"]


def test_a_group_is_the_top_level_module() -> None:
    assert layer_group("regions.3.attention.weight") == "regions"
