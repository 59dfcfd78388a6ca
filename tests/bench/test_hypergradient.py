import math

import pytest
import torch
from torch import nn

from afor.bench.analyses.replay import find_run
from afor.bench.common.errors import ConfigError
from afor.bench.study.schema import parse_study

GROUP = {"lr": 0.01, "beta1": 0.9, "eps": 1e-8, "weight_decay": 0.1}


@pytest.fixture(scope="module")
def hypergradient(load_script):
    return load_script("studies/beta2/hypergradient.py")


@pytest.fixture
def problem():
    torch.manual_seed(0)
    # No bias before the batch norm: its gradient would be rounding, which Adam scales up.
    layers = (nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
    net = nn.Sequential(*layers).double()
    data = [(torch.randn(8, 3).double(), torch.randint(0, 2, (8,))) for _ in range(12)]
    return net, data


def take_steps(net, optimizer, data) -> None:
    net.train()
    for inputs, labels in data:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()


def unrolled(hypergradient, net, optimizer, data, validation, beta2):
    named = dict(net.named_parameters())
    states = {name: optimizer.state[param] for name, param in named.items()}
    moments = hypergradient.Moments(
        {name: state["exp_avg"].clone() for name, state in states.items()},
        {name: state["exp_avg_sq"].clone() for name, state in states.items()},
        int(next(iter(states.values()))["step"]),
    )
    weights = {name: param.detach().clone().requires_grad_() for name, param in named.items()}
    return hypergradient.unrolled_loss(net, weights, moments, data, validation, beta2, GROUP)


def test_the_unrolled_steps_are_those_of_adamw_and_the_network_is_left_alone(
    problem, hypergradient
) -> None:
    net, data = problem
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)
    take_steps(net, optimizer, data[:5])
    before = {name: value.clone() for name, value in net.state_dict().items()}
    loss = unrolled(
        hypergradient, net, optimizer, data[5:11], data[11], torch.tensor(0.99, dtype=torch.float64)
    )
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    take_steps(net, optimizer, data[5:11])
    net.eval()
    expected = nn.functional.cross_entropy(net(data[11][0]), data[11][1])
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)


def test_the_derivative_is_that_of_finite_differences(problem, hypergradient) -> None:
    _, data = problem
    # Running statistics of a batch norm count as constants, so there is none here.
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, betas=(0.9, 0.9), weight_decay=0.1)
    take_steps(net, optimizer, data[:5])

    def loss_at(logarithm):
        return unrolled(hypergradient, net, optimizer, data[5:11], data[11], 1 - logarithm.exp())

    start = torch.tensor(math.log(0.1), dtype=torch.float64, requires_grad=True)
    (derivative,) = torch.autograd.grad(loss_at(start), [start])
    change = 1e-5
    above, below = (loss_at(start.detach() + sign * change).item() for sign in (1, -1))
    assert derivative.item() == pytest.approx((above - below) / (2 * change), rel=1e-4)
    assert derivative.item() != 0


def test_a_run_is_measured_at_its_starts_and_other_optimizers_are_refused(
    small_study, window_cache, hypergradient
) -> None:
    text = small_study(backbones=["eegnet_authors"], options={"channels": ["C3", "Cz", "C4"]})
    study = parse_study(text)
    run = find_run(study, optimizer="adamw", cache_dir=window_cache)
    found = hypergradient.measure_hypergradient(run, [1, 2], horizon=2)
    assert found.starts == (1, 2)
    assert all(math.isfinite(value) for value in found.derivatives)
    shown = hypergradient.text(found)
    assert shown.count("from step") == 2
    assert "95 %" not in shown
    assert "at these 2 steps of one run" in shown
    with pytest.raises(ConfigError, match="fewer than 999"):
        hypergradient.measure_hypergradient(run, [999], horizon=2)
    with pytest.raises(ConfigError, match="needs a run of AdamW"):
        hypergradient.measure_hypergradient(find_run(study, cache_dir=window_cache), [1], horizon=2)
