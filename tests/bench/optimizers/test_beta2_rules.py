"""Rules for beta2 beside AFOR's, each against its equations written out number by number."""

import math

import pytest
import torch
from torch import nn

from afor.bench.optimizers.beta2_rules import Kourkoutas, ScheduledAdamW
from afor.bench.optimizers.build import build_optimizer
from afor.bench.optimizers.registry import OPTIMIZERS

LR, DECAY, EPS, BETA1 = 0.01, 0.1, 1e-8, 0.9


def gradients(steps=12):
    generator = torch.Generator().manual_seed(0)
    sizes = [1.0] * steps
    sizes[6] = 30.0  # a burst
    return [s * torch.randn(3, 2, dtype=torch.float64, generator=generator) for s in sizes]


def stepped(optimizer_of, grads):
    param = nn.Parameter(torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(3, 2))
    optimizer = optimizer_of([param])
    for grad in grads:
        param.grad = grad.clone()
        optimizer.step()
    return param.detach().flatten().tolist(), optimizer


def adam_by_hand(grads, beta2_at, correct_first, correct_second):
    """Take the steps with plain numbers; `beta2_at` gives beta2 of a step and its gradient."""
    values = torch.linspace(-1, 1, 6, dtype=torch.float64).tolist()
    m, v = [0.0] * 6, [0.0] * 6
    product, used = 1.0, []
    for t, grad in enumerate(grads, 1):
        g = grad.flatten().tolist()
        beta2 = beta2_at(t, math.sqrt(sum(x * x for x in g)))
        product *= beta2
        used.append(beta2)
        for i in range(6):
            m[i] = BETA1 * m[i] + (1 - BETA1) * g[i]
            v[i] = beta2 * v[i] + (1 - beta2) * g[i] ** 2
            first = m[i] / correct_first(t)
            second = v[i] / correct_second(t, product)
            values[i] = values[i] * (1 - LR * DECAY) - LR * first / (math.sqrt(second) + EPS)
    return values, used


@pytest.mark.parametrize("warmup", [0, 4])
@pytest.mark.parametrize("correction", ["beta2max", "exact", "none"])
def test_kourkoutas_follows_its_equations(warmup, correction):
    high, low, alpha, tiny = 0.999, 0.88, 0.93, 1e-8
    mean = 0.0

    def beta2_at(t, norm):
        nonlocal mean
        mean = alpha * mean + (1 - alpha) * norm
        if t <= warmup:
            return 0.5 * (low + high)
        ratio = norm / (mean + tiny)
        return high - (high - low) * ratio / (1 + ratio)

    first = {"none": lambda _t: 1.0}.get(correction, lambda t: 1 - BETA1**t)
    second = {
        "none": lambda _t, _product: 1.0,
        "exact": lambda _t, product: 1 - product,
        "beta2max": lambda t, _product: 1 - high**t,
    }[correction]
    expected, used = adam_by_hand(gradients(), beta2_at, first, second)
    found, _ = stepped(
        lambda params: Kourkoutas(
            params, lr=LR, weight_decay=DECAY, warmup_steps=warmup, correction=correction
        ),
        gradients(),
    )
    assert found == pytest.approx(expected, rel=1e-12)
    assert used[6] < min(used[5], used[7])  # a burst shortens the memory


def test_kourkoutas_with_one_beta2_is_adamw():
    def adamw(params):
        return torch.optim.AdamW(params, lr=LR, weight_decay=DECAY)

    def kourkoutas(params):
        return Kourkoutas(params, lr=LR, weight_decay=DECAY, beta2_min=0.999)

    assert stepped(kourkoutas, gradients())[0] == pytest.approx(
        stepped(adamw, gradients())[0], rel=1e-9
    )


@pytest.mark.parametrize("exponent", [0.1, 1.0])
def test_nosadam_follows_its_equations(exponent):
    def total(t):
        return sum(k**-exponent for k in range(1, t + 1))

    expected, used = adam_by_hand(
        gradients(),
        lambda t, _norm: total(t - 1) / total(t),
        lambda _t: 1.0,
        lambda _t, _product: 1.0,
    )
    found, optimizer = stepped(
        lambda params: ScheduledAdamW(
            params, lr=LR, weight_decay=DECAY, schedule="nosadam", exponent=exponent
        ),
        gradients(),
    )
    assert found == pytest.approx(expected, rel=1e-12)
    assert used[0] == 0
    assert used == sorted(used)
    # v is the weighted mean of all squared gradients, the first of which weigh most
    (state,) = optimizer.state.values()
    weighted = sum(k**-exponent * g**2 for k, g in enumerate(gradients(), 1)) / total(12)
    torch.testing.assert_close(state["exp_avg_sq"], weighted)


def test_the_power_schedule_follows_its_equation():
    expected, _ = adam_by_hand(
        gradients(),
        lambda t, _norm: 1 - t**-0.8,
        lambda t: 1 - BETA1**t,
        lambda _t, _product: 1.0,
    )
    found, _ = stepped(
        lambda params: ScheduledAdamW(params, lr=LR, weight_decay=DECAY), gradients()
    )
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["kourkoutas", "nosadam", "adamw_power", "muon"])
def test_a_study_can_name_them(name):
    net = nn.Linear(3, 2)
    optimizer = build_optimizer(name, net, lr=0.01, weight_decay=0.01)
    before = net.weight.detach().clone()
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert not torch.equal(before, net.weight)
    assert OPTIMIZERS[name].section in ("rule", "rival")


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (Kourkoutas, {"beta2_min": 1.0}),
        (Kourkoutas, {"alpha": 1.0}),
        (Kourkoutas, {"warmup_steps": -1}),
        (Kourkoutas, {"correction": "some"}),
        (ScheduledAdamW, {"schedule": "some"}),
        (ScheduledAdamW, {"exponent": math.nan}),
    ],
)
def test_settings_outside_their_range_are_refused(cls, settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        cls([nn.Parameter(torch.ones(2))], **settings)
