"""The native kernel: its plan, its threads, and life without it."""

import gc
import weakref

import pytest
import torch
from torch import nn

from afor import AFOR
from afor.native import binding
from afor.native.group_plan import GroupPlan

needs_kernel = pytest.mark.skipif(
    binding.unavailable_reason() is not None, reason=str(binding.unavailable_reason())
)


def feed(params, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)


def train(shapes, steps=8, dtype=torch.float32, **options):
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(s).to(dtype)) for s in shapes]
    optimizer = AFOR(params, lr=0.01, weight_decay=0.1, **options)
    for t in range(steps):
        feed(params, t)
        optimizer.step()
    return params, optimizer


@pytest.fixture
def without_kernel(monkeypatch):
    monkeypatch.setattr(
        binding, "_library", lambda: "the native kernel is not here: a test took it"
    )


def test_without_the_kernel_the_default_still_works(without_kernel):
    params, optimizer = train([(5, 3), (4,)])
    reference, _ = train([(5, 3), (4,)], foreach=True)
    assert optimizer.state[params[0]]["step"].item() == 8
    assert all(torch.equal(p, q) for p, q in zip(params, reference, strict=True))


def test_without_the_kernel_the_default_says_so_once_in_the_log(without_kernel, caplog):
    binding.log_missing_kernel.cache_clear()
    train([(5,)], steps=1, foreach=False)
    assert caplog.messages == []  # the user chose
    for _ in range(2):
        train([(5,)], steps=1)
    (message,) = caplog.messages
    assert message.startswith("AFOR runs without its native kernel, a step on the CPU takes")
    assert "a test took it" in message
    binding.log_missing_kernel.cache_clear()


@needs_kernel
def test_with_the_kernel_nothing_is_logged(caplog):
    binding.log_missing_kernel.cache_clear()
    train([(5,)], steps=1)
    assert caplog.messages == []


def test_without_the_kernel_a_forced_choice_says_why(without_kernel):
    with pytest.raises(RuntimeError, match=r"fused=True` cannot be used: .*a test took it"):
        train([(5,)], fused=True)


@needs_kernel
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str
)
def test_the_number_of_threads_changes_no_bit(dtype):
    shapes = [(200_003,), (65_536,), (7,), (8192 * 3, 2)]
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            params, optimizer = train(shapes, 3, dtype, fused=True)
            results.append([*params, *(optimizer.state[p]["control"] for p in params)])
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@needs_kernel
@pytest.mark.parametrize("n", [1, 7, 8, 15, 16, 17, 1023, 1024, 1025, 8191, 8192, 8193, 70_001])
def test_sizes_around_lanes_blocks_and_chunks_agree_with_the_for_loop(n):
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.float64, 1e-12)):
        native, a = train([(n,)], 6, dtype, fused=True)
        plain, b = train([(n,)], 6, dtype, foreach=False)
        torch.testing.assert_close(native, plain, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(
            a.state[native[0]]["control"], b.state[plain[0]]["control"],
            rtol=1e-5 if dtype == torch.float32 else 1e-11, atol=1e-7,
        )  # fmt: skip


@needs_kernel
def test_nothing_is_written_beside_the_tensors():
    """Parameters lie in one guarded block each, with odd lengths and offsets."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        blocks = [torch.full((n + 34,), 7.0, dtype=dtype) for n in (1, 5, 33, 1029)]
        params = [nn.Parameter(block[17:-17]) for block in blocks]
        for p in params:
            assert p.data_ptr() != 0
        optimizer = AFOR(params, lr=0.1, fused=True)
        for t in range(3):
            feed(params, t)
            optimizer.step()
        for block in blocks:
            assert (block[:17] == 7.0).all()
            assert (block[-17:] == 7.0).all()
            assert (block[17:-17] != 7.0).any()


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_half_precision_value_is_read_and_rounded_as_torch_does(dtype):
    values = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)
    values = values[values.isfinite()]
    p = nn.Parameter(values.clone())
    p.grad = torch.zeros_like(p)
    optimizer = AFOR([p], lr=1.0, weight_decay=0.3, fused=True)
    optimizer.step()
    # decay alone: each value times 0.7 in float32, rounded to nearest even
    assert torch.equal(p.detach(), (values.float() * (1 - 0.3)).to(dtype))
    q = nn.Parameter(torch.zeros_like(values))
    q.grad = values.clone()
    optimizer = AFOR([q], lr=0.0, fused=True)
    optimizer.step()
    torch.testing.assert_close(
        optimizer.state[q]["exp_avg"], values.float() * 0.1, rtol=2e-6, atol=0.0
    )


@needs_kernel
def test_a_plan_is_kept_between_steps_and_dropped_when_it_no_longer_holds():
    params, optimizer = train([(5, 3), (4,)])
    group = optimizer.param_groups[0]
    first = optimizer._plans[id(group)]
    feed(params, 1)
    optimizer.step()
    assert optimizer._plans[id(group)] is first
    params[0].data = params[0].data.clone()
    feed(params, 2)
    optimizer.step()
    assert optimizer._plans[id(group)] is not first
    second = optimizer._plans[id(group)]
    params[0].grad = None
    optimizer.step()
    assert optimizer._plans[id(group)] is second
    assert [optimizer.state[p]["step"].item() for p in params] == [10, 11]


@needs_kernel
def test_a_kept_plan_and_one_for_some_tensors_give_the_same_bits(monkeypatch):
    planned, _ = train([(33,), (7, 5)], fused=True)
    monkeypatch.setattr(GroupPlan, "build", lambda _: None)
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(s)) for s in [(33,), (7, 5)]]
    optimizer = AFOR(params, lr=0.01, weight_decay=0.1, fused=True)
    for t in range(8):
        feed(params, t)
        optimizer.step()
    assert not optimizer._plans
    assert all(torch.equal(a, b) for a, b in zip(planned, params, strict=True))


OPTIONS = {
    "lr": 0.03,
    "lr tensor": torch.tensor(0.03),
    "betas": (0.5, 0.95),
    "eps": 1e-3,
    "weight_decay": 0.3,
    "beta2_min": 0.5,
    "direction_weight": 0.2,
    "direction_decay": 0.3,
    "warmup_steps": 50,
    "fast_channel": False,
    "normalization": "fixed",
    "zscore_clip": 0.1,
    "correction": "fixed",
    "statistics": "calibrated",
    "maximize": True,
}


@needs_kernel
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_changes_between_steps_is_seen_by_a_kept_plan(name):
    def trained(*, kept: bool, change: bool = True) -> list[torch.Tensor]:
        torch.manual_seed(0)
        params = [nn.Parameter(torch.randn(s)) for s in [(33,), (7, 5)]]
        optimizer = AFOR(params, lr=0.01, warmup_steps=4)
        for t in range(12):
            if t == 6 and change:
                optimizer.param_groups[0][name.split()[0]] = OPTIONS[name]
            feed(params, t)
            if not kept:
                optimizer._plans = {}
            optimizer.step()
        return params

    kept, fresh = trained(kept=True), trained(kept=False)
    assert all(torch.equal(a, b) for a, b in zip(kept, fresh, strict=True))
    assert not torch.equal(kept[0], trained(kept=True, change=False)[0])


@needs_kernel
def test_betas_and_lr_that_change_in_place_are_seen_by_a_kept_plan():
    results = []
    for kept in (True, False):
        p = nn.Parameter(torch.ones(5))
        lr, betas = torch.tensor(0.01), [0.9, 0.999]
        optimizer = AFOR([p], lr=lr, betas=betas, fused=True)
        for t in range(8):
            feed([p], t)
            if t == 3:
                lr.mul_(3.0)
            if t == 5:
                betas[0] = 0.1
            if not kept:
                optimizer._plans = {}
            optimizer.step()
        results.append(p.detach())
    assert torch.equal(*results)


@needs_kernel
def test_a_plan_is_dropped_when_its_group_asks_for_another_implementation():
    params, optimizer = train([(5, 3), (4,)], fused=True)
    group = optimizer.param_groups[0]
    assert id(group) in optimizer._plans
    group["fused"], group["foreach"] = None, False
    feed(params, 9)
    optimizer.step()
    assert id(group) not in optimizer._plans
    assert [optimizer.state[p]["step"].item() for p in params] == [9, 9]


@needs_kernel
def test_an_optimizer_that_is_gone_leaves_no_plan_behind():
    params, optimizer = train([(5,)], fused=True)
    plan = weakref.ref(next(iter(optimizer._plans.values())).plan)
    del optimizer
    gc.collect()
    assert plan() is None
    assert params[0].isfinite().all()


@needs_kernel
def test_two_groups_have_a_plan_each():
    a, b = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
    groups = [{"params": [a], "lr": 0.1}, {"params": [b], "lr": 0.2}]
    optimizer = AFOR(groups, weight_decay=0.0, fused=True)
    for t in range(3):
        feed([a], t)
        b.grad = a.grad.clone()
        optimizer.step()
    assert len(optimizer._plans) == 2
    torch.testing.assert_close((b - 1) / 2, a - 1, rtol=1e-5, atol=1e-6)
