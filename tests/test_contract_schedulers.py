"""The manners of torch.optim: every learning-rate scheduler."""

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from afor import AFOR

DATA = torch.linspace(-1, 1, 24).reshape(6, 4)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))


def backward(model: nn.Module) -> Tensor:
    loss = (model(DATA) - DATA.sum(1, keepdim=True)).square().mean()
    loss.backward()
    return loss


def run(model: nn.Module, optimizer: AFOR, steps: int = 5) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


SCHEDULERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda t: 0.9**t),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda _: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4]),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=3),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, total_iters=3),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 10),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 1e-4, 1e-2, step_size_up=3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 1e-2, total_steps=20),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [3]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 1e-4),
}


# SequentialLR of older versions of torch warns about a call of its own.
@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step:UserWarning")
@pytest.mark.parametrize("name", list(SCHEDULERS))
def test_every_scheduler_drives_it_as_it_drives_adamw(implementation, name):
    model, twin = network(), network()
    ours = AFOR(model.parameters(), lr=1e-2, beta2_min=0.999, **implementation)
    theirs = torch.optim.AdamW(twin.parameters(), lr=1e-2, weight_decay=0.0)
    schedulers = [SCHEDULERS[name](o) for o in (ours, theirs)]
    for t in range(8):
        for net, optimizer, scheduler in zip(
            (model, twin), (ours, theirs), schedulers, strict=True
        ):
            run(net, optimizer, 1)
            scheduler.step(*([1.0 + t] if name == "ReduceLROnPlateau" else []))
        assert ours.param_groups[0]["lr"] == theirs.param_groups[0]["lr"]
        assert ours.param_groups[0]["betas"] == theirs.param_groups[0]["betas"]
        torch.testing.assert_close(weights(model), weights(twin), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["OneCycleLR", "CyclicLR"])
def test_cycled_momentum_reaches_the_update(implementation, name):
    model = network()
    optimizer = AFOR(model.parameters(), lr=1e-2, **implementation)
    scheduler = SCHEDULERS[name](optimizer)
    seen = set()
    for _ in range(6):
        run(model, optimizer, 1)
        seen.add(optimizer.param_groups[0]["betas"][0])
        scheduler.step()
    assert len(seen) >= 4
    assert weights(model).isfinite().all()


def test_a_scheduler_changes_a_tensor_lr_in_place(implementation):
    model = network()
    optimizer = AFOR(model.parameters(), lr=torch.tensor(0.01), **implementation)
    lr = optimizer.param_groups[0]["lr"]
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(3):
        run(model, optimizer, 1)
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] is lr
    assert lr.item() == pytest.approx(0.01 / 8)


def test_no_scheduler_warns_about_the_order_of_steps(implementation):
    model = network()
    optimizer = AFOR(model.parameters(), **implementation)
    scheduler = lr_scheduler.StepLR(optimizer, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(model, optimizer, 1)
        scheduler.step()
