"""Schedules and the exemption from weight decay, against torch's own."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, OneCycleLR

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.build import build_optimizer
from afor.bench.training.loop import train
from afor.bench.training.schedules import WARMUP_SHARE, WARMUP_START, rate_factor

LR = 0.3


def rates_of_torch(make, steps):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=LR)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("steps", [10, 57, 400])
@pytest.mark.parametrize(
    ("schedule", "make"),
    [
        ("cosine", lambda o, n: CosineAnnealingLR(o, n)),
        ("one_cycle", lambda o, n: OneCycleLR(o, LR, total_steps=n, cycle_momentum=False)),
        ("warmup", lambda o, n: LinearLR(o, WARMUP_START, total_iters=round(WARMUP_SHARE * n))),
    ],
)
def test_rates_are_those_of_torch(schedule, make, steps):
    expected = rates_of_torch(lambda optimizer: make(optimizer, steps), steps)
    ours = [LR * rate_factor(schedule, step, steps) for step in range(steps)]
    assert ours == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_a_short_training_has_a_schedule_too():
    for steps in (1, 2, 3, 4):
        for schedule in ("cosine", "one_cycle", "warmup"):
            factors = [rate_factor(schedule, step, steps) for step in range(steps + 2)]
            assert all(0 <= factor <= 1 for factor in factors), (schedule, steps)


def rates_in_training(settings, source, tiny_net):
    rates = []
    record = train(
        settings,
        source,
        tiny_net,
        watch_step=lambda fit, *_: rates.append(fit.optimizer.param_groups[0]["lr"]),
    )
    return record, rates


@pytest.mark.parametrize("optimizer", ["adam", "afor", "afor_calibrated", "sophia"])
def test_a_training_follows_its_schedule_and_repeats_bit_for_bit(
    optimizer, settings, source, tiny_net
):
    scheduled = settings.changed(optimizer=optimizer, schedule="cosine")
    record, rates = rates_in_training(scheduled, source, tiny_net)
    again, _ = rates_in_training(scheduled, source, tiny_net)
    steps = len(rates)
    assert steps == record.steps
    assert rates == [settings.lr * rate_factor("cosine", step, steps) for step in range(steps)]
    assert record.numbers() == again.numbers()
    constant, _ = rates_in_training(settings.changed(optimizer=optimizer), source, tiny_net)
    assert constant.history != record.history


def test_a_schedule_of_a_stream_ends_with_its_last_subject(settings, source, tiny_net):
    stream = settings.changed(order="stream", passes=3, normalization="none", schedule="cosine")
    _, rates = rates_in_training(stream, source, tiny_net)
    assert rates[-1] == settings.lr * rate_factor("cosine", len(rates) - 1, len(rates))


def test_exempt_parameters_decay_by_nothing(tiny_net):
    def step(optimizer):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        optimizer.step()
        return {n: torch.equal(p, before[n]) for n, p in model.named_parameters()}

    model = tiny_net()
    for name in ("adamw", "afor"):
        unchanged = step(build_optimizer(name, model, 0.1, 0.5, decay_exempt=True))
        assert unchanged == {n: p.ndim <= 1 for n, p in model.named_parameters()}
        assert not all(step(build_optimizer(name, model, 0.1, 0.5)).values())


def test_exemption_is_that_of_torch_with_two_groups(tiny_net):
    ours, theirs = tiny_net(), tiny_net()
    theirs.load_state_dict(ours.state_dict())
    decayed = [p for p in theirs.parameters() if p.ndim > 1]
    exempt = [p for p in theirs.parameters() if p.ndim <= 1]
    optimizers = [
        build_optimizer("adamw", ours, 0.1, 0.5, decay_exempt=True),
        torch.optim.AdamW(
            [{"params": decayed}, {"params": exempt, "weight_decay": 0.0}],
            lr=0.1,
            weight_decay=0.5,
        ),
    ]
    signal = torch.randn(8, 3, 32)
    for _ in range(5):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            torch.manual_seed(0)
            model(signal).square().sum().backward()
            optimizer.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_training_exempts_what_its_settings_say(settings, source, tiny_net):
    def weights(**changes):
        kept = {}
        changed = settings.changed(optimizer="adamw", weight_decay=0.3, **changes)
        train(changed, source, tiny_net, watch=lambda _, model: kept.update(model.state_dict()))
        return kept["norm.bias"].clone()

    assert not torch.equal(weights(decay_exempt=True), weights())


def test_an_optimizer_without_weight_decay_has_none_to_be_exempt_from():
    with pytest.raises(ConfigError, match="takes no weight_decay"):
        build_optimizer("torch.optim:Rprop", nn.Linear(2, 2), 0.1, 0.5, decay_exempt=True)
