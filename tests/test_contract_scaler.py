"""The manners of torch.optim: GradScaler and gradients that are not finite."""

import math

import pytest
import torch
from torch import Tensor, nn

from afor import AFOR
from afor.control import FIELDS

FORGETTING = FIELDS.index("forgetting")


def parameters(dtype=torch.float32) -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(4, dtype=dtype)), nn.Parameter(torch.ones(2, 3, dtype=dtype))]


def loss_of(params, step: int) -> Tensor:
    factors = [torch.linspace(-1, 2, p.numel()).reshape(p.shape) + 0.1 * step for p in params]
    return sum((p * f + p.square()).sum() for p, f in zip(params, factors, strict=True))


def snapshot(optimizer: AFOR, params) -> list[Tensor]:
    state = [optimizer.state[p][k] for p in params for k in sorted(optimizer.state[p])]
    return [t.detach().clone() for t in (*params, *state)]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def scaler_step(scaler, optimizer, params, step, *, unscale=False, poison=None):
    optimizer.zero_grad()
    scaler.scale(loss_of(params, step)).backward()
    if poison is not None:
        params[0].grad[1] = poison
    if unscale:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(params, 1e3)
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize("unscale", [False, True], ids=["plain", "unscale_"])
def test_training_with_a_scaler_equals_training_without(implementation, unscale):
    params, plain = parameters(), parameters()
    optimizer = AFOR(params, lr=0.01, **implementation)
    reference = AFOR(plain, lr=0.01, foreach=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(6):
        scaler_step(scaler, optimizer, params, step, unscale=unscale)
        reference.zero_grad()
        loss_of(plain, step).backward()
        reference.step()
    for p, q in zip(params, plain, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(
            optimizer.state[p]["control"], reference.state[q]["control"], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("unscale", [False, True], ids=["plain", "unscale_"])
@pytest.mark.parametrize("poison", [math.inf, -math.inf, math.nan])
def test_a_skipped_step_changes_nothing_control_included(implementation, unscale, poison):
    params = parameters()
    optimizer = AFOR(params, lr=0.01, weight_decay=0.1, **implementation)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(3):
        scaler_step(scaler, optimizer, params, step, unscale=unscale)
    before, scale = snapshot(optimizer, params), scaler.get_scale()
    scaler_step(scaler, optimizer, params, 3, unscale=unscale, poison=poison)
    assert same(before, snapshot(optimizer, params))
    assert scaler.get_scale() == scale / 2
    scaler_step(scaler, optimizer, params, 4, unscale=unscale)
    assert not same(before, snapshot(optimizer, params))


def test_a_skipped_first_step_leaves_the_parameter_and_a_fresh_control(implementation):
    params = parameters()
    optimizer = AFOR(params, lr=0.01, weight_decay=0.1, **implementation)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler_step(scaler, optimizer, params, 0, poison=math.inf)
    assert all(torch.equal(p, torch.ones_like(p)) for p in params)
    for state in optimizer.state.values():  # torch's fused optimizers create their state, too
        assert state["step"].item() == 0
        assert state["control"].tolist()[2:5] == [1.0, 0.0, 1.0]
    clean = parameters()
    reference = AFOR(clean, lr=0.01, weight_decay=0.1, **implementation)
    assert_steps_agree(scaler, optimizer, params, reference, clean, steps=3)


def assert_steps_agree(scaler, optimizer, params, reference, plain, *, steps):
    """Step one set of parameters with a scaler and the other without; compare them."""
    for step in range(steps):
        scaler_step(scaler, optimizer, params, step)
        reference.zero_grad()
        loss_of(plain, step).backward()
        reference.step()
    for p, q in zip(params, plain, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-7)


def assert_scaled_steps_are_plain(optimizer, params, plain):
    """Step with a scaler, and without one by the for-loop; return the optimizer of the latter."""
    reference = AFOR(plain, lr=0.01, foreach=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    assert_steps_agree(scaler, optimizer, params, reference, plain, steps=4)
    return reference


def test_groups_of_different_implementations_share_a_scaler():
    params, plain = parameters(), parameters()
    optimizer = AFOR([params[0]], lr=0.01)
    optimizer.add_param_group({"params": [params[1]], "foreach": True})
    assert_scaled_steps_are_plain(optimizer, params, plain)


def test_a_group_added_without_the_kernel_still_gets_unscaled_gradients(implementation):
    params, plain = parameters(), parameters()
    optimizer = AFOR([params[0]], lr=0.01, **implementation)
    optimizer.add_param_group({"params": [params[1]], "fused": False, "foreach": False})
    reference = assert_scaled_steps_are_plain(optimizer, params, plain)
    for p, q in zip(params, plain, strict=True):
        assert optimizer.state[p]["control"][0].item() == pytest.approx(
            reference.state[q]["control"][0].item(), rel=1e-5
        )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [0, 1, 5, 120])
def test_the_control_survives_a_gradient_that_is_not_finite(implementation, bad, at):
    params = parameters()
    optimizer = AFOR(params, lr=0.01, **implementation)
    for step in range(at + 4):
        optimizer.zero_grad()
        loss_of(params, step).backward()
        if step == at:
            params[0].grad[2] = bad
        optimizer.step()
        if step >= at:
            control = optimizer.state[params[0]]["control"]
            assert control.isfinite().all()
            assert 0.001 - 1e-8 <= control[FORGETTING].item() <= 0.01 + 1e-8
    # As with AdamW, moments and parameter took it up; the neighbouring tensor noticed nothing.
    assert not params[0].isfinite().all()
    clean = parameters()
    reference = AFOR([clean[1]], lr=0.01, **implementation)
    for step in range(at + 4):
        reference.zero_grad()
        loss_of(clean, step).backward()
        reference.step()
    torch.testing.assert_close(params[1], clean[1], rtol=1e-6, atol=1e-7)


def test_a_gradient_that_is_not_finite_does_to_the_parameter_what_it_does_in_adamw(implementation):
    for bad in (math.nan, math.inf, -math.inf):
        results = []
        for make in (
            lambda p: AFOR([p], lr=0.01, weight_decay=0.1, **implementation),
            lambda p: torch.optim.AdamW([p], lr=0.01, weight_decay=0.1),
        ):
            p = nn.Parameter(torch.ones(3))
            optimizer = make(p)
            for step in range(4):
                p.grad = torch.tensor([1.0, bad if step == 1 else 1.0, -1.0])
                optimizer.step()
            results.append(p.detach().isfinite())
        assert torch.equal(*results)


def test_a_run_restored_after_a_gradient_that_is_not_finite_goes_on(implementation):
    """The user puts parameters and moments back; the control needs no restoring."""
    p, q = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
    a, b = AFOR([p], lr=0.01, **implementation), AFOR([q], lr=0.01, **implementation)
    for step in range(8):
        grad = torch.linspace(-1, 1, 5) + 0.1 * step
        if step == 4:
            held = {k: a.state[p][k].clone() for k in ("exp_avg", "exp_avg_sq")}
            value = p.detach().clone()
            p.grad = torch.full((5,), math.nan)
            a.step()
            with torch.no_grad():
                p.copy_(value)
                for k, v in held.items():
                    a.state[p][k].copy_(v)
        p.grad, q.grad = grad.clone(), grad.clone()
        a.step()
        b.step()
    averages = slice(0, 5)  # noise, agreement and score: as if the bad step had not been
    torch.testing.assert_close(
        a.state[p]["control"][averages], b.state[q]["control"][averages], rtol=1e-6, atol=1e-7
    )
    assert p.isfinite().all()
