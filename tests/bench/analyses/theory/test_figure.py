import numpy as np
import pytest

from afor.bench.analyses.theory.figure import memory_figure, toy_figure
from afor.bench.analyses.theory.toy import make_toy, sweep_eps


def test_the_bound_and_what_happened_are_drawn_for_each_weight_decay():
    toy, eps = make_toy(), (1e-4, 1.0)
    sweeps = {decay: sweep_eps(toy, weight_decay=decay, steps=20, eps=eps) for decay in (0.0, 1e-4)}
    rates, bounds = toy_figure(sweeps).axes
    curves = {line.get_label(): line for line in bounds.lines}
    expected = [verdict.bound.total for verdict in sweeps[1e-4]]
    assert list(curves["bound, λ = 0.0001"].get_ydata()) == expected
    assert list(curves["bound, λ = 0"].get_xdata()) == list(eps)
    assert "what happened, λ = 0" in curves
    permitted = {line.get_label(): line for line in rates.lines}["λ = 0"]
    assert list(permitted.get_ydata()) == [verdict.lr for verdict in sweeps[0.0]]


def test_weights_are_drawn_over_their_age_one_curve_per_layer():
    trace = np.array([[0.5, 0.9, 0.5], [0.5, 0.9, 0.9]])
    axis = memory_figure(trace, ["a.weight", "b.weight", "a.bias"], "title").axes[0]
    curves = {line.get_label(): line for line in axis.lines}
    assert {"a", "b", "β₂ = 0.99", "β₂ = 0.999"} <= set(curves)
    assert list(curves["a"].get_xdata()) == [1, 0]
    # (0.25, 0.5)/0.75 and (0.45, 0.1)/0.55, averaged
    expected = [(1 / 3 + 9 / 11) / 2, (2 / 3 + 2 / 11) / 2]
    assert list(curves["a"].get_ydata()) == pytest.approx(expected)
