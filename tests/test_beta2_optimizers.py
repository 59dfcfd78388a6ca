"""The optimizers of the studies on beta2: a Kalman gain, and a second moment per subject."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

FOLDER = Path(__file__).parents[1] / "studies" / "beta2"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


kalman = load("kalman")
KalmanAdamW, kalman_gain = kalman.KalmanAdamW, kalman.kalman_gain
PerSubjectAdamW = load("per_subject").PerSubjectAdamW


def beta2_on(levels: np.ndarray, **settings: float) -> list[float]:
    """Return beta2 after each of a series of gradients whose mean square has these logarithms."""
    param = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = KalmanAdamW([param], lr=1e-6, **settings)
    values = []
    for level in levels:
        param.grad = torch.full_like(param, math.exp(level / 2))
        optimizer.step()
        values.append(optimizer.state[param]["beta2"])
    return values


def test_the_gain_solves_the_riccati_equation_of_the_local_level() -> None:
    for q, r in [(0.01, 1.0), (0.3, 0.2), (2.0, 1.0)]:
        gain = kalman_gain(q, r)
        predicted = gain * r / (1 - gain)  # P of the steady state, from K = P / (P + r)
        assert predicted == pytest.approx(predicted * (1 - gain) + q)


def test_a_level_that_stands_still_is_remembered_for_long() -> None:
    levels = np.random.default_rng(0).normal(0, 0.7, 3000)
    values = beta2_on(levels)
    assert values[:63] == [0.999] * 63  # until 2 · lag gradients were seen
    assert np.mean(values[500:]) > 0.998


def test_a_level_that_wanders_is_forgotten_at_the_gain_of_its_variances() -> None:
    rng = np.random.default_rng(1)
    levels = np.cumsum(rng.normal(0, math.sqrt(0.002), 6000)) + rng.normal(0, 0.5, 6000)
    expected = 1 - kalman_gain(0.002, 0.25)
    values = beta2_on(levels, memory=0.9997)
    # The two standard errors that are taken off the level's variance make it a little larger.
    assert expected < np.mean(values[-2000:]) < expected + 0.04


def test_bursts_bring_beta2_down_within_its_bounds() -> None:
    rng = np.random.default_rng(2)
    bursts = np.repeat(rng.random(400) < 0.05, 5)
    values = beta2_on(rng.normal(0, 0.5, 2000) + 3.0 * bursts)
    assert np.mean(values[1000:]) < 0.95
    assert all(0.9 <= value <= 0.9997 for value in values)


def test_before_the_estimate_it_is_adamw() -> None:
    torch.manual_seed(0)
    ours, theirs = (nn.Parameter(torch.ones(5, dtype=torch.float64)) for _ in range(2))
    pair = [
        KalmanAdamW([ours], lr=0.01, weight_decay=0.1),
        torch.optim.AdamW([theirs], lr=0.01, weight_decay=0.1),
    ]
    for _ in range(60):
        grad = torch.randn(5, dtype=torch.float64)
        for param, optimizer in zip((ours, theirs), pair, strict=True):
            param.grad = grad.clone()
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


def test_gradients_of_zero_and_bad_settings() -> None:
    assert beta2_on(np.full(80, -300.0))[-1] == 0.9997  # mean squares below the smallest number
    for settings in ({"beta2_min": 0.95, "beta2_max": 0.9}, {"lag": 1}, {"memory": 1.0}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            KalmanAdamW([nn.Parameter(torch.zeros(1))], **settings)


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
