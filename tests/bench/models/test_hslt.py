import pytest
import torch

from afor.bench.common.errors import ConfigError
from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.hslt import HSLT
from afor.bench.models.input_shape import InputShape
from afor.bench.models.registry import build_backbone


@pytest.mark.parametrize("tokenizer", ["conv", "de", "linear"])
@pytest.mark.parametrize("name", DATASET_SHAPES)
def test_both_forms_give_the_same_logits(name, tokenizer, batch_of):
    shape = DATASET_SHAPES[name]
    fast = HSLT(shape, tokenizer=tokenizer).double().eval()
    plain = HSLT(shape, tokenizer=tokenizer, form="plain").double().eval()
    plain.load_state_dict(fast.state_dict())
    signal = batch_of(shape, 3, dtype=torch.float64)
    torch.testing.assert_close(fast(signal), plain(signal), rtol=1e-9, atol=1e-10)


def test_both_forms_give_the_same_gradients(batch_of, gradients):
    shape = DATASET_SHAPES["BCI IV 2a"]
    fast, plain = (HSLT(shape, dropout=0.0, form=form).double() for form in ("fast", "plain"))
    plain.load_state_dict(fast.state_dict())
    for model in (fast, plain):
        model.merge_dropout.p = 0.0
    signal = batch_of(shape, 3, dtype=torch.float64)
    ours, theirs = gradients(fast, signal), gradients(plain, signal)
    assert len(ours) == len(theirs) == len(list(fast.parameters()))
    for key, grad in theirs.items():
        torch.testing.assert_close(ours[key], grad, rtol=1e-7, atol=1e-10, msg=key)


def test_shuffled_channels_with_their_names_give_the_same_logits(batch_of):
    shape = DATASET_SHAPES["DEAP"]
    order = torch.randperm(32).tolist()
    names = tuple(shape.channel_names[index] for index in order)
    shuffled = InputShape(names, shape.samples, shape.rate_hz, shape.classes)
    model, other = HSLT(shape).eval(), HSLT(shuffled).eval()
    other.load_state_dict(model.state_dict())
    signal = batch_of(shape)
    torch.testing.assert_close(other(signal[:, order]), model(signal))


def test_regions_of_ones_own_replace_the_table(batch_of):
    shape = InputShape.unnamed(5, samples=64, rate_hz=128, classes=3)
    names = shape.channel_names
    model = HSLT(shape, tokenizer="linear", regions=[names[:2], names[2:]])
    assert model.indices == ((0, 1), (2, 3, 4))
    assert model(batch_of(shape)).shape == (4, 3)


def test_channels_without_a_place_on_the_head_need_regions():
    with pytest.raises(ConfigError, match="set regions to lists of channel names"):
        HSLT(InputShape.unnamed(5, samples=64, rate_hz=128, classes=3))


@pytest.mark.parametrize(("tokenizer", "added"), [("de", 0), ("conv", 3)])
def test_the_tokenizer_alone_adds_to_the_check_figure(tokenizer, added):
    model = HSLT(DATASET_SHAPES["DEAP"], tokenizer=tokenizer)
    assert len(list(model.tokenizer.parameters())) == added
    assert len(list(model.parameters())) == 368 + added


def test_an_unknown_tokenizer_is_refused(six_channels):
    with pytest.raises(ConfigError, match=r"tokenizer = 'wavelet' .* 'conv', 'de' or 'linear'"):
        build_backbone("hslt", six_channels, tokenizer="wavelet")
