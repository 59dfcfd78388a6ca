"""No state dict and no live state makes a step leave its tensors."""

import copy
import ctypes.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from afor import AFOR
from afor.native import binding

FUZZ = Path(__file__).with_name("fuzz_state.py")
KERNEL_FOLDER = Path(binding.__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_kernel = pytest.mark.skipif(
    binding.unavailable_reason() is not None, reason=str(binding.unavailable_reason())
)


def stepped(*shapes, dtype=torch.float32, steps=3, **options):
    """Return parameters with gradients and an optimizer that has taken steps."""
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(s).to(dtype)) for s in shapes]
    optimizer = AFOR(params, lr=0.01, **options)
    for p in params:
        p.grad = torch.randn(p.shape).to(dtype)
    for _ in range(steps):
        optimizer.step()
    return params, optimizer


# ------------------------------------------------------------------------------ loaded state dicts


@pytest.mark.parametrize("outputs", [10, 40_000])
def test_the_state_of_another_head_is_refused_and_nothing_changes(implementation, outputs):
    _, source = stepped((4, 64), (4,), **implementation)
    params, target = stepped((outputs, 64), (outputs,), **implementation)
    before = copy.deepcopy(target.state_dict())
    with pytest.raises(ValueError, match=r"number 0, exp_avg has shape \(4, 64\), the parameter"):
        target.load_state_dict(source.state_dict())
    torch.testing.assert_close(target.state_dict()["state"], before["state"], rtol=0, atol=0)
    target.step()
    assert target.state[params[0]]["step"].item() == 4


def test_the_message_names_the_parameter_and_says_what_to_do():
    named = list(nn.Linear(64, 10).named_parameters())
    target = AFOR(named)
    _, source = stepped((4, 64), (4,))
    with pytest.raises(ValueError, match=r"parameter 'weight' .*leave the state of this parameter"):
        target.load_state_dict(source.state_dict())


def test_a_state_dict_without_the_new_head_loads_and_the_head_starts_anew(implementation):
    _, source = stepped((5, 3), (4, 64), **implementation)
    params, target = stepped((5, 3), (10, 64), steps=0, **implementation)
    saved = source.state_dict()
    del saved["state"][1]
    target.load_state_dict(saved)
    target.step()
    assert [int(target.state[p]["step"]) for p in params] == [4, 1]


@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq", "control", "step"])
@pytest.mark.parametrize("length", [0, 2])
def test_a_short_entry_of_a_state_dict_is_refused(implementation, name, length):
    _, optimizer = stepped((300,), **implementation)
    saved = optimizer.state_dict()
    saved["state"][0] = {**saved["state"][0], name: torch.zeros(length)}
    with pytest.raises(ValueError, match=f"number 0, {name} has shape"):
        optimizer.load_state_dict(saved)


@pytest.mark.parametrize("step", [torch.tensor(2), torch.tensor([2]), 2, 2.0], ids=repr)
def test_a_step_count_of_any_kind_of_number_is_converted(implementation, step):
    (p,), optimizer = stepped((300,), **implementation)
    saved = optimizer.state_dict()
    saved["state"][0] = {**saved["state"][0], "step": step}
    optimizer.load_state_dict(saved)
    optimizer.step()
    assert optimizer.state[p]["step"].item() == 3.0
    assert optimizer.state[p]["step"].dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s["state"][0].pop("exp_avg"), "exp_avg is missing"),
        (lambda s: s["state"][0].update(exp_avg="text"), "exp_avg is a str"),
        (lambda s: s["state"][0].update(step=torch.tensor(float("nan"))), "step is nan"),
        (lambda s: s["state"][0].update(step=torch.tensor(-1.0)), r"step is -1\.0"),
        (lambda s: s["state"][0]["control"].fill_(torch.inf), "not finite"),
        (lambda s: s["state"][0].update(exp_avg=torch.zeros(300, device="meta")), "with data"),
        (lambda s: s.pop("state"), "expected a dict with 'state'"),
        (lambda s: s["param_groups"][0].update(lr=-1.0), "lr must be at least 0"),
        (lambda s: s["param_groups"][0].update(maximize="yes"), "maximize must be True or False"),
    ],
)
def test_a_damaged_state_dict_is_refused_with_a_sentence(change, message):
    _, optimizer = stepped((300,))
    saved = copy.deepcopy(optimizer.state_dict())
    before = copy.deepcopy(optimizer.state_dict())
    change(saved)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(saved)
    torch.testing.assert_close(optimizer.state_dict()["state"], before["state"], rtol=0, atol=0)
    assert optimizer.state_dict()["param_groups"] == before["param_groups"]


# ------------------------------------------------------------------------------------- live states


def replace_state(name, make):
    def change(p, state):
        state[name] = make(state[name])

    return change


def short(tensor):
    return tensor.reshape(-1)[:3].clone()


LIVE = {
    "exp_avg replaced by a short one": replace_state("exp_avg", short),
    "exp_avg_sq replaced by a short one": replace_state("exp_avg_sq", short),
    "control replaced by a short one": replace_state("control", short),
    "step emptied": replace_state("step", lambda _: torch.zeros(0)),
    "parameter replaced by a larger one": lambda p, _: setattr(p, "data", torch.zeros(900)),
    "gradient replaced by a smaller one": lambda p, _: setattr(p.grad, "data", torch.zeros(3)),
    "exp_avg set": lambda _, s: s["exp_avg"].set_(torch.zeros(3)),
    "exp_avg_sq resized": lambda _, s: s["exp_avg_sq"].set_().resize_(4),
}


@pytest.mark.parametrize("case", list(LIVE))
def test_a_live_state_that_does_not_fit_is_refused(implementation, case):
    (p,), optimizer = stepped((300,), **implementation)
    LIVE[case](p, optimizer.state[p])
    before = p.detach().clone()
    with pytest.raises(
        RuntimeError, match=r"AFOR cannot step: of parameter number 0, .* has shape"
    ):
        optimizer.step()
    assert torch.equal(p, before)


NAMES = ("the parameter", "the gradient", "exp_avg", "exp_avg_sq", "control", "step")


@pytest.mark.parametrize("freed", [True, False])
@pytest.mark.parametrize("which", NAMES)
def test_a_storage_that_was_freed_or_cut_short_is_refused(implementation, which, freed):
    (p,), optimizer = stepped((300,), **implementation)
    tensor = {"the parameter": p.data, "the gradient": p.grad}.get(
        which, optimizer.state[p].get(which)
    )
    size = tensor.untyped_storage().nbytes()
    tensor.untyped_storage().resize_(0 if freed else size - 4)
    with pytest.raises(RuntimeError, match=f"number 0, {which} is larger than its storage"):
        optimizer.step()
    tensor.untyped_storage().resize_(size)  # so that nothing reads outside it from here on


@pytest.mark.parametrize("which", ["exp_avg", "exp_avg_sq", "control", "step", "extra", "lr"])
def test_a_state_dict_with_a_freed_storage_is_refused_before_it_is_copied(implementation, which):
    (p,), optimizer = stepped((300,), **implementation)
    saved = copy.deepcopy(optimizer.state_dict())
    freed = torch.ones(300) if which in ("extra", "lr") else saved["state"][0][which]
    freed.untyped_storage().resize_(0)
    target = saved["param_groups"][0] if which == "lr" else saved["state"][0]
    target[which] = [freed] if which == "extra" else freed
    with pytest.raises(ValueError, match="one of its tensors is larger than its storage"):
        optimizer.load_state_dict(saved)
    optimizer.step()
    assert optimizer.state[p]["step"].item() == 4


def test_a_learning_rate_whose_storage_was_freed_is_refused(implementation):
    lr = torch.tensor(0.1)
    _, optimizer = stepped((300,), **implementation)
    optimizer.param_groups[0]["lr"] = lr
    optimizer.step()
    lr.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="lr has no storage"):
        optimizer.step()


SWAP = """
import torch
from afor import AFOR
param = torch.nn.Parameter(torch.ones(4, 4))
optimizer = AFOR([param])
param.grad = torch.ones(4, 4)
for _ in range(3):
    optimizer.step()
torch.utils.swap_tensors(optimizer.state[param]["{name}"], {other})
try:
    optimizer.step()
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq"])
@pytest.mark.parametrize("other", ["torch.ones(4, 4).to_sparse()", "torch.ones(4, 4).to('meta')"])
def test_a_state_that_was_swapped_for_one_without_an_address_is_refused(name, other):
    """In a process of its own: torch ends the process when C code asks such a tensor."""
    command = [sys.executable, "-c", SWAP.format(name=name, other=other)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert f"{name} is" in done.stdout


@needs_kernel
def test_a_storage_that_was_cut_and_grown_behind_a_kept_plan_is_noticed():
    (p,), optimizer = stepped((300,))
    plan = next(iter(optimizer._plans.values()))
    storage = p.data.untyped_storage()
    storage.resize_(0)
    storage.resize_(4)
    with pytest.raises(RuntimeError, match="the parameter is larger than its storage"):
        optimizer.step()
    assert plan not in optimizer._plans.values()
    storage.resize_(1200)


def test_a_gradient_of_another_dtype_gives_the_numbers_of_the_same_gradient_converted(
    implementation,
):
    (p,), optimizer = stepped((300,), **implementation)
    (q,), expected = stepped((300,), **implementation)
    wide = torch.randn(300, dtype=torch.float64)
    p.grad.data = wide
    q.grad.data = wide.float()
    for _ in range(3):
        optimizer.step()
        expected.step()
    torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-7)


def test_an_integer_step_in_the_live_state_is_converted(implementation):
    (p,), optimizer = stepped((300,), **implementation)
    optimizer.state[p]["step"] = torch.tensor(2)
    optimizer.step()
    assert optimizer.state[p]["step"].item() == 3.0


def test_a_transposed_parameter_takes_the_same_step_as_on_the_for_loop():
    torch.manual_seed(1)
    (p,), optimizer = stepped((20, 20))
    (q,), expected = stepped((20, 20), foreach=False)
    for each in (p, q):
        each.data = each.data.t()  # the same memory in another order
        each.grad = torch.ones(20, 20).triu()
    optimizer.step()
    expected.step()
    torch.testing.assert_close(p, q, rtol=2e-6, atol=2e-6)


# -------------------------------------------------------------------------------------------- fuzz


def fuzz(*arguments, timeout=3000, **environment):
    done = subprocess.run(
        [sys.executable, str(FUZZ), *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def malloc_checks() -> dict[str, str]:
    """Return the variables that make the C library check its heap, where it can."""
    library = ctypes.util.find_library("c_malloc_debug")
    preload = {"LD_PRELOAD": library} if library else {}
    return {"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165", **preload}


@needs_kernel
def test_damaged_states_never_touch_memory_outside_their_tensors():
    shown = fuzz(60, 60, 1, **malloc_checks())
    assert "120 cases, 0 crashes" in shown
    assert "state dict refused" in shown
    assert "live state stepped" in shown


@pytest.mark.slow
@needs_kernel
def test_thousands_of_damaged_states_never_touch_memory_outside_their_tensors():
    print(fuzz(2000, 1000, 2, **malloc_checks()))


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_the_address_sanitizer_finds_nothing_in_damaged_states(tmp_path):
    kernel = tmp_path / "kernel.so"
    flags = ["-O1", "-g", "-std=gnu11", "-w", "-shared", "-fPIC", "-fsanitize=address"]
    source = KERNEL_FOLDER / "kernel.c"
    subprocess.run(
        [COMPILER, *flags, str(source), "-lm", "-lpthread", "-o", str(kernel)], check=True
    )
    # The sanitizer must be loaded first, then the C++ library whose exceptions it follows.
    libraries = [
        subprocess.check_output([COMPILER, f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    if not all(Path(library).is_file() for library in libraries):
        pytest.skip("no address sanitizer here")
    variables = {"LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0"}
    print(fuzz(300, 300, 3, kernel, **variables))


@needs_kernel
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_that_was_forked_after_a_threaded_step_can_step():
    code = """
import os, torch
from afor import AFOR
torch.set_num_threads(2)
p = torch.nn.Parameter(torch.ones(300_000))
p.grad = torch.ones(300_000)
optimizer = AFOR([p])
optimizer.step()
child = os.fork()
optimizer.step()
if child == 0:
    os._exit(int(p[0]) + 7)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.stdout.split() == ["7"], done.stderr
