"""The manners of torch.optim: what a training loop and a scheduler do to an optimizer."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode

from afor import AFOR

DATA = torch.linspace(-1, 1, 24).reshape(6, 4)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))


def backward(model: nn.Module, scale: float = 1.0) -> Tensor:
    loss = (model(DATA) - DATA.sum(1, keepdim=True)).square().mean() * scale
    loss.backward()
    return loss


def run(model: nn.Module, optimizer: AFOR, steps: int = 5) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def test_it_trains(implementation):
    model = network()
    optimizer = AFOR(model.parameters(), lr=0.02, **implementation)
    first = backward(model).item()
    run(model, optimizer, 150)
    assert backward(model).item() < 0.02 * first


def test_maximize_climbs_what_minimize_descends(implementation):
    p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    up, down = AFOR([p], maximize=True, **implementation), AFOR([q], **implementation)
    for t in range(5):
        p.grad = torch.tensor([1.0, -2.0, 0.5 + t])
        q.grad = -p.grad
        up.step()
        down.step()
    assert torch.equal(p, q)


def test_a_closure_is_evaluated_with_gradients_and_its_loss_returned(implementation):
    model = network()
    optimizer = AFOR(model.parameters(), **implementation)

    def closure():
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        return backward(model)

    with torch.no_grad():
        loss = optimizer.step(closure)
    assert loss.item() > 0
    twin = network()
    run(twin, AFOR(twin.parameters(), **implementation), 1)
    assert torch.equal(weights(model), weights(twin))
    assert optimizer.step() is None


class NoHostSync(TorchDispatchMode):
    """Fail when a tensor's value is read by the host."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        forbidden = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)
        assert func not in forbidden, f"the step reads a value back: {func}"
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}], ids=str)
@pytest.mark.parametrize(
    "more",
    [{}, {"lr": torch.tensor(0.01)}, {"maximize": True}, {"statistics": "calibrated"}],
    ids=["defaults", "tensor lr", "maximize", "calibrated"],
)
def test_a_step_reads_no_value_back_to_the_host(options, more):
    model = network()
    optimizer = AFOR(model.parameters(), weight_decay=0.1, **options, **more)
    for _ in range(3):
        backward(model)
        with NoHostSync():
            optimizer.step()


def test_the_guard_against_host_reads_works():
    with pytest.raises(AssertionError, match="reads a value back"), NoHostSync():
        torch.ones(1).item()


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_resets_or_zeroes(implementation, set_to_none):
    model = network()
    optimizer = AFOR(model.parameters(), **implementation)
    for _ in range(3):
        backward(model)
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)
        for p in model.parameters():
            assert p.grad is None if set_to_none else not p.grad.any()


def test_gradients_accumulate_over_batches(implementation):
    model, twin = network(), network()
    a = AFOR(model.parameters(), **implementation)
    b = AFOR(twin.parameters(), **implementation)
    for _ in range(3):
        a.zero_grad()
        b.zero_grad(set_to_none=False)
        backward(model, 0.5)
        backward(model, 0.5)
        backward(twin)
        a.step()
        b.step()
    torch.testing.assert_close(weights(model), weights(twin), rtol=1e-5, atol=1e-6)


def test_step_hooks_run_around_each_step_and_until_removed(implementation):
    model = network()
    optimizer = AFOR(model.parameters(), **implementation)
    run(model, optimizer, 2)  # a plan may exist by now: hooks must not need a fresh optimizer
    seen = []
    handles = [
        optimizer.register_step_pre_hook(lambda *_: seen.append("pre")),
        optimizer.register_step_post_hook(lambda *_: seen.append("post")),
        register_optimizer_step_pre_hook(lambda *_: seen.append("global pre")),
        register_optimizer_step_post_hook(lambda *_: seen.append("global post")),
    ]
    before = weights(model)
    run(model, optimizer, 1)
    assert sorted(seen) == ["global post", "global pre", "post", "pre"]
    assert {seen[0], seen[1]} == {"global pre", "pre"}
    assert not torch.equal(before, weights(model))
    for handle in handles:
        handle.remove()
    run(model, optimizer, 1)
    assert len(seen) == 4


def test_a_pre_hook_may_change_the_arguments_of_the_step(implementation):
    model = network()
    optimizer = AFOR(model.parameters(), **implementation)
    calls = []

    def closure():
        calls.append("replaced")
        return backward(model)

    handle = optimizer.register_step_pre_hook(lambda o, *_: ((o, closure), {}))
    assert optimizer.step(lambda: pytest.fail("the hook replaced this")) is not None
    assert calls == ["replaced"]
    handle.remove()
    bad = optimizer.register_step_pre_hook(lambda *_: "nonsense")
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        optimizer.step()
    bad.remove()


def test_hooks_see_the_closure_by_position_and_by_name(implementation):
    model = network()
    optimizer = AFOR(model.parameters(), **implementation)
    optimizer.register_step_post_hook(lambda *_: None)
    assert optimizer.step(lambda: backward(model)) is not None
    assert optimizer.step(closure=lambda: backward(model)) is not None


def test_the_profiler_records_the_step(implementation):
    model = network()
    optimizer = AFOR(model.parameters(), **implementation)
    backward(model)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        optimizer.step()
    names = {event.key for event in profile.key_averages()}
    assert "Optimizer.step#AFOR.step" in names


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_copy_goes_on_to_the_last_bit(implementation, how):
    model = network()
    optimizer = AFOR(model.parameters(), lr=0.01, **implementation)
    run(model, optimizer)
    pair = (model, optimizer)
    twin, copied = copy.deepcopy(pair) if how == "deepcopy" else pickle.loads(pickle.dumps(pair))
    assert copied.param_groups[0]["params"][0] is next(iter(twin.parameters()))
    run(model, optimizer)
    run(twin, copied)
    assert torch.equal(weights(model), weights(twin))
    assert copied.defaults == optimizer.defaults


def test_a_copy_before_the_first_step_works(implementation):
    model = network()
    pair = copy.deepcopy((model, AFOR(model.parameters(), **implementation)))
    run(*pair)


def test_a_pickle_without_the_newer_options_takes_their_defaults():
    optimizer = AFOR([nn.Parameter(torch.ones(2))])
    state = optimizer.__getstate__()
    for group in state["param_groups"]:
        del group["statistics"], group["maximize"]
    old = AFOR.__new__(AFOR)
    old.__setstate__(state)
    assert old.param_groups[0]["statistics"] == "paper"
    assert old.param_groups[0]["maximize"] is False


def test_named_parameters_keep_their_names(implementation):
    model = network()
    optimizer = AFOR(model.named_parameters(), **implementation)
    run(model, optimizer, 2)
    expected = [name for name, _ in model.named_parameters()]
    assert optimizer.param_groups[0]["param_names"] == expected
    saved = optimizer.state_dict()
    assert saved["param_groups"][0]["param_names"] == expected
    twin = network()
    other = AFOR(twin.named_parameters(), **implementation)
    other.load_state_dict(saved)
    assert other.param_groups[0]["param_names"] == expected


def test_swapped_data_is_what_the_next_step_moves(implementation):
    model, twin = network(), network()
    a = AFOR(model.parameters(), lr=0.01, **implementation)
    b = AFOR(twin.parameters(), lr=0.01, foreach=False)
    run(model, a, 3)
    run(twin, b, 3)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        p.data = torch.full_like(p, 0.25)
        with torch.no_grad():
            q.fill_(0.25)
    run(model, a, 3)
    run(twin, b, 3)
    torch.testing.assert_close(weights(model), weights(twin), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", ["clear", "replace", "replace one tensor", "delete one"])
def test_a_state_changed_by_the_user_is_what_the_next_step_uses(implementation, how):
    results = []
    for options in (implementation, {"foreach": False}):
        model = network()
        optimizer = AFOR(model.parameters(), lr=0.01, **options)
        run(model, optimizer, 4)
        first = next(iter(model.parameters()))
        if how == "clear":
            optimizer.state.clear()
        elif how == "replace":
            for p in model.parameters():
                optimizer.state[p] = {k: v.clone() * 0.5 for k, v in optimizer.state[p].items()}
        elif how == "replace one tensor":
            optimizer.state[first]["exp_avg"] = torch.ones_like(first)
        else:
            del optimizer.state[first]
        run(model, optimizer, 4)
        results.append(weights(model))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


def test_a_parameter_replaced_in_its_group_is_what_the_next_step_moves(implementation):
    model = network()
    optimizer = AFOR(model.parameters(), lr=0.01, **implementation)
    run(model, optimizer, 3)
    model[0].bias = nn.Parameter(torch.zeros(5))
    optimizer.param_groups[0]["params"][1] = model[0].bias
    run(model, optimizer, 2)
    assert model[0].bias.any()
    assert optimizer.state[model[0].bias]["step"].item() == 2


def test_step_does_not_leave_gradients_switched_on_or_off(implementation):
    model = network()
    optimizer = AFOR(model.parameters(), **implementation)
    run(model, optimizer, 2)
    assert torch.is_grad_enabled()
    with torch.no_grad():
        optimizer.step()
        assert not torch.is_grad_enabled()
    assert all(p.is_leaf and p.requires_grad for p in model.parameters())


SCHEDULERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda t: 0.9**t),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda _: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4]),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=3),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, total_iters=3),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 10),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 1e-4, 1e-2, step_size_up=3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 1e-2, total_steps=20),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [3]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 1e-4),
}


# SequentialLR of older versions of torch warns about a call of its own.
@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step:UserWarning")
@pytest.mark.parametrize("name", list(SCHEDULERS))
def test_every_scheduler_drives_it_as_it_drives_adamw(implementation, name):
    model, twin = network(), network()
    ours = AFOR(model.parameters(), lr=1e-2, beta2_min=0.999, **implementation)
    theirs = torch.optim.AdamW(twin.parameters(), lr=1e-2)
    schedulers = [SCHEDULERS[name](o) for o in (ours, theirs)]
    for t in range(8):
        for net, optimizer, scheduler in zip(
            (model, twin), (ours, theirs), schedulers, strict=True
        ):
            run(net, optimizer, 1)
            scheduler.step(*([1.0 + t] if name == "ReduceLROnPlateau" else []))
        assert ours.param_groups[0]["lr"] == theirs.param_groups[0]["lr"]
        assert ours.param_groups[0]["betas"] == theirs.param_groups[0]["betas"]
        torch.testing.assert_close(weights(model), weights(twin), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["OneCycleLR", "CyclicLR"])
def test_cycled_momentum_reaches_the_update(implementation, name):
    model = network()
    optimizer = AFOR(model.parameters(), lr=1e-2, **implementation)
    scheduler = SCHEDULERS[name](optimizer)
    seen = set()
    for _ in range(6):
        run(model, optimizer, 1)
        seen.add(optimizer.param_groups[0]["betas"][0])
        scheduler.step()
    assert len(seen) >= 4
    assert weights(model).isfinite().all()


def test_a_scheduler_changes_a_tensor_lr_in_place(implementation):
    model = network()
    optimizer = AFOR(model.parameters(), lr=torch.tensor(0.01), **implementation)
    lr = optimizer.param_groups[0]["lr"]
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(3):
        run(model, optimizer, 1)
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] is lr
    assert lr.item() == pytest.approx(0.01 / 8)


def test_no_scheduler_warns_about_the_order_of_steps(implementation):
    model = network()
    optimizer = AFOR(model.parameters(), **implementation)
    scheduler = lr_scheduler.StepLR(optimizer, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(model, optimizer, 1)
        scheduler.step()


@pytest.mark.parametrize("order", [(True, False), (False, True)], ids=["first", "last"])
def test_a_step_in_inference_mode_leaves_no_trace_in_later_steps(implementation, order):
    params = [torch.nn.Parameter(torch.ones(shape)) for shape in ((3,), (2, 2))]
    optimizer = AFOR(params, lr=0.1, **implementation)
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()  # makes the state
    for mode in order:
        with torch.inference_mode(mode):
            optimizer.step()
    assert optimizer.state[params[0]]["step"] == 3
