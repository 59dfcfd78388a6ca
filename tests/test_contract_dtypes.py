"""The manners of torch.optim: half precision, default dtypes, and what the state is kept in."""

import pytest
import torch

from afor import AFOR

HALVES = [torch.float16, torch.bfloat16]


def grad_of(step: int, n: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    return (torch.randn(n, generator=generator, dtype=torch.float64) + 0.3).to(dtype)


@pytest.fixture(params=[torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def default_dtype(request):
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64], ids=str)
def test_the_state_has_its_dtypes_whatever_the_default_dtype(implementation, default_dtype, dtype):
    p = torch.nn.Parameter(torch.ones(5, dtype=dtype))
    plain = torch.nn.Parameter(torch.ones(5, dtype=dtype))
    optimizer = AFOR([p], lr=0.01, **implementation)
    for t in range(4):
        p.grad = grad_of(t, 5, dtype)
        optimizer.step()
    state = optimizer.state[p]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert state["control"].dtype == wide
    assert state["exp_avg"].dtype == state["exp_avg_sq"].dtype == wide
    assert state["step"].dtype == torch.float32
    torch.set_default_dtype(torch.float32)
    reference = AFOR([plain], lr=0.01, **implementation)
    for t in range(4):
        plain.grad = grad_of(t, 5, dtype)
        reference.step()
    assert torch.equal(p, plain)  # the default dtype has no say in the numbers
    assert torch.equal(state["control"], reference.state[plain]["control"])


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_parameters_follow_the_float32_moments(implementation, dtype):
    p = torch.nn.Parameter(torch.ones(64, dtype=dtype))
    wide = torch.nn.Parameter(torch.ones(64))
    a = AFOR([p], lr=1e-2, **implementation)
    b = AFOR([wide], lr=1e-2, foreach=False)
    for t in range(150):
        p.grad = grad_of(t, 64, dtype)
        wide.grad = p.grad.float()
        a.step()
        b.step()
    for name in ("exp_avg", "exp_avg_sq", "control"):
        torch.testing.assert_close(
            a.state[p][name], b.state[wide][name], rtol=2e-5, atol=2e-6
        )  # the same gradients, the same moments: nothing was rounded to half
    # the parameter is rounded once a step, to nearest: a walk of at most half an ulp a step
    ulp = torch.finfo(dtype).eps
    assert (p.float() - wide).abs().max() < 150 * ulp


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_moments_may_be_kept_in_the_dtype_of_the_parameter(implementation, dtype):
    p = torch.nn.Parameter(torch.ones(32, dtype=dtype))
    optimizer = AFOR([p], lr=1e-2, half_moments="parameter", **implementation)
    for t in range(20):
        p.grad = grad_of(t, 32, dtype)
        optimizer.step()
    state = optimizer.state[p]
    assert state["exp_avg"].dtype == state["exp_avg_sq"].dtype == dtype
    assert state["control"].dtype == torch.float32
    assert p.isfinite().all()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_foreach_equals_the_for_loop_in_half_precision(dtype):
    for moments in ("float32", "parameter"):
        results = []
        for foreach in (False, True):
            p = torch.nn.Parameter(torch.ones(32, dtype=dtype))
            optimizer = AFOR([p], lr=1e-2, half_moments=moments, foreach=foreach)
            for t in range(30):
                p.grad = grad_of(t, 32, dtype)
                optimizer.step()
            results.append(p.detach())
        assert torch.equal(*results)


def test_a_small_forgetting_does_not_vanish_in_bfloat16(implementation):
    """0.001 g^2 added to v is lost in bfloat16, whose steps are 0.004: hence float32 moments."""
    p = torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    optimizer = AFOR([p], lr=0.0, beta2_min=0.999, **implementation)
    for t in range(1000):
        p.grad = torch.full((8,), 1.0 if t < 500 else 2.0, dtype=torch.bfloat16)
        optimizer.step()
    decayed = 0.999**500
    expected = decayed * (1 - decayed) + 4 * (1 - decayed)
    assert optimizer.state[p]["exp_avg_sq"][0].item() == pytest.approx(expected, rel=1e-3)


def test_dtypes_mix_in_one_group(implementation):
    dtypes = [torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.float32]
    mixed = [torch.nn.Parameter(torch.ones(6, dtype=d)) for d in dtypes]
    alone = [torch.nn.Parameter(torch.ones(6, dtype=d)) for d in dtypes]
    together = AFOR(mixed, lr=0.01, **implementation)
    separate = [AFOR([p], lr=0.01, **implementation) for p in alone]
    for t in range(10):
        for p, q in zip(mixed, alone, strict=True):
            p.grad, q.grad = grad_of(t, 6, p.dtype), grad_of(t, 6, q.dtype)
        together.step()
        for optimizer in separate:
            optimizer.step()
    for p, q in zip(mixed, alone, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_lr_as_a_tensor_equals_lr_as_a_float(implementation, dtype):
    for lr in (torch.tensor(0.05), torch.tensor([0.05]), torch.tensor(0.05, dtype=torch.float64)):
        p, q = (torch.nn.Parameter(torch.ones(6, dtype=dtype)) for _ in range(2))
        a = AFOR([p], lr=lr, weight_decay=0.1, **implementation)
        b = AFOR([q], lr=0.05, weight_decay=0.1, **implementation)
        for t in range(10):
            p.grad = grad_of(t, 6, dtype)
            q.grad = p.grad.clone()
            a.step()
            b.step()
            lr.mul_(0.9)  # what a scheduler does to a tensor
            b.param_groups[0]["lr"] *= 0.9
        torch.testing.assert_close(p, q, rtol=2e-6, atol=2e-7)


def test_float16_moments_that_overflow_take_no_step_as_in_adamw(implementation):
    """The square of a gradient of 6e4 is infinite in float16; what follows must not jump."""
    common = {"lr": 0.1, "weight_decay": 0.0}
    ours = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))
    theirs = torch.nn.Parameter(ours.detach().clone())
    a = AFOR([ours], half_moments="parameter", **common, **implementation)
    b = torch.optim.AdamW([theirs], foreach=False, **common)
    for gradient in (6e4, 0.1, 0.1, 0.1, 0.1):
        before = ours.detach().clone()
        for p in (ours, theirs):
            p.grad = torch.full_like(p, gradient)
        a.step()
        b.step()
        if gradient == 0.1:
            torch.testing.assert_close(ours.detach(), before, rtol=0, atol=1e-3)
    torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=0, atol=0.11)
