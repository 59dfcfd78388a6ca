"""The manners of torch.optim: torch.compile of a step, and capturable."""

import os
import shutil
import sys

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from afor import AFOR

pytestmark = pytest.mark.filterwarnings("ignore")  # the compiler's own, of torch's own modules

# inductor's own choice
CXX = os.environ.get("CXX") or {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
needs_cpp_compiler = pytest.mark.skipif(
    shutil.which(CXX) is None, reason=f"inductor needs a C++ compiler, and there is no {CXX}"
)


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.linspace(-1, 1, n)) for n in (3, 8)]


def feed(params, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator)  # a new tensor, as after zero_grad()


def step_both(step, params, reference, plain, t):
    """Take one step with the same gradients, compiled or not, and by the reference."""
    feed(params, t)
    feed(plain, t)
    step()
    reference.step()


def compiled_step(optimizer: AFOR, backend):
    @torch.compile(fullgraph=True, backend=backend)
    def step():
        optimizer.step()

    return step


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1, "maximize": True}], ids=str)
def test_a_step_is_one_graph_and_is_compiled_once(implementation, options):
    params, plain = parameters(), parameters()
    options = {"lr": 0.01, **options, **implementation}
    optimizer, reference = AFOR(params, **options), AFOR(plain, **options)
    step_both(
        optimizer.step, params, reference, plain, 0
    )  # creates the state, as torch's recipe does
    counter = CompileCounterWithBackend("eager")
    step = compiled_step(optimizer, counter)
    for t in range(1, 12):
        step_both(step, params, reference, plain, t)
        for p, q in zip(params, plain, strict=True):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    assert counter.frame_count == 1, "compiled more than once"


def test_a_tensor_lr_may_change_without_compiling_again(implementation):
    params, plain = parameters(), parameters()
    optimizer = AFOR(params, lr=torch.tensor(0.1), **implementation)
    reference = AFOR(plain, lr=0.1, foreach=False)
    step_both(optimizer.step, params, reference, plain, 0)
    counter = CompileCounterWithBackend("eager")
    step = compiled_step(optimizer, counter)
    for t in range(1, 8):
        optimizer.param_groups[0]["lr"].mul_(0.5)
        reference.param_groups[0]["lr"] *= 0.5
        step_both(step, params, reference, plain, t)
    assert counter.frame_count == 1
    for p, q in zip(params, plain, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_a_float_lr_that_changes_each_step_does_not_compile_each_step(implementation):
    params, plain = parameters(), parameters()
    optimizer, reference = AFOR(params, lr=0.1, **implementation), AFOR(plain, lr=0.1)
    step_both(optimizer.step, params, reference, plain, 0)
    counter = CompileCounterWithBackend("eager")
    step = compiled_step(optimizer, counter)
    for t in range(1, 10):
        for o in (optimizer, reference):
            o.param_groups[0]["lr"] *= 0.7
        step_both(step, params, reference, plain, t)
    assert counter.frame_count <= 3
    for p, q in zip(params, plain, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


@needs_cpp_compiler
def test_inductor_gives_the_numbers_of_the_eager_step(implementation):
    params, plain = parameters(), parameters()
    optimizer = AFOR(params, lr=torch.tensor(0.01), weight_decay=0.1, **implementation)
    reference = AFOR(plain, lr=0.01, weight_decay=0.1, foreach=False)
    step_both(optimizer.step, params, reference, plain, 0)
    step = compiled_step(optimizer, "inductor")
    for t in range(1, 130):
        step_both(step, params, reference, plain, t)
    for p, q in zip(params, plain, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-5)
        assert optimizer.state[p]["step"].item() == 130
        torch.testing.assert_close(
            optimizer.state[p]["control"], reference.state[q]["control"], rtol=1e-4, atol=1e-5
        )


@needs_cpp_compiler
def test_inductor_follows_a_float_lr_that_changes():
    p, q = (nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer, reference = AFOR([p], lr=0.1, foreach=False), AFOR([q], lr=0.1, foreach=False)
    feed([p], 0)
    feed([q], 0)
    optimizer.step()
    reference.step()
    step = compiled_step(optimizer, "inductor")
    for t in range(1, 6):
        for o in (optimizer, reference):
            o.param_groups[0]["lr"] *= 0.5
        feed([p], t)
        feed([q], t)
        step()
        reference.step()
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_the_first_step_may_be_the_compiled_one(implementation):
    params, plain = parameters(), parameters()
    optimizer, reference = AFOR(params, **implementation), AFOR(plain, foreach=False)
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    for t in range(3):
        step_both(step, params, reference, plain, t)
    for p, q in zip(params, plain, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_capturable_changes_no_number(implementation):
    params, plain = parameters(), parameters()
    a = AFOR(params, lr=torch.tensor(0.01), capturable=True, **implementation)
    b = AFOR(plain, lr=torch.tensor(0.01), **implementation)
    for t in range(5):
        feed(params, t)
        feed(plain, t)
        a.step()
        b.step()
    for p, q in zip(params, plain, strict=True):
        assert torch.equal(p, q)
    assert all(s["step"].device == p.device for p, s in a.state.items())
