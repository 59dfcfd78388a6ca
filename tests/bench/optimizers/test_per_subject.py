import pytest
import torch
from torch import nn

from afor.bench.optimizers.per_subject import PerSubjectAdamW


def take_steps(optimizer, param, gradients) -> None:
    for subject, grad in gradients:
        if isinstance(optimizer, PerSubjectAdamW):
            optimizer.for_subject(subject)
        param.grad = grad.clone()
        optimizer.step()


def make(prior_steps: int):
    param = nn.Parameter(torch.ones(4, dtype=torch.float64))
    return param, PerSubjectAdamW([param], lr=0.01, weight_decay=0.1, prior_steps=prior_steps)


def test_with_one_subject_it_is_adamw() -> None:
    torch.manual_seed(1)
    gradients = [(3, torch.randn(4, dtype=torch.float64)) for _ in range(20)]
    param, optimizer = make(prior_steps=10)
    take_steps(optimizer, param, gradients)
    plain = nn.Parameter(torch.ones(4, dtype=torch.float64))
    take_steps(torch.optim.AdamW([plain], lr=0.01, weight_decay=0.1), plain, gradients)
    torch.testing.assert_close(param, plain)


def test_subjects_have_their_own_second_moment_and_find_it_again() -> None:
    quiet, loud = torch.full((4,), 0.1).double(), torch.full((4,), 10.0).double()
    param, optimizer = make(prior_steps=0)
    take_steps(optimizer, param, [(0, quiet)] * 5 + [(1, loud)] * 5 + [(0, quiet)])
    state = optimizer.state[param]
    estimates = {s: state["second"][s] / (1 - 0.999 ** state["steps"][s]) for s in (0, 1)}
    torch.testing.assert_close(estimates[0], quiet**2)
    torch.testing.assert_close(estimates[1], loud**2)
    assert state["steps"] == {0: 6, 1: 5}


def test_a_new_subject_starts_at_the_moment_before_with_the_weight_of_the_prior() -> None:
    quiet, loud = torch.full((4,), 1.0).double(), torch.full((4,), 3.0).double()
    param, optimizer = make(prior_steps=10)
    take_steps(optimizer, param, [(0, quiet)] * 30 + [(1, loud)] * 10)
    state = optimizer.state[param]
    estimate = state["second"][1] / (1 - 0.999 ** state["steps"][1])
    torch.testing.assert_close(estimate, torch.full((4,), 5.0).double(), rtol=0.02, atol=0)
    with pytest.raises(ValueError, match="prior_steps"):
        make(prior_steps=-1)
