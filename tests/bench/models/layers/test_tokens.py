import copy

import pytest
import torch

from afor.bench.common.errors import ConfigError
from afor.bench.models.input_shape import InputShape
from afor.bench.models.layers.tokens import LogPowerTokens, filtered_rows

# (samples, rate): kernels 32, 62 (even and odd halves), 50, as long as the window, 1 and 2
SHAPES = [(128, 128), (250, 250), (600, 200), (33, 130), (40, 4), (40, 8)]


def _twins(samples, rate_hz, dtype):
    shape = InputShape.unnamed(3, samples=samples, rate_hz=rate_hz, classes=2)
    plain = LogPowerTokens(shape, form="plain").to(dtype)
    torch.nn.init.uniform_(plain.norm.weight, 0.5, 1.5)
    torch.nn.init.normal_(plain.norm.bias)
    fast = LogPowerTokens(shape).to(dtype)
    fast.load_state_dict(plain.state_dict())
    return plain, fast


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("samples", "rate_hz"), SHAPES)
def test_both_forms_give_the_same_tokens_and_gradients(samples, rate_hz, training):
    plain, fast = _twins(samples, rate_hz, torch.float64)
    signal = torch.randn(5, 3, samples, dtype=torch.float64) + 0.7
    weights = torch.randn(5, 3, 8, dtype=torch.float64)
    tokens = [model.train(training)(signal) for model in (plain, fast)]
    torch.testing.assert_close(tokens[1], tokens[0], rtol=1e-10, atol=1e-10)
    for output in tokens:
        (output * weights).sum().backward()
    for (key, ours), theirs in zip(fast.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-7, atol=1e-9, msg=key)
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(fast.state_dict()[key], value, rtol=1e-11, atol=1e-12, msg=key)


def test_float32_is_safe_for_data_with_an_offset():
    plain, fast = _twins(128, 128, torch.float32)
    signal = torch.randn(5, 3, 128) + 300
    exact = copy.deepcopy(plain).double()(signal.double())
    torch.testing.assert_close(fast(signal).double(), exact, rtol=0, atol=1e-3)


def test_row_statistics_are_those_of_the_filtered_rows():
    rows, filters = torch.randn(4, 50).double(), torch.randn(2, 9).double()
    outputs = torch.nn.functional.conv1d(rows[:, None], filters[:, None], padding="same")
    mean, variance = filtered_rows(rows, filters)
    torch.testing.assert_close(mean, outputs.mean(-1))
    torch.testing.assert_close(variance, outputs.var(-1, unbiased=False))


def test_autocast_does_not_lower_the_precision_of_the_fast_form():
    _, fast = _twins(128, 128, torch.float32)
    signal = torch.randn(5, 3, 128)
    expected = fast(signal)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(fast(signal), expected)


def test_silence_gives_finite_tokens_and_gradients():
    _, fast = _twins(128, 128, torch.float32)
    tokens = fast(torch.zeros(2, 3, 128))
    tokens.sum().backward()
    assert torch.isfinite(tokens).all()
    assert all(torch.isfinite(p.grad).all() for p in fast.parameters())


def test_a_window_shorter_than_a_filter_is_refused():
    with pytest.raises(ConfigError, match="tokenizer conv needs windows of at least 32 samples"):
        LogPowerTokens(InputShape.unnamed(3, samples=31, rate_hz=128, classes=2))
