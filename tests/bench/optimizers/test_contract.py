"""What every optimizer of ours must do, whatever its rule."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from afor.bench.optimizers.adamp import AdamP
from afor.bench.optimizers.beta2_rules import Kourkoutas, ScheduledAdamW
from afor.bench.optimizers.mars import MARS
from afor.bench.optimizers.muon import MuonAdamW
from afor.bench.optimizers.sophia import Sophia

SETTINGS = {
    AdamP: {"weight_decay": 0.1},
    MARS: {"weight_decay": 0.1},
    Sophia: {},
    Kourkoutas: {"weight_decay": 0.1},
    ScheduledAdamW: {"weight_decay": 0.1, "schedule": "nosadam"},
    MuonAdamW: {"weight_decay": 0.1},
}
CLASSES = pytest.mark.parametrize("cls", list(SETTINGS))


def build(cls: type, params: object) -> torch.optim.Optimizer:
    return cls(params, lr=0.01, **SETTINGS[cls])


def train(net: nn.Module, optimizer: torch.optim.Optimizer, batches: list) -> None:
    for step, (inputs, labels) in enumerate(batches):
        torch.manual_seed(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
        if isinstance(optimizer, Sophia):
            optimizer.after_step(net, inputs)


def assert_same(a: nn.Module, b: nn.Module) -> None:
    for first, second in zip(a.parameters(), b.parameters(), strict=True):
        assert torch.equal(first, second)


@CLASSES
def test_a_saved_and_reloaded_state_continues_bit_by_bit(cls, convnet, batches) -> None:
    optimizer = build(cls, convnet.parameters())
    train(convnet, optimizer, batches[:13])
    file = io.BytesIO()
    torch.save({"net": convnet.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    net = copy.deepcopy(convnet)
    with torch.no_grad():
        for param in net.parameters():
            param.zero_()
    net.load_state_dict(saved["net"])
    resumed = build(cls, net.parameters())
    resumed.load_state_dict(saved["optimizer"])
    train(convnet, optimizer, batches[13:35])
    train(net, resumed, batches[13:35])
    assert_same(convnet, net)


@CLASSES
def test_a_pickled_optimizer_keeps_its_settings_and_state(cls, convnet, batches) -> None:
    optimizer = build(cls, convnet.parameters())
    train(convnet, optimizer, batches[:3])
    again = pickle.loads(pickle.dumps(optimizer))
    assert again.param_groups[0].keys() == optimizer.param_groups[0].keys()
    assert len(again.state) == len(optimizer.state)


@CLASSES
def test_non_contiguous_parameters_give_the_same_numbers(cls) -> None:
    torch.manual_seed(0)
    values, grads = torch.randn(4, 6), [torch.randn(4, 6) for _ in range(3)]
    plain = nn.Parameter(values.clone())
    strided = nn.Parameter(values.clone().t().contiguous().t())
    assert not strided.is_contiguous()
    for param in (plain, strided):
        optimizer = build(cls, [param])
        for grad in grads:
            param.grad = grad.clone()
            optimizer.step()
    torch.testing.assert_close(plain, strided, rtol=1e-6, atol=1e-7)


@CLASSES
def test_gradients_are_left_as_they_are(cls, convnet, batches) -> None:
    optimizer = build(cls, convnet.parameters())
    train(convnet, optimizer, batches[:2])
    inputs, labels = batches[2]
    optimizer.zero_grad()
    nn.functional.cross_entropy(convnet(inputs), labels).backward()
    before = [p.grad.clone() for p in convnet.parameters()]
    optimizer.step()
    for grad, param in zip(before, convnet.parameters(), strict=True):
        assert torch.equal(grad, param.grad)


@CLASSES
def test_parameters_without_gradient_and_empty_ones_are_left_alone(cls) -> None:
    idle, empty = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(0, 3))
    empty.grad = torch.ones(0, 3)
    optimizer = build(cls, [idle, empty])
    optimizer.step()
    assert torch.equal(idle, torch.ones(2, 2))
    assert idle not in optimizer.state


@CLASSES
def test_a_closure_is_called_with_gradients_enabled_and_its_loss_returned(cls) -> None:
    param = nn.Parameter(torch.ones(2, 2))
    optimizer = build(cls, [param])

    def closure() -> torch.Tensor:
        loss = (param**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4.0
    assert (param < 1).all()


@CLASSES
def test_the_state_is_kept_in_the_dtype_of_the_parameter_whatever_the_default(cls) -> None:
    param = nn.Parameter(torch.randn(3, 2, dtype=torch.float64))
    param.grad = torch.randn(3, 2, dtype=torch.float64)
    optimizer = build(cls, [param])
    torch.set_default_dtype(torch.bfloat16)
    try:
        optimizer.step()
    finally:
        torch.set_default_dtype(torch.float32)
    tensors = [v for v in optimizer.state[param].values() if isinstance(v, torch.Tensor)]
    assert {t.dtype for t in (*tensors, param)} == {torch.float64}


@CLASSES
def test_sparse_gradients_and_complex_parameters_are_refused_by_name(cls) -> None:
    sparse = nn.Parameter(torch.ones(2, 2))
    sparse.grad = torch.ones(2, 2).to_sparse()
    with pytest.raises(RuntimeError, match=f"{cls.__name__} .* sparse gradients"):
        build(cls, [sparse]).step()
    complexes = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    complexes.grad = torch.ones(2, dtype=torch.complex64)
    with pytest.raises(RuntimeError, match="complex parameters"):
        build(cls, [complexes]).step()


@CLASSES
@pytest.mark.parametrize(
    "bad",
    [{"lr": -1.0}, {"lr": float("nan")}, {"betas": (0.9, 1.0)}, {"weight_decay": -1e-4}],
)
def test_values_out_of_range_are_refused_with_the_rule_and_the_value(cls, bad) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        cls([nn.Parameter(torch.ones(1))], **bad)


@pytest.mark.parametrize(
    ("cls", "bad"),
    [
        (AdamP, {"delta": -1}),
        (MARS, {"gamma": -1}),
        (MARS, {"lr": 0.0, "matrices_only": True}),
        (Sophia, {"rho": -1}),
        (Sophia, {"interval": 0}),
    ],
)
def test_its_own_arguments_are_checked(cls, bad) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        cls([nn.Parameter(torch.ones(1))], **bad)


@CLASSES
def test_a_learning_rate_schedule_takes_effect(cls) -> None:
    param = nn.Parameter(torch.ones(1))
    optimizer = build(cls, [param])
    optimizer.param_groups[0]["lr"] = 0.0
    param.grad = torch.ones(1)
    optimizer.step()
    assert torch.equal(param, torch.ones(1))
