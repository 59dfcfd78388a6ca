"""The manners of torch.optim: autograd through a step."""

import pytest
import torch
from torch import Tensor

from afor import AFOR

START = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)


def after(grads: list[Tensor], lr: float | Tensor = 0.1, **options) -> Tensor:
    """Return the parameter after one step per gradient, as a function of the gradients."""
    theta = START.clone().requires_grad_()
    p = theta.clone()  # a non-leaf, as a meta-learner has
    leaf = torch.nn.Parameter(START.clone())
    optimizer = AFOR([leaf], lr=lr, differentiable=True, **options)
    optimizer.param_groups[0]["params"] = [p]
    for grad in grads:
        p.grad = grad
        optimizer.step()
    return p


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.1},
        {"maximize": True},
        {"statistics": "calibrated", "warmup_steps": 1},
        {"normalization": "fixed", "correction": "fixed"},
        {"fast_channel": False, "direction_weight": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_the_gradient_through_steps_is_right(options, steps):
    # warmup 2 and small bounds: beta2 depends visibly on the gradient
    options = {"beta2_min": 0.5, "betas": (0.8, 0.95), "warmup_steps": 2, **options}
    generator = torch.Generator().manual_seed(3)
    grads = [
        torch.randn(3, generator=generator, dtype=torch.float64).requires_grad_()
        for _ in range(steps)
    ]
    assert torch.autograd.gradcheck(
        lambda *g: after(list(g), **options), grads, eps=1e-6, atol=1e-5, rtol=1e-4
    )


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_the_learning_rate_has_a_gradient():
    lr = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    grads = [torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) for _ in range(2)]
    assert torch.autograd.gradcheck(lambda x: after(grads, lr=x), [lr], atol=1e-5)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_the_differentiable_numbers_are_the_plain_ones():
    generator = torch.Generator().manual_seed(4)
    grads = [torch.randn(3, generator=generator, dtype=torch.float64) for _ in range(110)]
    p = torch.nn.Parameter(START.clone())
    optimizer = AFOR([p], lr=0.1, weight_decay=0.1)
    for grad in grads:
        p.grad = grad.clone()
        optimizer.step()
    torch.testing.assert_close(
        after(grads, weight_decay=0.1).detach(), p.detach(), rtol=1e-11, atol=1e-12
    )


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_zero_gradients_give_finite_gradients_through_the_step():
    zero = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    one = torch.ones(3, dtype=torch.float64, requires_grad=True)
    after([one, zero]).sum().backward()
    assert one.grad.isfinite().all()


def test_without_the_option_nothing_is_recorded(implementation):
    p = torch.nn.Parameter(START.clone())
    p.grad = torch.ones(3, dtype=torch.float64)
    optimizer = AFOR([p], **implementation)
    optimizer.step()
    assert all(not v.requires_grad for v in optimizer.state[p].values())
    assert p.is_leaf
