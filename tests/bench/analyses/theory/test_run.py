import numpy as np
import pytest
import torch
from torch import nn

from afor.bench.analyses.replay import find_run, replay
from afor.bench.analyses.theory.run import _curvature, _gradient, estimate_run, untouched
from afor.bench.common.errors import ConfigError
from afor.bench.study.schema import parse_study
from afor.bench.training.batches import Batch


@pytest.fixture(scope="module")
def study(small_study):
    optimizers = ["adamw", "afor", "afor_released"]
    return parse_study(small_study(optimizers=optimizers, training={"batch_size": 8}))


@pytest.fixture(scope="module")
def chosen(study, window_cache):
    return find_run(study, cache_dir=window_cache)


@pytest.fixture(scope="module")
def estimates(chosen):
    return estimate_run(chosen)


def test_looking_does_not_change_the_run(chosen, estimates):
    assert repr(estimates.record.numbers()) == repr(replay(chosen).numbers())


def test_the_traces_are_those_of_the_record(estimates):
    record = estimates.record
    assert estimates.beta2.shape == (record.steps, len(estimates.tensors))
    means = dict(zip(estimates.tensors, estimates.beta2.mean(axis=0), strict=True))
    assert means == pytest.approx(dict(record.beta2_by_tensor), abs=1e-9)


def test_the_settings_are_those_of_the_study(estimates):
    given = estimates.assumptions
    assert (given.eps, given.weight_decay, given.beta1) == (1e-8, 1e-4, 0.9)
    assert estimates.lr == 1e-3
    assert len(given.drift_sq) == estimates.record.steps
    assert [probe.epoch for probe in estimates.probes] == [1, 2]
    assert given.gradient_bound > 0
    assert given.noise_sq == max(probe.noise_sq for probe in estimates.probes) > 0
    assert given.smoothness == max(probe.smoothness for probe in estimates.probes) > 0


@pytest.mark.parametrize("optimizer", ["adamw", "afor_released"])
def test_only_afor_has_this_theory(optimizer, study, window_cache):
    other = find_run(study, optimizer=optimizer, cache_dir=window_cache)
    with pytest.raises(ConfigError, match="--optimizer afor"):
        estimate_run(other)


def linear_problem():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, 1, 6, generator=generator)
    labels = torch.randint(2, (64,), generator=generator)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 2, bias=False))
    nn.init.zeros_(model[1].weight)
    return model, Batch(inputs, labels, np.zeros(64, dtype=np.int64))


def test_the_curvature_of_a_linear_classifier_at_zero_is_found():
    model, batch = linear_problem()
    x = batch.inputs.flatten(1)
    # At even odds the Hessian is [[1, -1], [-1, 1]]/4 in the classes, X'X/n in the features.
    known = 0.5 * torch.linalg.eigvalsh(x.T @ x / len(x))[-1].item()
    torch.manual_seed(0)
    found = _curvature(model, [batch])
    assert found <= known * (1 + 1e-3)
    assert found == pytest.approx(known, rel=0.05)


def test_the_gradient_is_autograds():
    model, batch = linear_problem()
    loss = nn.functional.cross_entropy(model(batch.inputs), batch.labels)
    loss.backward()
    torch.testing.assert_close(_gradient(model, [batch, batch]), model[1].weight.grad.flatten())


def test_the_network_is_put_back():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout()).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.random.get_rng_state()
    with untouched(model):
        assert model.training
        model(torch.randn(5, 3))
        with torch.no_grad():
            model[0].weight.fill_(9.0)
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), generator)
