"""Scale and shift of EEGNet's first batch norm have exact gradients in every form."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from afor.bench.models.authors import EEGNetAuthors
from afor.bench.models.eegnet import EEGNet
from afor.bench.models.input_shape import InputShape
from afor.bench.models.native.binding import unavailable_reason
from afor.bench.models.stacked_eegnet import StackedEEGNet

SHAPE = InputShape.unnamed(6, samples=128, rate_hz=64, classes=3)
FORMS = ("plain", "fast", "auto", "native")
needs_native = pytest.mark.skipif(
    unavailable_reason() is not None, reason=f"{unavailable_reason()}"
)
forms = [pytest.param(form, marks=needs_native) if form == "native" else form for form in FORMS]
networks = pytest.mark.parametrize("network", [EEGNet, EEGNetAuthors])


def make(network, form="plain", dtype=torch.float64) -> EEGNet:
    torch.manual_seed(4)
    model = network(SHAPE, form=form, dropout=0.0)
    for norm in (model.temporal_norm, model.spatial_norm, model.separable_norm):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.3)
    with torch.no_grad():
        model.temporal_norm.weight[1] *= -0.1
    return model.to(dtype)


def batch(dtype=torch.float64):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(24, 6, 128, generator=generator).to(dtype), torch.arange(24) % 3


def layer_by_layer(model, signal):
    """Return the logits through the layers as they are, which autograd differentiates."""
    left = (model.temporal.kernel_size[1] - 1) // 2
    right = model.temporal.kernel_size[1] // 2
    maps = model.temporal(F.pad(signal.unsqueeze(1), (left, right)))
    maps = F.elu(model.spatial_norm(model.spatial(model.temporal_norm(maps))))
    maps = model.depthwise(F.pad(F.avg_pool2d(maps, (1, 4)), (7, 8)))
    maps = F.elu(model.separable_norm(model.pointwise(maps)))
    return model.classifier(F.avg_pool2d(maps, (1, 8)).flatten(1))


def gradients(model, forward, dtype=torch.float64):
    signal, labels = batch(dtype)
    loss = F.cross_entropy(forward(signal), labels)
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


@networks
@pytest.mark.parametrize("form", forms)
def test_in_float64_they_are_those_of_autograd(network, form):
    reference = make(network)
    expected = gradients(reference, lambda signal: layer_by_layer(reference, signal))
    model = make(network, form)
    found = gradients(model, model)
    assert (found.pop("temporal_norm.bias") == 0).all()
    largest = max(float(grad.abs().max()) for grad in expected.values())
    assert expected.pop("temporal_norm.bias").abs().max() < 1e-14 * largest
    for name, grad in expected.items():
        size = float(grad.abs().max())
        torch.testing.assert_close(found[name], grad, rtol=1e-8, atol=1e-9 * size, msg=name)


@networks
@pytest.mark.parametrize("form", forms)
def test_in_float32_they_are_those_of_float64(network, form):
    exact = make(network)
    expected = gradients(exact, exact)
    model = make(network, form, torch.float32)
    found = gradients(model, model, torch.float32)
    assert (found["temporal_norm.bias"] == 0).all()
    for name in ("temporal_norm.weight", "temporal.weight", "spatial.weight"):
        error = (found[name].double() - expected[name]).norm() / expected[name].norm()
        assert error < 2e-5, name


@networks
@pytest.mark.parametrize("form", forms)
def test_a_scale_of_zero_has_its_gradient(network, form):
    reference, model = make(network), make(network, form)
    for each in (reference, model):
        nn.init.zeros_(each.temporal_norm.weight[2:3])
    expected = gradients(reference, lambda signal: layer_by_layer(reference, signal))
    found = gradients(model, model)
    for name in ("temporal_norm.weight", "temporal.weight", "spatial.weight"):
        size = float(expected[name].abs().max())
        torch.testing.assert_close(
            found[name], expected[name], rtol=1e-8, atol=1e-10 * size, msg=name
        )


@networks
@pytest.mark.parametrize("form", forms)
def test_second_derivatives_are_those_of_autograd(network, form):
    products = []
    for model, forward in (
        (reference := make(network), lambda signal: layer_by_layer(reference, signal)),
        (made := make(network, form), made),
    ):
        signal, labels = batch()
        loss = F.cross_entropy(forward(signal), labels)
        weights = list(model.parameters())
        grads = torch.autograd.grad(loss, weights, create_graph=True)
        scaled = sum((grad * (1 + grad)).sum() for grad in grads)
        products.append(torch.autograd.grad(scaled, weights))
    for expected, found in zip(*products, strict=True):
        size = max(float(expected.abs().max()), 1e-4)
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8 * size)


@networks
@pytest.mark.parametrize("form", ["plain", "fast", "auto"])
def test_in_evaluation_both_have_the_gradients_of_their_function(network, form):
    reference, model = make(network).eval(), make(network, form).eval()
    expected = gradients(reference, lambda signal: layer_by_layer(reference, signal))
    found = gradients(model, model)
    assert expected["temporal_norm.bias"].abs().max() > 1e-4
    for name, grad in expected.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-9, atol=1e-12, msg=name)


@needs_native
@networks
def test_runs_of_a_bundle_have_them_too(network):
    models = [make(network, "auto"), make(network, "auto")]
    nn.init.constant_(models[1].temporal_norm.weight, 0.7)
    alone = [gradients(other := copy.deepcopy(model), other) for model in models]
    signal, labels = batch()
    stack = StackedEEGNet(models)
    logits = stack(signal, training=True)
    stack.backward(torch.stack([F.cross_entropy(of_run, labels) for of_run in logits]))
    for model, expected in zip(models, alone, strict=True):
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter.grad, expected[name]), name


@networks
def test_parameters_are_as_published_and_the_shift_stays_put(network):
    model = network(SHAPE)
    assert sum(1 for _ in model.parameters()) == 12
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=1e-4)
    signal, labels = batch(torch.float32)
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(model(signal), labels).backward()
        optimizer.step()
    assert (model.temporal_norm.bias == 0).all()
