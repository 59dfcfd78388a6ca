import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from afor.bench.common.errors import ConfigError
from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.eegnet import EEGNet
from afor.bench.models.input_shape import InputShape

ODD_SHAPES = {
    "one channel": InputShape.unnamed(1, samples=77, rate_hz=50, classes=2),
    "shortest window": InputShape.unnamed(3, samples=32, rate_hz=64, classes=3),
    "odd length": InputShape.unnamed(5, samples=201, rate_hz=101, classes=2),
    "kernel of one": InputShape.unnamed(2, samples=40, rate_hz=2, classes=2),
}
SHAPES = DATASET_SHAPES | ODD_SHAPES
FORM = "fast"  # of the second model of `pair`


def _relative(ours, theirs):
    difference = (ours - theirs).detach().abs().max()
    return float(difference / theirs.detach().abs().max())


@pytest.mark.parametrize("kernel", [None, 15, 16])
@pytest.mark.parametrize("name", SHAPES)
def test_in_float64_the_fast_form_equals_the_plain_one_in_training(
    name, kernel, batch_of, gradients, pair
):
    shape = SHAPES[name]
    plain, fast = pair(shape, kernel_samples=kernel, dropout=0.0)
    signal = batch_of(shape, 3, dtype=torch.float64) + 0.5
    torch.testing.assert_close(fast(signal), plain(signal), rtol=1e-12, atol=1e-13)
    ours, theirs = gradients(fast, signal), gradients(plain, signal)
    assert ours.keys() == theirs.keys()
    size = max(float(grad.abs().max()) for grad in theirs.values())
    for key, grad in theirs.items():
        torch.testing.assert_close(ours[key], grad, rtol=1e-12, atol=1e-13 * size, msg=key)
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(fast.state_dict()[key], value, rtol=1e-12, atol=1e-14, msg=key)


@pytest.mark.parametrize("name", SHAPES)
def test_in_float64_the_fast_form_equals_the_plain_one_in_evaluation(name, batch_of, pair):
    plain, fast = pair(SHAPES[name])
    signal = batch_of(SHAPES[name], dtype=torch.float64)
    before = copy.deepcopy(fast.state_dict())
    torch.testing.assert_close(fast.eval()(signal), plain.eval()(signal), rtol=1e-12, atol=1e-13)
    assert all(torch.equal(value, before[key]) for key, value in fast.state_dict().items())


@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", DATASET_SHAPES)
def test_in_float32_both_forms_are_equally_near_to_float64(name, training, offset, batch_of, pair):
    shape = SHAPES[name]
    plain, fast = pair(shape, dtype=torch.float32, dropout=0.0)
    exact = copy.deepcopy(plain).double()
    signal = batch_of(shape, 8) + offset
    reference = exact.train(training)(signal.double())
    errors = [_relative(m.train(training)(signal).double(), reference) for m in (plain, fast)]
    assert errors[1] < 3 * errors[0] + 2e-6


def test_in_float32_the_gradients_agree(batch_of, gradients, pair):
    plain, fast = pair(DATASET_SHAPES["DEAP"], dtype=torch.float32, dropout=0.0)
    signal = batch_of(DATASET_SHAPES["DEAP"], 16)
    ours, theirs = gradients(fast, signal), gradients(plain, signal)
    size = max(float(grad.abs().max()) for grad in theirs.values())
    for key, grad in theirs.items():
        torch.testing.assert_close(ours[key], grad, rtol=1e-2, atol=1e-5 * size, msg=key)


def test_one_seed_draws_one_dropout_mask_in_both_forms(six_channels, batch_of, pair):
    plain, fast = pair(six_channels)
    signal = batch_of(six_channels, 8, dtype=torch.float64)
    outputs = []
    for model in (plain, fast):
        torch.manual_seed(7)
        outputs.append(model(signal))
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-9, atol=1e-11)


def test_both_forms_share_names_shapes_and_initial_weights(six_channels):
    states = []
    for form in ("plain", "fast", "auto"):
        torch.manual_seed(3)
        states.append(EEGNet(six_channels, form=form).state_dict())
    for state in states[1:]:
        assert list(state) == list(states[0])
        assert all(torch.equal(state[key], value) for key, value in states[0].items())


def test_auto_takes_the_fast_form_where_it_mixes_channels_into_fewer_maps():
    def fast(shape, batch, training=True):
        model = EEGNet(shape).train(training)
        return model.uses_fast_form(torch.empty(batch, shape.channels, shape.samples))

    for batch, training in itertools.product((1, 64, 256), (True, False)):
        assert all(fast(shape, batch, training) for shape in DATASET_SHAPES.values())
        assert not fast(ODD_SHAPES["one channel"], batch, training)
    # The kernel is longer than the window.
    assert not fast(InputShape.unnamed(32, samples=40, rate_hz=128, classes=2), 256)


def test_a_kernel_longer_than_the_window_still_works(batch_of):
    shape = InputShape.unnamed(4, samples=40, rate_hz=128, classes=2)
    assert EEGNet(shape, form="fast")(batch_of(shape)).shape == (4, 2)


@pytest.mark.parametrize("norm", ["temporal_norm", "spatial_norm"])
def test_a_replaced_norm_is_respected(norm, six_channels, batch_of):
    model = EEGNet(six_channels, form="fast")
    setattr(model, norm, nn.Identity())
    assert not model.uses_fast_form(batch_of(six_channels))
    assert model(batch_of(six_channels)).shape == (4, 2)


def test_max_norm_holds_after_every_step(six_channels, synthetic_eeg):
    model = EEGNet(six_channels)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    signal, labels = synthetic_eeg
    projected = 0
    for _ in range(10):
        optimizer.zero_grad()
        F.cross_entropy(model(signal), labels).backward()
        optimizer.step()
        before = model.classifier.weight.norm(dim=1).max()
        model.apply_constraints()
        projected += int(before > 0.25)
        assert model.spatial.weight.flatten(1).norm(dim=1).max() <= 1.0
        assert model.classifier.weight.norm(dim=1).max() <= 0.25
    assert projected > 0


def test_max_norm_leaves_small_weights_alone_and_can_be_switched_off(six_channels):
    model = EEGNet(six_channels, max_norm=False)
    nn.init.constant_(model.spatial.weight, 5.0)
    model.apply_constraints()
    assert (model.spatial.weight == 5.0).all()
    model.max_norm = True
    nn.init.constant_(model.classifier.weight, 0.01)
    model.apply_constraints()
    assert (model.classifier.weight == 0.01).all()
    assert model.spatial.weight.flatten(1).norm(dim=1).max() <= 1.0


def test_the_constructor_does_not_project():
    torch.manual_seed(0)
    wide = InputShape.unnamed(1, samples=32, rate_hz=64, classes=8)
    assert EEGNet(wide).classifier.weight.norm(dim=1).max() > 0.25


def test_autocast_lowers_products_but_not_statistics(six_channels, batch_of, pair):
    plain, fast = pair(six_channels, dtype=torch.float32, dropout=0.0)
    full = copy.deepcopy(fast)
    signal = batch_of(six_channels, 16) + 10
    full(signal)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, expected = fast(signal), plain(signal)
    assert logits.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), expected.float(), rtol=0.1, atol=0.1)
    ours, exact = fast.temporal_norm.state_dict(), full.temporal_norm.state_dict()
    assert all(torch.equal(ours[key], value) for key, value in exact.items())
    logits.float().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in fast.parameters())


def test_half_precision_parameters_work(six_channels, batch_of):
    model = EEGNet(six_channels, form="fast", dropout=0.0).bfloat16()
    logits = model(batch_of(six_channels, 8).bfloat16())
    assert logits.dtype == torch.bfloat16
    assert torch.isfinite(logits).all()


# Dynamo itself instantiates autograd functions while it traces them.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("training", [True, False])
def test_the_fast_form_compiles_without_a_graph_break(training, six_channels, batch_of, gradients):
    model = EEGNet(six_channels, dropout=0.0).train(training)  # compiled: fast
    compiled = torch.compile(copy.deepcopy(model), backend="aot_eager", fullgraph=True)
    signal = batch_of(six_channels)
    torch.testing.assert_close(compiled(signal), model(signal))
    ours, theirs = gradients(compiled, signal), gradients(model, signal)
    for key, grad in theirs.items():
        torch.testing.assert_close(ours[f"_orig_mod.{key}"], grad, rtol=1e-3, atol=1e-5)


def test_the_fast_form_runs_where_there_is_no_data(six_channels):
    model = EEGNet(six_channels, form="fast").to("meta")
    logits = model(torch.empty(4, 6, 128, device="meta"))
    logits.sum().backward()
    assert logits.shape == (4, 2)
    assert all(p.grad is not None for p in model.parameters())


def test_second_derivatives_flow_through_the_fast_form(six_channels, batch_of, pair):
    plain, fast = pair(six_channels, dropout=0.0)
    signal, products = batch_of(six_channels, dtype=torch.float64), []
    for model in (plain, fast):
        weights = [model.temporal.weight, model.spatial.weight]
        grads = torch.autograd.grad(model(signal).square().sum(), weights, create_graph=True)
        norm = sum(grad.square().sum() for grad in grads)
        products.append(torch.autograd.grad(norm, weights))
    for ours, theirs in zip(products[1], products[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8 * float(theirs.abs().max()))


def test_the_first_convolution_is_depthwise_in_space():
    assert sum(p.numel() for p in EEGNet(DATASET_SHAPES["DEAP"]).parameters()) == 1746


@pytest.mark.parametrize("samples", [1, 31])
def test_a_window_below_32_samples_is_refused(samples):
    with pytest.raises(ConfigError, match="EEGNet needs windows of at least 32 samples"):
        EEGNet(InputShape.unnamed(2, samples=samples, rate_hz=64, classes=2))


def test_widths_other_than_8_2_keep_both_forms_equal(six_channels, batch_of, pair):
    for filters, depth in itertools.product((1, 4), (1, 3)):
        settings = {"temporal_filters": filters, "depth": depth, "separable_filters": 5}
        plain, fast = pair(six_channels, dropout=0.0, **settings)
        signal = batch_of(six_channels, dtype=torch.float64)
        torch.testing.assert_close(fast(signal), plain(signal), rtol=1e-9, atol=1e-11)
