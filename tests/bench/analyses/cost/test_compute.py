import pytest
import torch

from afor.bench.analyses.cost.compute import (
    AFOR_LOOP,
    RECORD_ONLY,
    Entrant,
    entrants_of,
    measure_cost,
    measure_latency,
    shape_of,
    state_bytes,
    step_of,
)
from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.build import build_optimizer
from afor.bench.stats.paper_numbers import published
from afor.control import FIELDS
from afor.native.binding import unavailable_reason


@pytest.fixture(scope="module")
def measured():
    return measure_cost(batch=4, rounds=1)


def test_the_state_of_the_papers_network_has_the_papers_size(measured):
    ours, paper = measured.measures["state_kb"], published()["cost"]["cells"]["state_kb"]
    for name in ("adam", "adamw", "adamp", "sophia", "mars", "afor"):
        assert ours[name] == pytest.approx(paper[name], abs=0.005)
    assert ours["radam"] == ours["adam"]  # torch keeps its step in a tensor; the paper left it out


def test_without_what_is_for_looking_afor_keeps_less(measured):
    assert set(RECORD_ONLY) < set(FIELDS)
    needed = measured.measures["needed_state_kb"]
    assert needed["afor"] == pytest.approx((2 * 4 * 1746 + 12 * (4 + 6 * 4)) / 1024)
    assert needed["adam"] == measured.measures["state_kb"]["adam"]


def test_operations_are_those_counted_by_hand(measured):
    kflops = measured.measures["kflops"]
    assert (measured.parameters, measured.tensors) == (1746, 12)
    assert kflops["adam"] == pytest.approx((15 * 1746 + 12) / 1e3)
    assert kflops["afor"] == pytest.approx((26 * 1746 + 46 * 12) / 1e3)
    assert kflops["sophia"] == pytest.approx((13 * 1746 + 4 * 1746 / 10) / 1e3)
    extra = measured.measures["extra_kflops"]
    assert extra["afor"] == pytest.approx((11 * 1746 + 45 * 12) / 1e3)
    assert "adam" not in extra


def test_sophias_pass_is_a_tenth_of_a_training_step(measured):
    passes = measured.measures["pass_mflops"]
    assert list(passes) == ["sophia"]
    assert passes["sophia"] == pytest.approx(measured.network_flops / 10 / 1e6, rel=1e-6)


def test_without_weight_decay_adamw_is_adam():
    found = measure_cost(optimizers=["adamw"], batch=4, rounds=1, weight_decay=0.0)
    assert found.measures["extra_kflops"]["adamw"] == 0.0


def test_an_optimizer_from_elsewhere_is_counted_by_watching():
    found = measure_cost(optimizers=["torch.optim:SGD"], batch=4, rounds=1, weight_decay=0.0)
    assert found.measures["kflops"]["torch.optim:SGD"] == 2 * 1.746  # θ ← θ − ηg
    assert found.measures["state_kb"]["torch.optim:SGD"] == 0


@pytest.mark.skipif(unavailable_reason() is not None, reason="the native kernel was not built")
def test_both_implementations_stand_beside_each_other(measured):
    names = list(measured.measures["kflops"])
    assert names[:2] == ["adam", "adam fused"]
    assert names[-1] == AFOR_LOOP
    assert [e.name for e in entrants_of(["adamw"])] == ["adam", "adamw"]


def test_python_counters_are_no_state():
    model = torch.nn.Linear(3, 2, bias=False)
    model.weight.grad = torch.ones_like(model.weight)
    optimizer = build_optimizer("adamp", model, 1e-3, 0.0)
    optimizer.step()
    assert state_bytes(optimizer) == (2 * 6 * 4, 2 * 6 * 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dataset": "seed"}, "Accepted: deap, bci2a, isruc, physionet_mi"),
        ({"backbone": "eegnot"}, "Did you mean 'eegnet'"),
        ({"optimizers": ["adma"]}, 'Did you mean "adam"'),
        ({"batch": 1}, "batch must be at least 2"),
        ({"rounds": 0}, "rounds at least 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        measure_cost(**options)


def test_shapes_are_those_of_the_data_sets():
    assert (shape_of("deap").channels, shape_of("isruc").samples) == (32, 600)


def model_with_gradients():
    model = torch.nn.Linear(4, 3)
    model(torch.ones(2, 4)).sum().backward()
    return model


def test_adam_beside_itself_is_one_and_the_model_is_left_alone():
    model = model_with_gradients()
    before = model.weight.detach().clone()
    names = [Entrant("adam", "adam", {}), Entrant("afor", "afor", {})]
    found = measure_latency(names, model, None, weight_decay=0.0, rounds=2)
    assert (found["adam"]["latency_ratio"], found["adam"]["extra_ms"]) == (1.0, 0.0)
    low, high = found["afor"]["latency_ratio_low"], found["afor"]["latency_ratio_high"]
    assert low <= found["afor"]["latency_ratio"] <= high
    assert torch.equal(model.weight, before)


def test_sophias_second_pass_belongs_to_its_step():
    model = model_with_gradients()
    optimizer = build_optimizer("sophia", model, 1e-3, 0.0)
    step, period = step_of(optimizer, model, torch.ones(2, 4))
    for _ in range(period):
        step()
    assert period == 10
    assert optimizer.state[model.weight]["hessian"].any()
    assert step_of(optimizer, model, None)[1] == 1
