"""The class AFOR: its arguments, their checks, its state and its parameter groups."""

import inspect
import math

import numpy as np
import pytest
import torch

from afor import AFOR
from afor.control import FIELDS


def parameter(*shape: int, **options) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(*shape, **options))


def train(optimizer: AFOR, steps: int = 3) -> None:
    for t in range(steps):
        generator = torch.Generator().manual_seed(t)
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)
        optimizer.step()


def test_the_arguments_of_adamw_come_first_with_their_names_and_meanings():
    ours = list(inspect.signature(AFOR).parameters.values())
    assert [p.name for p in ours[:5]] == ["params", "lr", "betas", "eps", "weight_decay"]
    theirs = inspect.signature(torch.optim.AdamW).parameters
    assert [p.default for p in ours[1:5]] == [theirs[p.name].default for p in ours[1:5]]
    assert all(p.kind is p.KEYWORD_ONLY for p in ours[5:])
    assert set(theirs) - {p.name for p in ours} == {"amsgrad"}


def test_the_defaults_are_those_of_the_paper():
    defaults = AFOR([parameter(1)]).defaults
    expected = {
        "beta2_min": 0.99,
        "direction_weight": 1.0,
        "warmup_steps": 100,
        "direction_decay": 0.9,
        "fast_channel": True,
        "normalization": "self",
        "fixed_mean": 1.0,
        "fixed_scale": 2.0,
        "zscore_clip": 5.0,
        "correction": "cumulative",
        "statistics": "paper",
    }
    assert {name: defaults[name] for name in expected} == expected


INVALID = [
    ("lr", -1.0, "lr must be at least 0, got -1.0"),
    ("lr", math.nan, "lr must be at least 0, got nan"),
    ("lr", math.inf, "lr must be at least 0, got inf"),
    ("lr", "fast", "lr must be a number at least 0, got 'fast'"),
    ("lr", torch.ones(2), r"one element, got shape \(2,\)"),
    ("betas", (1.0, 0.999), r"betas\[0\] must be in \[0, 1\), got 1.0"),
    ("betas", (-0.1, 0.999), r"betas\[0\] must be in \[0, 1\), got -0.1"),
    ("betas", (0.9, 1.0), r"betas\[1\] must be in \[0, 1\), got 1.0"),
    ("betas", (0.9, math.nan), r"betas\[1\] must be in \[0, 1\), got nan"),
    ("betas", (0.9,), r"a pair \(beta1, beta2\), got \(0.9,\)"),
    ("betas", 0.9, r"a pair \(beta1, beta2\), got 0.9"),
    ("eps", -1e-8, "eps must be at least 0, got -1e-08"),
    ("eps", math.nan, "eps must be at least 0, got nan"),
    ("weight_decay", -0.1, "weight_decay must be at least 0, got -0.1"),
    ("beta2_min", -0.5, r"beta2_min must be in \[0, 1\), got -0.5"),
    ("beta2_min", 1.0, r"beta2_min must be in \[0, 1\), got 1.0"),
    ("beta2_min", 0.9999, r"beta2_min=0.9999 > betas\[1\]=0.999"),
    ("beta2_min", math.nan, r"beta2_min must be in \[0, 1\), got nan"),
    ("direction_weight", -1.0, "direction_weight must be at least 0, got -1.0"),
    ("direction_decay", 1.0, r"direction_decay must be in \[0, 1\), got 1.0"),
    ("warmup_steps", -1, "warmup_steps must be at least 0, got -1"),
    ("warmup_steps", math.nan, "warmup_steps must be at least 0, got nan"),
    ("warmup_steps", None, "warmup_steps must be a number at least 0, got None"),
    ("fixed_mean", math.inf, "fixed_mean must be finite, got inf"),
    ("fixed_scale", 0.0, "fixed_scale must be above 0, got 0.0"),
    ("zscore_clip", 0.0, "zscore_clip must be above 0, got 0.0"),
    ("normalization", "batch", r"one of \('self', 'fixed'\), got 'batch'"),
    ("correction", "none", r"one of \('cumulative', 'fixed'\), got 'none'"),
    ("statistics", "robust", r"one of \('paper', 'calibrated'\), got 'robust'"),
    ("half_moments", "half", r"one of \('float32', 'parameter'\), got 'half'"),
]


@pytest.mark.parametrize(("name", "value", "message"), INVALID, ids=lambda x: str(x)[:20])
def test_an_invalid_argument_raises_with_the_value_and_the_rule(name, value, message):
    with pytest.raises(ValueError, match=message):
        AFOR([parameter(1)], **{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("lr", -1.0), ("beta2_min", 0.9999), ("warmup_steps", -3), ("eps", -1.0)]
)
def test_an_invalid_argument_of_a_group_raises_too(name, value):
    with pytest.raises(ValueError, match=name):
        AFOR([{"params": [parameter(1)], name: value}])
    optimizer = AFOR([parameter(1)])
    with pytest.raises(ValueError, match=name):
        optimizer.add_param_group({"params": [parameter(1)], name: value})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"foreach": True, "fused": True}, "cannot be `True` together"),
        ({"foreach": True, "differentiable": True}, "`foreach` does not support"),
        ({"fused": True, "differentiable": True}, "`fused` does not support"),
    ],
)
def test_implementations_that_exclude_each_other_are_refused(options, message):
    with pytest.raises(RuntimeError, match=message):
        AFOR([parameter(1)], **options)


@pytest.mark.parametrize(
    ("params", "error"),
    [([], ValueError), (torch.ones(1), TypeError), ([1.0], TypeError), ([[]], TypeError)],
    ids=["none", "tensor", "float", "list"],
)
def test_what_is_not_a_list_of_parameters_is_refused_as_by_torch(params, error):
    with pytest.raises(error):
        torch.optim.AdamW(params)
    with pytest.raises(error):
        AFOR(params)


def test_a_non_leaf_is_refused_as_by_torch():
    with pytest.raises(ValueError, match="non-leaf"):
        AFOR([torch.ones(1, requires_grad=True) * 2])


def test_the_boundary_values_are_accepted(implementation):
    optimizer = AFOR(
        [parameter(3)], lr=0.0, betas=(0.0, 0.0), eps=0.0, beta2_min=0.0, warmup_steps=0,
        direction_weight=0.0, direction_decay=0.0, **implementation,
    )  # fmt: skip
    train(optimizer)
    assert optimizer.param_groups[0]["params"][0].tolist() == [1.0, 1.0, 1.0]


def test_a_new_state_holds_step_moments_and_control_and_nothing_else(implementation):
    p = parameter(2, 3)
    optimizer = AFOR([p], **implementation)
    assert not optimizer.state
    train(optimizer, 1)
    state = optimizer.state[p]
    assert set(state) == {"step", "exp_avg", "exp_avg_sq", "control"}
    assert state["exp_avg"].shape == state["exp_avg_sq"].shape == (2, 3)
    assert state["control"].shape == (len(FIELDS),)
    assert (state["step"].dtype, state["step"].item()) == (torch.float32, 1.0)


def test_each_group_has_its_own_options(implementation):
    options = [
        {"lr": 0.1},
        {"weight_decay": 0.5},
        {"beta2_min": 0.5, "warmup_steps": 0},
        {"betas": (0.5, 0.9), "beta2_min": 0.1},
        {"maximize": True},
        {"statistics": "calibrated"},
    ]
    together = [parameter(4) for _ in options]
    groups = [{"params": [p], **o} for p, o in zip(together, options, strict=True)]
    optimizer = AFOR(groups, lr=0.01, **implementation)
    alone = []
    for p, o in zip(together, options, strict=True):
        q = parameter(4)
        single = AFOR([q], **{"lr": 0.01, **o, **implementation})
        generator = torch.Generator().manual_seed(1)
        for _ in range(5):
            p.grad = q.grad = torch.randn(4, generator=generator)
            single.step()
        alone.append(q)
    generators = [torch.Generator().manual_seed(1) for _ in together]
    for _ in range(5):
        for p, generator in zip(together, generators, strict=True):
            p.grad = torch.randn(4, generator=generator)
        optimizer.step()
    for p, q in zip(together, alone, strict=True):
        assert torch.equal(p, q)
    assert len({tuple(p.tolist()) for p in together}) >= 4  # the options made a difference


def test_weight_decay_for_part_of_the_network_touches_that_part_alone(implementation):
    model = torch.nn.Linear(3, 2)
    optimizer = AFOR(
        [{"params": [model.weight], "weight_decay": 0.5}, {"params": [model.bias]}],
        lr=0.1,
        weight_decay=0.0,
        **implementation,
    )
    before = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), before[0] * 0.95)
    assert torch.equal(model.bias.detach(), before[1])


@pytest.mark.parametrize(
    "changed",
    [
        {"lr": 0.5},
        {"weight_decay": 0.3},
        {"betas": (0.5, 0.995)},
        {"beta2_min": 0.9},
        {"maximize": True},
        {"warmup_steps": 0},
        {"statistics": "calibrated"},
        {"eps": 1e-2},
    ],
    ids=lambda c: next(iter(c)),
)
def test_an_option_changed_between_steps_takes_effect_at_the_next_one(implementation, changed):
    results = []
    for change in ({}, changed):
        p = parameter(6, dtype=torch.float64)
        optimizer = AFOR([p], lr=0.01, **implementation)
        train(optimizer, 3)
        optimizer.param_groups[0].update(change)
        train(optimizer, 3)
        slow = AFOR([parameter(6, dtype=torch.float64)], lr=0.01, foreach=False)
        train(slow, 3)
        slow.param_groups[0].update(change)
        train(slow, 3)
        torch.testing.assert_close(p, slow.param_groups[0]["params"][0], rtol=1e-12, atol=1e-12)
        results.append(p)
    assert not torch.equal(*results)


def test_the_implementation_can_be_changed_between_steps():
    p = parameter(4)
    optimizer = AFOR([p])
    train(optimizer, 2)
    for choice in ({"foreach": True}, {"foreach": False}, {"foreach": None, "fused": None}):
        optimizer.param_groups[0].update(choice)
        train(optimizer, 2)
    assert optimizer.state[p]["step"].item() == 8
    reference = AFOR([parameter(4)], foreach=False)
    for _ in range(4):
        train(reference, 2)
    torch.testing.assert_close(p, reference.param_groups[0]["params"][0])


def test_the_representation_names_the_class_and_its_options():
    text = repr(AFOR([parameter(1)], lr=0.25))
    assert text.startswith("AFOR (")
    assert "lr: 0.25" in text
    assert "beta2_min: 0.99" in text


def test_the_module_offers_afor_and_nothing_unknown():
    import afor

    assert afor.AFOR is AFOR
    assert set(afor.__all__) >= {"AFOR", "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'Afor'"):
        afor.Afor  # noqa: B018


@pytest.mark.parametrize(
    ("name", "value"),
    [("lr", np.float32(1e-2)), ("lr", np.float64(1e-2)), ("warmup_steps", np.int64(3))],
    ids=repr,
)
def test_numbers_of_numpy_are_numbers(name, value, implementation):
    ours, theirs = parameter(3), parameter(3)
    a = AFOR([ours], **{name: value}, **implementation)
    b = AFOR([theirs], **{name: value.item()}, **implementation)
    for p in (ours, theirs):
        p.grad = torch.ones(3)
    for _ in range(2):
        a.step()
        b.step()
        a.load_state_dict(a.state_dict())
    assert torch.equal(ours, theirs)


def test_a_negative_learning_rate_as_a_tensor_is_refused():
    with pytest.raises(ValueError, match=r"lr must be at least 0, got -1\.0"):
        AFOR([parameter(3)], lr=torch.tensor(-1.0))


def test_a_refused_group_leaves_nothing_behind(monkeypatch):
    optimizer = AFOR([parameter(3)])
    monkeypatch.setattr("afor.optimizer.unavailable_reason", lambda: "a test took it")
    with pytest.raises(RuntimeError, match="a test took it"):
        optimizer.add_param_group({"params": [parameter(2)], "fused": True})
    assert len(optimizer.param_groups) == 1
