import copy

import pytest
import torch
from torch.nn import functional as F

from afor.bench.common.errors import ConfigError
from afor.bench.models.acrnn import ACRNN, ExtendedSelfAttention
from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.input_shape import InputShape


@pytest.mark.parametrize("name", DATASET_SHAPES)
def test_logits_and_gradients_are_those_of_the_layers_in_their_order(name, batch_of, gradients):
    shape = DATASET_SHAPES[name]
    model = ACRNN(shape, dropout=0.0).double()
    plain = copy.deepcopy(model)
    plain._pooled_maps = lambda signal: F.max_pool1d(F.elu(plain.convolution(signal)), 75, 10)
    signal = batch_of(shape, 3, dtype=torch.float64)
    torch.testing.assert_close(model(signal), plain(signal), rtol=1e-10, atol=1e-12)
    ours, theirs = gradients(model, signal), gradients(plain, signal)
    for key, grad in theirs.items():
        torch.testing.assert_close(ours[key], grad, rtol=1e-9, atol=1e-12, msg=key)


@pytest.mark.parametrize(("name", "inputs"), [("DEAP", 40), ("BCI IV 2a", 560), ("ISRUC", 1960)])
def test_the_single_step_holds_all_pooled_maps(name, inputs):
    assert ACRNN(DATASET_SHAPES[name]).lstm.input_size == inputs


def test_the_sequence_form_walks_over_the_pooled_steps(batch_of, gradients):
    shape = DATASET_SHAPES["BCI IV 2a"]
    model = ACRNN(shape, recurrent="sequence")
    assert model.lstm.input_size == 40
    grads = gradients(model, batch_of(shape))
    assert all(bool(grad.any()) for grad in grads.values())


def test_channel_weights_sum_to_one_and_follow_the_time_mean(six_channels, batch_of):
    model = ACRNN(six_channels, dropout=0.0).eval()
    signal = batch_of(six_channels)
    # The same channel means give the same weights: a zero-mean change that the convolution
    # cannot see must not matter to the attention.
    means = signal.mean(-1)
    weights = model.excite(torch.tanh(model.squeeze(means))).softmax(-1)
    torch.testing.assert_close(weights.sum(-1), torch.ones(4))
    convolved, pooled_maps = [], model._pooled_maps
    model._pooled_maps = lambda signal: (convolved.append(signal), pooled_maps(signal))[1]
    model(signal)
    torch.testing.assert_close(convolved[0], signal * weights.unsqueeze(-1))


def test_the_attention_weighs_features_by_their_softmax():
    attention, hidden = ExtendedSelfAttention(64), torch.randn(5, 64)
    weighted = attention(hidden)
    weights = weighted / hidden
    torch.testing.assert_close(weights.sum(-1), torch.ones(5))
    assert (weights > 0).all()


def test_logits_are_not_probabilities(six_channels, batch_of):
    model = ACRNN(six_channels).eval()
    torch.nn.init.constant_(model.classifier.bias, 5.0)
    assert (model(batch_of(six_channels)) > 1).all()


def test_a_window_below_119_samples_is_refused():
    with pytest.raises(ConfigError, match="ACRNN needs windows of at least 119 samples, found 118"):
        ACRNN(InputShape.unnamed(4, samples=118, rate_hz=128, classes=2))
    ACRNN(InputShape.unnamed(4, samples=119, rate_hz=128, classes=2))
