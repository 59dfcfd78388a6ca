import numpy as np
import pytest
from scipy import stats

from afor.bench.analyses.adaptation.shift import event_windows, mean_interval, respond
from afor.bench.common.errors import ConfigError

EVENTS = [20, 40, 60, 80]


def step_response(jump: float, decay: float = 0.8) -> np.ndarray:
    """Return 100 steps at 2 with a jump at each event that dies away, for two tensors."""
    series = np.full((100, 2), 2.0)
    for event in EVENTS:
        series[event : event + 10, 0] += jump * decay ** np.arange(10)
        series[event : event + 10, 1] += 2 * jump * decay ** np.arange(10)
    return series


def test_a_known_response_comes_back_from_its_series() -> None:
    found = respond(event_windows(step_response(0.5), EVENTS, 5, 10), before=5, judged=10)
    expected = np.concatenate([np.zeros(5), 0.75 * 0.8 ** np.arange(10)])
    np.testing.assert_allclose(found.mean, expected, atol=1e-12)
    np.testing.assert_array_equal(found.offsets, np.arange(-5, 10))
    assert found.size == pytest.approx(expected[5:].mean())
    assert found.interval == pytest.approx((found.size, found.size))


def test_a_relative_response_is_the_logarithm_of_the_ratio_to_the_level_before() -> None:
    series = step_response(0.5)
    series[:, 1] = 7 * series[:, 0]  # another scale, the same change
    windows = event_windows(series, EVENTS, 5, 10, relative=True)
    np.testing.assert_allclose(windows[..., 0], windows[..., 1], atol=1e-12)
    assert windows[0, 5, 0] == pytest.approx(np.log(1.25))


def test_noise_around_a_constant_level_is_no_relative_response() -> None:
    rng = np.random.default_rng(0)
    series = np.exp(0.5 * rng.standard_normal((20_000, 2)))
    found = respond(event_windows(series, list(range(50, 19_900, 20)), 2, 10, relative=True), 2, 10)
    assert abs(found.size) < 0.04  # a mean of shares of the level before would be near +0.13


def test_a_tensor_without_gradient_has_no_relative_change() -> None:
    windows = event_windows(np.zeros((50, 1)), [20], 5, 5, relative=True)
    assert not windows.any()


def test_a_slow_drift_is_no_response_at_pseudo_events() -> None:
    rng = np.random.default_rng(0)
    series = np.linspace(1, 1.01, 4000)[:, None] + 0.1 * rng.standard_normal((4000, 3))
    found = respond(event_windows(series, list(range(50, 3900, 20)), 10, 20), 10, 10)
    low, high = found.interval
    assert low < 0 < high
    assert high - low < 0.02


def test_the_interval_is_that_of_the_t_distribution() -> None:
    values = np.random.default_rng(1).standard_normal((12, 1))
    mean, low, high = (float(v[0]) for v in mean_interval(values))
    error = stats.sem(values[:, 0])
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 11, mean, error))
    _, low, high = mean_interval(values[:1])
    assert np.isinf([low, high]).all()


def test_events_at_the_edge_are_left_out_and_none_at_all_is_told() -> None:
    series = step_response(1.0)
    assert len(event_windows(series, [2, *EVENTS, 95], 5, 10)) == 4
    with pytest.raises(ConfigError, match="Train longer"):
        event_windows(series, [2], 5, 10)
