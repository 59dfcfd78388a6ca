"""The manners of torch.optim: every kind of parameter and gradient a network may hold."""

import pytest
import torch
from torch import Tensor

from afor import AFOR
from afor.control import FIELDS


def feed(params, step: int, scale: float = 1.0) -> None:
    """Give each parameter the gradient of this step, alike for equal shapes."""
    for p in params:
        generator = torch.Generator().manual_seed(100 * step + p.numel())
        dtype = torch.complex128 if p.is_complex() else torch.float64
        values = torch.randn(p.shape, generator=generator, dtype=dtype)
        p.grad = (values * scale).to(p.dtype)


def follow(params, steps: int = 20, **options) -> AFOR:
    optimizer = AFOR(params, lr=0.05, weight_decay=0.01, **options)
    for t in range(steps):
        feed(params, t)
        optimizer.step()
    return optimizer


def start(shape, dtype=torch.float32) -> Tensor:
    n = max(1, torch.Size(shape).numel())
    return torch.linspace(-1, 1, n, dtype=torch.float64)[: torch.Size(shape).numel()].reshape(
        shape
    ).to(dtype)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_foreach_and_for_loop_agree(dtype):
    shapes = [(), (0,), (1,), (7,), (3, 5), (2, 3, 4), (70, 31)]
    a = [torch.nn.Parameter(start(s, dtype)) for s in shapes]
    b = [torch.nn.Parameter(start(s, dtype)) for s in shapes]
    one = AFOR(a, lr=0.05, foreach=False)
    two = AFOR(b, lr=0.05, foreach=True)
    for t in range(120):
        feed(a, t)
        feed(b, t)
        one.step()
        two.step()
        for p, q in zip(a, b, strict=True):
            # Elementwise arithmetic is the same; only the order of the sums differs.
            assert torch.equal(one.state[p]["exp_avg"], two.state[q]["exp_avg"])
            tolerance = 1e-12 if dtype == torch.float64 else 2e-6
            torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)


def test_the_default_is_as_exact_as_the_for_loop():
    a, b = torch.nn.Parameter(start((9, 4))), torch.nn.Parameter(start((9, 4)))
    follow([a], 50, foreach=False)
    follow([b], 50)
    torch.testing.assert_close(a, b, rtol=2e-6, atol=2e-6)


def test_the_gradient_is_left_untouched(implementation):
    for options in ({}, {"maximize": True}, {"weight_decay": 0.1}):
        params = [torch.nn.Parameter(start(s)) for s in [(), (5,), (3, 4)]]
        feed(params, 1)
        grads = [p.grad for p in params]
        before = [g.clone() for g in grads]
        versions = [g._version for g in grads]
        optimizer = AFOR(params, **options, **implementation)
        optimizer.step()
        optimizer.step()
        for p, g, b, v in zip(params, grads, before, versions, strict=True):
            assert p.grad is g
            assert torch.equal(g, b)
            assert g._version == v


def test_the_step_marks_the_parameter_as_changed(implementation):
    p = torch.nn.Parameter(start((3,)))
    loss = p.pow(2).sum()  # saves p for its backward
    p.grad = torch.ones(3)
    AFOR([p], **implementation).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_parameters_without_a_gradient_are_left_alone(implementation):
    p, idle = torch.nn.Parameter(start((3,))), torch.nn.Parameter(start((4,)))
    optimizer = AFOR([p, idle], weight_decay=0.1, **implementation)
    for t in range(3):
        feed([p], t)
        optimizer.step()
    assert torch.equal(idle.detach(), start((4,)))
    assert idle not in optimizer.state
    feed([p, idle], 3)
    optimizer.step()
    # t counts the steps in which this tensor had a gradient
    assert optimizer.state[p]["step"].item() == 4
    assert optimizer.state[idle]["step"].item() == 1
    alone = torch.nn.Parameter(start((4,)))
    feed([alone], 3)
    AFOR([alone], weight_decay=0.1, **implementation).step()
    assert torch.equal(idle, alone)


def test_no_gradient_at_all_is_no_error(implementation):
    optimizer = AFOR([torch.nn.Parameter(start((3,)))], **implementation)
    optimizer.step()
    assert not optimizer.state


def test_a_parameter_frozen_and_thawed_goes_on_where_it_was(implementation):
    p, q = torch.nn.Parameter(start((3,))), torch.nn.Parameter(start((5,)))
    optimizer = follow([p, q], 5, **implementation)
    held = {k: v.clone() for k, v in optimizer.state[q].items()}
    value = q.detach().clone()
    q.requires_grad_(False)
    q.grad = None
    for t in range(3):
        feed([p], t)
        optimizer.step()
    assert torch.equal(q, value)
    assert all(torch.equal(held[k], optimizer.state[q][k]) for k in held)
    q.requires_grad_(True)
    feed([p, q], 9)
    optimizer.step()
    assert optimizer.state[q]["step"].item() == 6


def test_a_parameter_added_late_starts_fresh(implementation):
    p = torch.nn.Parameter(start((3,)))
    optimizer = follow([p], 5, **implementation)
    late = torch.nn.Parameter(start((4,)))
    optimizer.add_param_group({"params": [late], "lr": 0.05, "weight_decay": 0.01})
    for t in range(4):
        feed([p, late], t)
        optimizer.step()
    alone = torch.nn.Parameter(start((4,)))
    follow([alone], 4, **implementation)
    assert torch.equal(late, alone)
    assert optimizer.param_groups[1]["beta2_min"] == 0.99


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (1, 1, 1)], ids=str)
def test_scalars_and_empty_tensors_step(implementation, shape):
    p = torch.nn.Parameter(start(shape))
    optimizer = follow([p, torch.nn.Parameter(start((3,)))], 110, **implementation)
    assert p.shape == shape
    assert p.isfinite().all()
    assert optimizer.state[p]["control"].isfinite().all()


LAYOUTS = {
    "transposed": lambda t: t.clone().t().contiguous().t(),
    "every second": lambda t: torch.stack([t, torch.zeros_like(t)], dim=-1)[..., 0],
    "offset": lambda t: torch.cat([torch.zeros(1, t.shape[1], dtype=t.dtype), t])[1:],
    "column": lambda t: torch.cat([t, t], dim=1)[:, : t.shape[1]],
}


@pytest.mark.parametrize("of_grad", list(LAYOUTS))
@pytest.mark.parametrize("of_param", list(LAYOUTS))
def test_strides_of_parameter_and_gradient_do_not_matter(implementation, of_param, of_grad):
    plain = torch.nn.Parameter(start((6, 4)))
    odd = torch.nn.Parameter(LAYOUTS[of_param](start((6, 4))))
    a = AFOR([plain], lr=0.05, foreach=False)
    b = AFOR([odd], lr=0.05, **implementation)
    for t in range(12):
        feed([plain], t)
        # .grad of another layout than the parameter's is what a user may assign
        odd.grad = LAYOUTS[of_grad](plain.grad)
        a.step()
        b.step()
    torch.testing.assert_close(odd, plain, rtol=2e-6, atol=2e-6)


def test_an_expanded_gradient_is_read_as_it_looks(implementation):
    p, q = torch.nn.Parameter(start((4, 3))), torch.nn.Parameter(start((4, 3)))
    a, b = AFOR([p], foreach=False), AFOR([q], **implementation)
    for _ in range(5):
        p.grad = torch.full((4, 3), 0.5)
        q.grad = torch.tensor(0.5).expand(4, 3)
        a.step()
        b.step()
    torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-7)


def test_channels_last_parameters_keep_their_format(implementation):
    torch.manual_seed(0)
    model = torch.nn.Conv2d(3, 8, 3)
    plain = torch.nn.Conv2d(3, 8, 3)
    plain.load_state_dict(model.state_dict())
    model = model.to(memory_format=torch.channels_last)
    a = AFOR(model.parameters(), lr=0.01, **implementation)
    b = AFOR(plain.parameters(), lr=0.01, foreach=False)
    x = torch.randn(2, 3, 8, 8)
    for _ in range(5):
        for net, optimizer in ((model, a), (plain, b)):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    state = a.state[model.weight]
    assert state["exp_avg"].is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(
        model.weight.contiguous(), plain.weight, rtol=1e-4, atol=1e-5
    )  # the two convolutions round differently


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_a_complex_parameter_is_its_view_as_real(implementation, dtype):
    real_dtype = torch.float32 if dtype == torch.complex64 else torch.float64
    z = torch.nn.Parameter(torch.view_as_complex(start((5, 3, 2), real_dtype).contiguous()))
    x = torch.nn.Parameter(start((5, 3, 2), real_dtype))
    a = AFOR([z], lr=0.05, weight_decay=0.1, **implementation)
    b = AFOR([x], lr=0.05, weight_decay=0.1, foreach=False)
    for t in range(30):
        feed([z], t)
        x.grad = torch.view_as_real(z.grad).clone()
        a.step()
        b.step()
    tolerance = 2e-6 if dtype == torch.complex64 else 1e-12
    torch.testing.assert_close(torch.view_as_real(z), x, rtol=tolerance, atol=tolerance)
    assert a.state[z]["control"].dtype == real_dtype
    assert a.state[z]["exp_avg"].dtype == dtype


def test_real_and_complex_parameters_mix(implementation):
    z = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))
    x = torch.nn.Parameter(torch.ones(3))
    optimizer = follow([z, x], 5, **implementation)
    assert optimizer.state[z]["step"].item() == optimizer.state[x]["step"].item() == 5
    assert torch.view_as_real(z).isfinite().all()


def test_a_conjugated_or_negated_gradient_is_read_as_it_looks(implementation):
    z, w = (torch.nn.Parameter(torch.ones(4, dtype=torch.complex64)) for _ in range(2))
    values = torch.tensor([1 + 2j, 3 - 1j, -2 + 0.5j, 1j])
    z.grad, w.grad = values.conj(), values.conj().resolve_conj()
    for p in (z, w):
        AFOR([p], lr=0.1, **implementation).step()
    assert torch.equal(z, w)
    x, y = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
    x.grad = values.conj().imag
    assert x.grad.is_neg()
    y.grad = x.grad.resolve_neg()
    for p in (x, y):
        AFOR([p], lr=0.1, **implementation).step()
    assert torch.equal(x, y)


def test_sparse_gradients_are_refused_with_the_usual_message(implementation):
    table = torch.nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 3])).sum().backward()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        AFOR(table.parameters(), **implementation).step()


def test_a_subclass_of_parameter_steps_and_keeps_its_class(implementation):
    class Named(torch.nn.Parameter):
        pass

    p, q = Named(start((4,))), torch.nn.Parameter(start((4,)))
    follow([p], 5, **implementation)
    follow([q], 5, **implementation)
    assert type(p) is Named
    torch.testing.assert_close(p.detach().as_subclass(Tensor), q.detach(), rtol=1e-6, atol=1e-7)


def test_meta_parameters_step_without_a_value():
    p = torch.nn.Parameter(torch.empty(3, device="meta"))
    p.grad = torch.empty(3, device="meta")
    for options in ({}, {"foreach": False}):
        optimizer = AFOR([p], **options)
        optimizer.step()
        assert all(v.device.type == "meta" for v in optimizer.state[p].values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no second device here")
def test_parameters_on_two_devices_step_in_one_optimizer():
    p, q = torch.nn.Parameter(start((4,))), torch.nn.Parameter(start((4,)).cuda())
    optimizer = follow([p, q], 5)
    torch.testing.assert_close(p, q.cpu())
    assert optimizer.state[q]["control"].device.type == "cuda"


def test_control_fields_are_documented_in_their_order():
    assert len(FIELDS) == len(set(FIELDS)) == 9
