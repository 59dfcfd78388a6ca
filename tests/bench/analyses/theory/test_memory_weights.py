"""Lemma 1 on traces whose weights are known by hand, and on AFOR's own second moment."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afor import AFOR
from afor.bench.analyses.theory.memory_weights import direction_bound, memory_length, weights
from afor.bench.common.errors import ConfigError
from afor.control import FIELDS

TRACES = st.lists(st.floats(0.5, 0.9999), min_size=1, max_size=60)


def test_three_steps_by_hand():
    # raw weights: 0.5 · 0.8 · 0.75, 0.2 · 0.75, 0.25; the decays multiply to 0.3
    assert weights([0.5, 0.8, 0.75]) == pytest.approx([0.3 / 0.7, 0.15 / 0.7, 0.25 / 0.7])


def test_the_length_is_the_mean_age_plus_one():
    expected = (3 * 0.3 + 2 * 0.15 + 1 * 0.25) / 0.7
    assert memory_length([0.5, 0.8, 0.75])[-1] == pytest.approx(expected)


@pytest.mark.parametrize(("beta2", "steps"), [(0.99, 100), (0.999, 1000)])
def test_a_constant_decay_remembers_as_long_as_the_paper_says(beta2, steps):
    assert memory_length(np.full(20 * steps, beta2))[-1] == pytest.approx(steps, rel=1e-4)


@given(TRACES)
def test_weights_sum_to_one_and_none_is_negative(trace):
    found = weights(trace)
    assert found.sum() == pytest.approx(1.0, abs=1e-9)
    assert (found >= 0).all()
    ages = np.arange(len(trace), 0, -1)
    assert memory_length(trace)[-1] == pytest.approx(found @ ages)


def test_weighted_squares_are_the_corrected_second_moment_of_afor():
    generator = torch.Generator().manual_seed(0)
    tensor = torch.nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimizer = AFOR([tensor], warmup_steps=5, statistics="calibrated")
    squares, trace = [], []
    for _ in range(40):
        tensor.grad = torch.randn(5, generator=generator, dtype=torch.float64)
        optimizer.step()
        squares.append(tensor.grad.square().numpy())
        control = optimizer.state[tensor]["control"]
        trace.append(1.0 - control[FIELDS.index("forgetting")].item())
    corrected = optimizer.state[tensor]["exp_avg_sq"] / control[FIELDS.index("correction")]
    assert np.ptp(trace[5:]) > 1e-3  # it did adapt
    np.testing.assert_allclose(weights(trace) @ np.array(squares), corrected.numpy(), rtol=1e-10)


@given(TRACES, st.integers(0, 2**32 - 1))
def test_no_gradients_push_further_than_the_bound(trace, seed):
    beta1 = 0.9
    grads = np.random.default_rng(seed).standard_cauchy((len(trace), 3))
    momentum = (1 - beta1) * beta1 ** np.arange(len(trace))[::-1] / (1 - beta1 ** len(trace))
    first, second = momentum @ grads, weights(trace) @ grads**2
    limit = direction_bound(trace, beta1)[-1]
    assert (np.abs(first) <= limit * np.sqrt(second) * (1 + 1e-9)).all()
    assert limit >= 1 - 1e-9


def test_the_gradients_that_reach_the_bound():
    trace, beta1 = [0.99, 0.995, 0.99], 0.9
    momentum = (1 - beta1) * beta1 ** np.arange(3)[::-1] / (1 - beta1**3)
    grads = momentum / weights(trace)
    reached = (momentum @ grads) / np.sqrt(weights(trace) @ grads**2)
    assert direction_bound(trace, beta1)[-1] == pytest.approx(reached)


def test_the_bound_of_a_long_constant_trace():
    expected = np.sqrt(0.1**2 / ((1 - 0.999) * (1 - 0.9**2 / 0.999)))
    assert direction_bound(np.full(20_000, 0.999))[-1] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("trace", "words"), [([], "one number per step"), ([0.9, 1.0], "found 1.0"), ([[0.9]], "shape")]
)
def test_what_is_no_trace_is_refused(trace, words):
    with pytest.raises(ConfigError, match=words):
        weights(trace)
