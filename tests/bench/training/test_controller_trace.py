import statistics
from collections import OrderedDict

import pytest
import torch
from torch import nn

from afor.bench.optimizers.build import build_optimizer
from afor.bench.training.controller_trace import Traces, layer_group
from afor.control import FIELDS
from afor.monitor import ACTIVE


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
    traces = run("adamw", network)
    assert traces.result == {}
    assert traces.beta2_by_tensor == {}


def test_each_layer_group_has_one_value_per_epoch(network) -> None:
    result = run("afor", network).result
    assert list(result) == ["mix", "norm", "head"]
    for trace in result.values():
        assert set(trace) == {"beta2", "beta2_sd", "score", "awake"}
        assert all(len(values) == 2 for values in trace.values())
        assert all(0.99 <= value <= 0.999 for value in trace["beta2"])
        assert all(0 <= value <= 1 for value in trace["awake"])
        assert all(value > 0 for value in trace["score"])


def test_averages_equal_those_of_a_plain_list(network, monkeypatch) -> None:
    """A buffer smaller than an epoch, so that sums over several buffers are tested too."""
    monkeypatch.setattr("afor.bench.training.controller_trace.BUFFERED_STEPS", 3)
    optimizer = build_optimizer("afor", network, lr=1e-2, weight_decay=0.0)
    traces = Traces(optimizer, network)
    names = [name for name, _ in network.named_parameters()]
    steps: list[list[dict[str, float]]] = []  # per epoch, step: the controls of every tensor
    for _ in range(2):
        for _ in range(7):
            optimizer.zero_grad()
            network(torch.randn(4, 3, 32)).square().mean().backward()
            optimizer.step()
            traces.after_step()
            steps.append(
                [
                    dict(zip(FIELDS, optimizer.state[p]["control"].tolist(), strict=True))
                    for p in network.parameters()
                ]
            )
        traces.end_epoch()
    for group, trace in traces.result.items():
        of_group = [i for i, name in enumerate(names) if layer_group(name) == group]
        for epoch in range(2):
            seen = [row[i] for row in steps[7 * epoch : 7 * epoch + 7] for i in of_group]
            beta2 = [1 - control["forgetting"] for control in seen]
            assert trace["beta2"][epoch] == pytest.approx(statistics.fmean(beta2), abs=1e-14)
            assert trace["beta2_sd"][epoch] == pytest.approx(statistics.pstdev(beta2), abs=1e-7)
            score = statistics.fmean(control["score"] for control in seen)
            assert trace["score"][epoch] == pytest.approx(score, rel=1e-12)
            active = statistics.fmean(abs(control["zscore"]) > ACTIVE for control in seen)
            assert trace["awake"][epoch] == pytest.approx(active)
    for i, name in enumerate(names):
        mean = statistics.fmean(1 - row[i]["forgetting"] for row in steps)
        assert traces.beta2_by_tensor[name] == pytest.approx(mean, abs=1e-14)


def test_a_fixed_coefficient_shows_as_one(network) -> None:
    for trace in run("afor_fixed_0999", network).result.values():
        assert trace["beta2"] == pytest.approx([0.999, 0.999], abs=1e-7)
        assert trace["beta2_sd"] == pytest.approx([0, 0], abs=1e-6)


def test_tensors_that_never_get_a_gradient_are_left_out(network) -> None:
    network.mix.weight.requires_grad_(False)
    assert list(run("afor", network).result) == ["norm", "head"]


def test_a_group_is_the_top_level_module() -> None:
    assert layer_group("regions.3.attention.weight") == "regions"


def test_steps_that_the_scaler_leaves_out_are_no_part_of_the_trace(network) -> None:
    optimizer = build_optimizer("afor", network, lr=1e-2, weight_decay=0.0)
    traces = Traces(optimizer, network)
    traces.after_step()  # left out: no tensor has a state yet
    assert not optimizer.state
    network(torch.randn(4, 3, 32)).square().mean().backward()
    optimizer.step()
    traces.after_step()
    traces.end_epoch()
    assert traces.beta2_by_tensor["head.bias"] == pytest.approx(0.999, abs=1e-4)
