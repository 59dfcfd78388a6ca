import pytest
import torch
from torch.nn.functional import cross_entropy

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.build import build_optimizer
from afor.bench.training.loop import train
from afor.bench.training.precision import MixedPrecision

CPU = torch.device("cpu")


def trained(precision, steps=20):
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 2)
    inputs, labels = torch.randn(64, 8), torch.randint(2, (64,))
    optimizer = build_optimizer("afor", model, lr=1e-2, weight_decay=0.0)
    mixed = MixedPrecision(precision, CPU, optimizer)
    dtypes = set()
    for _ in range(steps):
        optimizer.zero_grad()
        with mixed.forward():
            logits = model(inputs)
            loss = cross_entropy(logits, labels)
        mixed.backward(loss)
        mixed.step(optimizer)
        dtypes.add(logits.dtype)
    assert model.weight.dtype == torch.float32
    return model.weight.detach().clone(), dtypes


def test_float32_is_the_plain_step_bit_by_bit():
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 2)
    inputs, labels = torch.randn(64, 8), torch.randint(2, (64,))
    optimizer = build_optimizer("afor", model, lr=1e-2, weight_decay=0.0)
    for _ in range(20):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    assert torch.equal(trained("float32")[0], model.weight)
    assert torch.equal(trained("tf32")[0], model.weight)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_lower_precision_trains_close_to_float32(precision):
    weights, dtypes = trained(precision)
    assert dtypes == {getattr(torch, precision)}
    full, _ = trained("float32")
    assert not torch.equal(weights, full)
    assert torch.allclose(weights, full, atol=0.05)


def test_float16_refuses_an_optimizer_with_passes_of_its_own():
    optimizer = build_optimizer("sophia", torch.nn.Linear(2, 2), lr=1e-3, weight_decay=0.0)
    with pytest.raises(ConfigError, match="bfloat16"):
        MixedPrecision("float16", CPU, optimizer)
    MixedPrecision("bfloat16", CPU, optimizer)


class Loud(torch.nn.Module):
    """A network whose gradients overflow in float16 until the scale has fallen."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(96, 2)

    def forward(self, inputs):
        return 1e3 * self.head(inputs.flatten(1))


@pytest.mark.parametrize("name", ["adamw", "afor"])
def test_a_first_step_that_overflows_in_float16_is_left_out(name, source, settings):
    changes = {"precision": "float16", "optimizer": name, "max_epochs": 2, "lr": 1e-4}
    record = train(settings.changed(**changes), source, Loud)
    assert record.status == "done"
