"""What a step on the CPU calls, so that no ordinary use makes it many times slower."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import afor
from afor import AFOR
from afor.native.binding import KernelPlan, unavailable_reason

pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
SOURCE = str(Path(afor.__file__).parent)


def calls(step: Callable[[], object]) -> int:
    """Return the number of calls of Python functions of this package in a step."""
    count = 0

    def profile(frame, event, _):  # type: ignore[no-untyped-def]
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(SOURCE)

    sys.setprofile(profile)
    try:
        step()
    finally:
        sys.setprofile(None)
    return count


def tensors(count: int = 12) -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(7, 3)) for _ in range(count)]


def feed(params: list[nn.Parameter]) -> None:
    for p in params:
        p.grad = 0.1 * p.detach() if p.requires_grad else None


def stepped(params: list[nn.Parameter], **options: object) -> AFOR:
    optimizer = AFOR(params, **options)  # type: ignore[arg-type]
    for _ in range(2):
        feed(params)
        optimizer.step()
    return optimizer


FEW = 12  # calls of a step whose plan is kept, whatever the number of tensors


def test_a_step_calls_few_functions_whatever_the_number_of_tensors() -> None:
    few, many = (calls(stepped(tensors(count)).step) for count in (2, 200))
    assert few == many <= FEW


def test_a_frozen_tensor_costs_no_call() -> None:
    params = tensors()
    params[3].requires_grad_(requires_grad=False)
    assert calls(stepped(params).step) <= FEW


def test_a_tensor_without_a_gradient_costs_no_call_and_any_other_may_be_next() -> None:
    params = tensors()
    optimizer = stepped(params)
    for missing in (3, 5, 0):
        feed(params)
        params[missing].grad = None
        before = params[missing].detach().clone()
        version = params[missing]._version
        assert calls(optimizer.step) <= FEW + 1  # one more to read which have none
        assert torch.equal(params[missing], before)
        assert params[missing]._version == version
        assert calls(optimizer.step) <= FEW


def test_a_frozen_tensor_is_trained_from_the_step_on_in_which_it_has_a_gradient() -> None:
    params = tensors()
    params[3].requires_grad_(requires_grad=False)
    optimizer = stepped(params)
    params[3].requires_grad_()
    for _ in range(2):
        feed(params)
        optimizer.step()
    assert [int(optimizer.state[p]["step"]) for p in params[2:5]] == [4, 2, 4]
    assert calls(optimizer.step) <= FEW


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_a_tensor_of_another_dtype_costs_no_call_and_changes_no_number(dtype) -> None:
    def mixed() -> list[nn.Parameter]:
        dtypes = [dtype if i == 5 else torch.float32 for i in range(12)]
        return [nn.Parameter(p.detach().to(d)) for p, d in zip(tensors(), dtypes, strict=True)]

    together, apart = mixed(), mixed()
    optimizers = [AFOR(together), *(AFOR([p]) for p in apart)]
    for _ in range(3):
        feed(together)
        for p, q in zip(together, apart, strict=True):
            q.grad = p.grad
        for optimizer in optimizers:
            optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(together, apart, strict=True))
    assert calls(optimizers[0].step) <= FEW


def test_a_contiguous_checkpoint_in_a_channels_last_model_costs_no_call() -> None:
    def convolution() -> nn.Conv2d:
        torch.manual_seed(0)
        return nn.Conv2d(4, 8, 3)

    saved = stepped(list(convolution().parameters())).state_dict()
    params = list(convolution().to(memory_format=torch.channels_last).parameters())
    optimizer = AFOR(params)
    optimizer.load_state_dict(saved)
    for _ in range(2):
        feed(params)
        optimizer.step()
    assert calls(optimizer.step) <= FEW
    for name in ("exp_avg", "exp_avg_sq"):
        assert optimizer.state[params[0]][name].stride() == params[0].stride()


def test_a_profiler_costs_one_record() -> None:
    optimizer = stepped(tensors())
    plain = calls(optimizer.step)
    with torch.profiler.profile():
        optimizer.step()
        assert calls(optimizer.step) == plain


def test_hooks_leave_the_plan_in_use() -> None:
    optimizer = stepped(tensors())
    plain = calls(optimizer.step)
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    assert calls(optimizer.step) == plain + 1
    assert seen == [1]


def test_a_constant_decay_reads_each_tensor_once_and_keeps_no_score() -> None:
    params = tensors()
    optimizer = stepped(params, beta2_min=0.999)
    assert calls(optimizer.step) <= FEW
    control = optimizer.state[params[0]]["control"]
    assert control[:7].tolist() == [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]


@pytest.fixture
def one_rank() -> Iterator[DeviceMesh]:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_a_step_on_shards_keeps_its_plan_and_walks_each_group_once(one_rank, monkeypatch) -> None:
    params = [nn.Parameter(distribute_tensor(p.detach(), one_rank, [Shard(0)])) for p in tensors()]
    optimizer = stepped(params)
    plans, walks = [], []
    new, walk = KernelPlan.__init__, AFOR._init_group
    monkeypatch.setattr(KernelPlan, "__init__", lambda *a: (plans.append(1), new(*a))[1])
    monkeypatch.setattr(AFOR, "_init_group", lambda *a: (walks.append(1), walk(*a))[1])
    for step in (1, 2, 3):
        feed(params)
        optimizer.step()
        assert (len(plans), len(walks)) == (0, step)
    optimizer.state[params[0]]["control"] = optimizer.state[params[0]]["control"].clone()
    optimizer.step()
    assert len(plans) == 1  # what has moved is noticed
    assert [int(optimizer.state[p]["step"]) for p in params] == [6] * 12
    assert calls(optimizer.step) <= 540  # for 12 tensors, one by one
