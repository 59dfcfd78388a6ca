"""State dicts: resuming to the last bit, and starting warm from other optimizers."""

import copy
import io

import pytest
import torch
from torch import Tensor, nn

from afor import AFOR
from afor.control import FIELDS

SHAPES = [(), (1,), (6,), (5, 4)]
CORRECTION = FIELDS.index("correction")


def parameters(dtype=torch.float32) -> list[nn.Parameter]:
    sizes = [torch.Size(s).numel() for s in SHAPES]
    return [
        nn.Parameter(torch.linspace(-1, 1, n).reshape(s).to(dtype))
        for n, s in zip(sizes, SHAPES, strict=True)
    ]


def feed(params, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for p in params:
        values = torch.randn(p.shape, generator=generator) * (1 + 9 * (step % 7 == 0))
        p.grad = values.to(p.dtype)


def stepped_once(implementation) -> AFOR:
    params = parameters()
    optimizer = AFOR(params, **implementation)
    feed(params, 0)
    optimizer.step()
    return optimizer


def through_a_file(state_dict):
    """Save and load as a careful user does."""
    buffer = io.BytesIO()
    torch.save(state_dict, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def bits(*tensors: Tensor) -> list[bytes]:
    return [t.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for t in tensors]


def state_bits(optimizer: AFOR, params) -> list[bytes]:
    return bits(*(optimizer.state[p][k] for p in params for k in sorted(optimizer.state[p])))


@pytest.mark.parametrize(
    "every", [pytest.param(1, marks=pytest.mark.slow), 5], ids=lambda n: f"every {n}"
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_run_resumed_at_any_of_150_steps_is_bit_identical(implementation, dtype, every):
    options = {"lr": 0.01, "weight_decay": 0.1, **implementation}
    params = parameters(dtype)
    optimizer = AFOR(params, **options)
    checkpoints, path = {}, []
    around_the_warm_up = range(98, 103)
    for step in range(153):
        if step < 150 and (step % every == 0 or step < 3 or step in around_the_warm_up):
            checkpoints[step] = through_a_file(optimizer.state_dict()), copy.deepcopy(params)
        feed(params, step)
        optimizer.step()
        path.append((bits(*params), state_bits(optimizer, params)))
    for step, (saved, resumed) in checkpoints.items():
        continued = AFOR(resumed, **options)
        continued.load_state_dict(saved)
        for t in range(step, step + 3):
            feed(resumed, t)
            continued.step()
            assert (bits(*resumed), state_bits(continued, resumed)) == path[t], (
                f"resumed at step {step}, differs at step {t}"
            )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_loading_keeps_the_dtypes_of_the_state(implementation, dtype):
    params = parameters(dtype)
    optimizer = AFOR(params, **implementation)
    for step in range(3):
        feed(params, step)
        optimizer.step()
    other = parameters(dtype)
    loaded = AFOR(other, **implementation)
    loaded.load_state_dict(optimizer.state_dict())
    for p, q in zip(params, other, strict=True):
        for name, value in optimizer.state[p].items():
            assert loaded.state[q][name].dtype == value.dtype == torch.float32
            assert torch.equal(loaded.state[q][name], value)


def test_a_float32_checkpoint_loads_into_a_half_precision_model_and_back(implementation):
    params = parameters()
    optimizer = AFOR(params, **implementation)
    for step in range(3):
        feed(params, step)
        optimizer.step()
    half = parameters(torch.bfloat16)
    loaded = AFOR(half, **implementation)
    loaded.load_state_dict(optimizer.state_dict())
    assert state_bits(loaded, half) == state_bits(optimizer, params)
    narrow = AFOR(half, half_moments="parameter")
    saved = optimizer.state_dict()
    saved["param_groups"][0]["half_moments"] = "parameter"
    narrow.load_state_dict(saved)
    assert narrow.state[half[2]]["exp_avg"].dtype == torch.bfloat16
    assert narrow.state[half[2]]["control"].dtype == torch.float32


def test_a_state_dict_moves_between_implementations(implementation):
    params = parameters(torch.float64)
    optimizer = AFOR(params, lr=0.01, foreach=False)
    for step in range(60):
        feed(params, step)
        optimizer.step()
    saved, others = optimizer.state_dict(), copy.deepcopy(params)
    for group in saved["param_groups"]:
        group.update({"foreach": None, "fused": None, **implementation})
    continued = AFOR(others, **implementation)
    continued.load_state_dict(saved)
    for step in range(60, 120):
        feed(params, step)
        feed(others, step)
        optimizer.step()
        continued.step()
    for p, q in zip(params, others, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-11)


def test_loading_does_not_share_memory_with_the_dict_or_change_it(implementation):
    optimizer = stepped_once(implementation)
    saved = optimizer.state_dict()
    frozen = copy.deepcopy(saved)
    a, b = (AFOR(parameters(), **implementation) for _ in range(2))
    for loaded in (a, b):
        loaded.load_state_dict(saved)
    for loaded in (a, b):
        group = loaded.param_groups[0]["params"]
        feed(group, 1)
        loaded.step()
    for index, state in frozen["state"].items():
        assert all(torch.equal(saved["state"][index][k], v) for k, v in state.items())
    assert saved["param_groups"] == frozen["param_groups"]


def test_options_come_from_the_checkpoint_as_in_torch(implementation):
    saved = AFOR(parameters(), lr=0.5, beta2_min=0.9, warmup_steps=7).state_dict()
    loaded = AFOR(parameters(), lr=0.1, **implementation)
    loaded.load_state_dict(saved)
    group = loaded.param_groups[0]
    assert (group["lr"], group["beta2_min"], group["warmup_steps"]) == (0.5, 0.9, 7)


def test_an_option_the_checkpoint_does_not_know_stays_as_it_is():
    saved = AFOR(parameters()).state_dict()
    del saved["param_groups"][0]["statistics"]
    loaded = AFOR(parameters(), statistics="calibrated")
    loaded.load_state_dict(saved)
    assert loaded.param_groups[0]["statistics"] == "calibrated"


def test_a_checkpoint_with_an_invalid_option_is_refused_with_the_rule():
    saved = AFOR(parameters()).state_dict()
    saved["param_groups"][0]["beta2_min"] = 2.0
    with pytest.raises(ValueError, match=r"beta2_min must be in \[0, 1\), got 2.0"):
        AFOR(parameters()).load_state_dict(saved)


def test_parameters_that_never_had_a_gradient_load_without_state(implementation):
    params = parameters()
    optimizer = AFOR(params, **implementation)
    feed(params[:2], 0)
    optimizer.step()
    others = parameters()
    loaded = AFOR(others, **implementation)
    loaded.load_state_dict(through_a_file(optimizer.state_dict()))
    assert len(loaded.state) == 2
    feed(others, 1)
    loaded.step()
    assert [loaded.state[p]["step"].item() for p in others] == [2, 2, 1, 1]


@pytest.mark.parametrize(
    "make",
    [lambda p: torch.optim.Adam(p, lr=0.01), lambda p: torch.optim.AdamW(p, lr=0.01)],
    ids=["Adam", "AdamW"],
)
def test_adam_and_adamw_are_a_warm_start_with_a_message(implementation, make, request):
    name = request.node.callspec.id.rsplit("-", 1)[-1]
    params = parameters()
    theirs = make(params)
    for step in range(30):
        feed(params, step)
        theirs.step()
    ours = AFOR(params, warmup_steps=10, **implementation)
    with pytest.warns(UserWarning, match=f"from an {name} state dict") as caught:
        ours.load_state_dict(through_a_file(theirs.state_dict()))
    assert caught[0].filename == __file__  # the line that loads, not one of ours
    text = str(caught[0].message)
    assert "noise, agreement and score statistics start fresh" in text
    assert f"{len(SHAPES)} tensors" in text
    group = ours.param_groups[0]
    assert (group["lr"], group["warmup_steps"]) == (0.01, 10)
    assert "amsgrad" not in group
    for p in params:
        state = ours.state[p]
        assert state["step"].item() == 30
        assert torch.equal(state["exp_avg"], theirs.state[p]["exp_avg"])
        assert torch.equal(state["exp_avg_sq"], theirs.state[p]["exp_avg_sq"])
        control = dict(zip(FIELDS, state["control"].tolist(), strict=True))
        assert control["correction"] == pytest.approx(1 - 0.999**30, rel=1e-6)
        assert (control["agreement"], control["noise_slow"]) == (1.0, 0.0)


def test_a_warm_start_with_equal_bounds_goes_on_as_adamw(implementation):
    params = parameters()
    theirs = torch.optim.AdamW(params, lr=0.01, weight_decay=0.1)
    for step in range(20):
        feed(params, step)
        theirs.step()
    others = copy.deepcopy(params)
    ours = AFOR(others, beta2_min=0.999, **implementation)
    with pytest.warns(UserWarning, match="AdamW"):
        ours.load_state_dict(theirs.state_dict())
    for step in range(20, 60):
        for group, optimizer in ((params, theirs), (others, ours)):
            feed(group, step)
            optimizer.step()
    for p, q in zip(params, others, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_coupled_weight_decay_of_adam_is_pointed_out():
    params = parameters()
    theirs = torch.optim.Adam(params, weight_decay=0.1)
    feed(params, 0)
    theirs.step()
    with pytest.warns(UserWarning, match="coupled in Adam and is decoupled from now on"):
        AFOR(params).load_state_dict(theirs.state_dict())


def test_adam_with_amsgrad_is_a_warm_start_too(implementation):
    params = parameters()
    theirs = torch.optim.AdamW(params, amsgrad=True)
    feed(params, 0)
    theirs.step()
    ours = AFOR(params, **implementation)
    with pytest.warns(UserWarning, match=r"AdamW.*max_exp_avg_sq is dropped"):
        ours.load_state_dict(theirs.state_dict())
    assert "max_exp_avg_sq" not in ours.state[params[2]]
    feed(params, 1)
    ours.step()


def test_the_state_of_sgd_is_refused_and_nothing_is_changed():
    params = parameters()
    theirs = torch.optim.SGD(params, lr=0.1, momentum=0.9)
    feed(params, 0)
    theirs.step()
    ours = AFOR(params)
    ours.step()
    before = state_bits(ours, params)
    with pytest.raises(ValueError, match="accepted are those of AFOR, Adam, AdamW"):
        ours.load_state_dict(theirs.state_dict())
    assert state_bits(ours, params) == before


@pytest.mark.parametrize("change", ["groups", "params"])
def test_a_state_dict_of_another_network_is_refused_as_by_torch(change):
    saved = AFOR(parameters()).state_dict()
    if change == "groups":
        saved["param_groups"] *= 2
    else:
        saved["param_groups"][0]["params"] = [0, 1]
    with pytest.raises(ValueError, match="loaded state dict"):
        AFOR(parameters()).load_state_dict(saved)


def test_hooks_of_the_user_still_run_and_see_what_they_expect(implementation):
    optimizer = stepped_once(implementation)
    seen = []
    optimizer.register_state_dict_pre_hook(lambda _: seen.append("save pre"))
    optimizer.register_state_dict_post_hook(lambda _, __: seen.append("save post"))
    saved = optimizer.state_dict()
    other = AFOR(parameters(torch.bfloat16), **implementation)

    def change_lr(_, given):
        seen.append("load pre")
        given = copy.deepcopy(given)
        given["param_groups"][0]["lr"] = 0.125
        return given

    def look(loaded):
        seen.append("load post")
        dtypes = {s["control"].dtype for s in loaded.state.values()}
        assert dtypes == {torch.float32}

    other.register_load_state_dict_pre_hook(change_lr)
    other.register_load_state_dict_post_hook(look)
    for _ in range(2):
        other.load_state_dict(saved)
    assert seen == ["save pre", "save post", *["load pre", "load post"] * 2]
    assert other.param_groups[0]["lr"] == 0.125


def test_the_state_dict_holds_only_tensors_and_plain_values(implementation):
    optimizer = stepped_once(implementation)
    saved = optimizer.state_dict()
    assert set(saved) == {"state", "param_groups"}
    for state in saved["state"].values():
        assert {k: type(v) for k, v in state.items()} == dict.fromkeys(
            ["step", "exp_avg", "exp_avg_sq", "control"], Tensor
        )
    for value in saved["param_groups"][0].values():
        assert isinstance(value, (bool, int, float, str, tuple, list, type(None)))


def test_a_tensor_lr_survives_the_file(implementation):
    params = parameters()
    optimizer = AFOR(params, lr=torch.tensor(0.25), **implementation)
    feed(params, 0)
    optimizer.step()
    loaded = AFOR(parameters(), **implementation)
    loaded.load_state_dict(through_a_file(optimizer.state_dict()))
    assert loaded.param_groups[0]["lr"].item() == 0.25
