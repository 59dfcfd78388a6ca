import pytest
import torch

from afor.bench.analyses.cost.latency import (
    Entrant,
    growth,
    measure_latency,
    one_thread_count,
    step_of,
)
from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.build import build_optimizer


def model_with_gradients():
    model = torch.nn.Linear(4, 3)
    model(torch.ones(2, 4)).sum().backward()
    return model


def test_adam_beside_itself_is_one_and_the_model_is_left_alone():
    model = model_with_gradients()
    before = model.weight.detach().clone()
    names = [Entrant("adam", "adam", {}), Entrant("afor", "afor", {})]
    found = measure_latency(names, model, None, weight_decay=0.0, rounds=2)
    assert (found["adam"].ratio, found["adam"].extra_us) == (1.0, 0.0)
    assert found["afor"].ratio_low <= found["afor"].ratio <= found["afor"].ratio_high
    assert torch.equal(model.weight, before)


def test_without_adam_there_is_nothing_to_compare_with():
    entrants, model = [Entrant("afor", "afor", {})], model_with_gradients()
    with pytest.raises(ConfigError, match="--optimizer adam"):
        measure_latency(entrants, model, None, weight_decay=0.0, rounds=1)


def test_sophias_second_pass_belongs_to_its_step():
    model = model_with_gradients()
    optimizer = build_optimizer("sophia", model, 1e-3, 0.0)
    step, period = step_of(optimizer, model, torch.ones(2, 4))
    for _ in range(period):
        step()
    assert period == 10
    assert optimizer.state[model.weight]["hessian"].any()
    assert step_of(optimizer, model, None)[1] == 1


def test_growth_keeps_to_the_size_that_was_asked_for():
    for size in (1_000, 30_000, 1_000_000):
        (found,) = growth([Entrant("adam", "adam", {})], [size], rounds=1)
        assert found == pytest.approx(size, rel=0.05)


def test_the_number_of_threads_is_put_back():
    before = torch.get_num_threads()
    with one_thread_count(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
