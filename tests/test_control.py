"""The controller on its own: vectorised over tensors, exact in float64, never poisoned."""

import math

import pytest
import torch
from torch import Tensor

from afor.control import (
    FIELDS,
    ControlSettings,
    OnFloats,
    Sums,
    advance,
    advance_floats,
    initial_control,
    one_minus_power,
)
from afor.reference import ReferenceState, reference_step

SETTINGS = [
    ControlSettings(),
    ControlSettings(direction_weight=0.0),
    ControlSettings(direction_weight=2.5, direction_decay=0.5),
    ControlSettings(fast_channel=False),
    ControlSettings(normalization="fixed", fixed_mean=0.5, fixed_scale=0.1),
    ControlSettings(warmup_steps=0),
    ControlSettings(warmup_steps=7),
    ControlSettings(correction="fixed"),
    ControlSettings(statistics="calibrated"),
    ControlSettings(beta1=0.0, beta2=0.9, beta2_min=0.1, eps=1e-3, zscore_clip=0.5),
    ControlSettings(eps=0.0),
]


def sums_of(grad: Tensor, before: Tensor, after: Tensor) -> Sums:
    """Return the five sums of the columns of (elements, tensors)."""
    n = grad.shape[0]
    return Sums(
        (grad - before).abs().sum(0) / n,
        after.abs().sum(0) / n,
        (grad * grad).sum(0),
        (before * before).sum(0),
        (grad * before).sum(0),
    )


def start(settings: ControlSettings, tensors: int) -> Tensor:
    return torch.tensor(initial_control(settings), dtype=torch.float64)[:, None].repeat(1, tensors)


def ordinary_sums(tensors: int = 1) -> Sums:
    one = torch.ones(tensors, dtype=torch.float64)
    return Sums(0.5 * one, 0.3 * one, 2.0 * one, 0.5 * one, 0.7 * one)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_advance_is_the_reference_for_many_tensors_at_once(settings):
    tensors, elements = 5, 6
    generator = torch.Generator().manual_seed(3)
    scale = 10.0 ** torch.arange(-2, 3, dtype=torch.float64)
    momentum = torch.zeros(elements, tensors, dtype=torch.float64)
    control = start(settings, tensors)
    states = [ReferenceState.start(momentum[:, 0]) for _ in range(tensors)]
    for state in states:
        state.score_var = initial_control(settings)[FIELDS.index("score_var")]
    options = {k: v for k, v in settings._asdict().items() if k not in ("beta1", "beta2")}
    options["betas"] = (settings.beta1, settings.beta2)
    for t in range(1, 121):
        noise = torch.randn(elements, tensors, generator=generator, dtype=torch.float64)
        grad = (noise + math.sin(t / 10)) * scale
        after = settings.beta1 * momentum + (1 - settings.beta1) * grad
        step = torch.full((tensors,), float(t), dtype=torch.float64)
        control, coefficients = advance(control, step, sums_of(grad, momentum, after), settings)
        momentum = after
        for i, state in enumerate(states):
            _, seen = reference_step(momentum[:, i], grad[:, i], state, **options)
            used = (
                1 - state.decay_product
                if settings.correction == "cumulative"
                else 1 - settings.beta2**t
            )
            bias1 = 1 - settings.beta1**t
            expected = [1 - seen.beta2, bias1 / math.sqrt(used), bias1 * settings.eps]
            actual = [c[i].item() for c in coefficients]
            assert actual == pytest.approx(expected, rel=1e-10)
            assert control[5, i].item() == pytest.approx(seen.score, rel=1e-10, abs=1e-13)


def test_the_initial_control_is_line_1_of_algorithm_1():
    control = dict(zip(FIELDS, initial_control(ControlSettings()), strict=True))
    assert control == {
        "noise_fast": 0.0,
        "noise_slow": 0.0,
        "agreement": 1.0,
        "score_mean": 0.0,
        "score_var": 1.0,
        "score": 0.0,
        "zscore": 0.0,
        "forgetting": pytest.approx(0.001, rel=1e-12),
        "correction": 0.0,
    }


def test_calibrated_statistics_start_without_a_variance():
    control = initial_control(ControlSettings(statistics="calibrated"))
    assert control[FIELDS.index("score_var")] == 0.0


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9, 0.999, 1 - 1e-12])
def test_one_minus_power_keeps_its_digits(decay):
    from fractions import Fraction

    steps = [1, 2, 10, 1000]
    actual = one_minus_power(decay, torch.tensor(steps, dtype=torch.float64)).tolist()
    exact = [float(1 - Fraction(decay) ** t) for t in steps]
    assert actual == pytest.approx(exact, rel=1e-9 if decay > 0.9999 else 1e-13)


def test_calibrated_statistics_wake_up_where_the_printed_ones_sleep():
    """A score that halves after the warm-up must move beta2 to its lower end, soon."""
    zscores = {}
    for statistics in ("paper", "calibrated"):
        settings = ControlSettings(statistics=statistics, direction_weight=0.0)
        control = start(settings, 1)
        control[:2] = ordinary_sums().residual  # noise averages at their level: a steady score
        generator = torch.Generator().manual_seed(0)
        for t in range(1, 202):
            level = 0.3 if t <= 200 else 0.15
            jitter = 0.01 * torch.randn(1, generator=generator, dtype=torch.float64)
            sums = ordinary_sums()._replace(momentum=level + jitter)
            control, _ = advance(control, torch.tensor([float(t)]).double(), sums, settings)
        zscores[statistics] = control[FIELDS.index("zscore")].item()
    assert abs(zscores["paper"]) < 0.5
    assert zscores["calibrated"] < -3.0


@pytest.mark.parametrize(
    ("field", "bad"),
    [*((f, b) for f in Sums._fields for b in (math.nan, math.inf)), ("product", -math.inf)],
)  # only the product may be negative
def test_a_sum_that_is_not_finite_leaves_what_the_controller_knows(field, bad):
    settings = ControlSettings()
    control, _ = advance(start(settings, 2), torch.ones(2).double(), ordinary_sums(2), settings)
    sums = ordinary_sums(2)
    spoilt = getattr(sums, field).clone()
    spoilt[0] = bad
    if field == "momentum":  # m' is not finite only where the gradient, and so the residual, is not
        sums.residual[0] = bad
    after, coefficients = advance(
        control, torch.full((2,), 2.0).double(), sums._replace(**{field: spoilt}), settings
    )
    assert after.isfinite().all()
    assert all(c.isfinite().all() for c in coefficients)
    assert 0.001 - 1e-15 <= after[FIELDS.index("forgetting"), 0] <= 0.01 + 1e-15
    clean, _ = advance(control, torch.full((2,), 2.0).double(), ordinary_sums(2), settings)
    assert torch.equal(after[:, 1], clean[:, 1])  # the neighbour notices nothing


def test_a_gradient_that_is_not_finite_is_no_observation():
    settings = ControlSettings()
    control, _ = advance(start(settings, 1), torch.ones(1).double(), ordinary_sums(), settings)
    spoilt = Sums(*(torch.full((1,), math.nan, dtype=torch.float64) for _ in Sums._fields))
    after, _ = advance(control, torch.full((1,), 2.0).double(), spoilt, settings)
    assert torch.equal(after[:7], control[:7])


def test_the_sums_of_two_halves_are_the_sums_of_the_whole():
    generator = torch.Generator().manual_seed(1)
    grad, before, after = torch.randn(3, 8, 4, generator=generator, dtype=torch.float64)
    whole = sums_of(grad, before, after)
    halves = [sums_of(grad[s], before[s], after[s]) for s in (slice(0, 4), slice(4, 8))]
    added = Sums(*(a + b for a, b in zip(*halves, strict=True)))
    added = added._replace(residual=added.residual / 2, momentum=added.momentum / 2)
    settings = ControlSettings()
    one, _ = advance(start(settings, 4), torch.ones(4).double(), whole, settings)
    two, _ = advance(start(settings, 4), torch.ones(4).double(), added, settings)
    torch.testing.assert_close(one, two, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_floats_and_vectors_advance_alike(settings):
    generator = torch.Generator().manual_seed(5)
    control = start(settings, 3)
    floats = [list(column) for column in control.T.tolist()]
    for t in range(1, 61):
        grad, before, after = torch.randn(3, 4, 3, dtype=torch.float64, generator=generator)
        if t == 20:
            grad[0, 1] = math.nan
        if t == 30:
            grad[0, 2] = math.inf
        if t == 40:
            grad[:, 0] = before[:, 0] = after[:, 0] = 0.0
        sums = sums_of(grad, before, after)
        step = torch.full((3,), float(t), dtype=torch.float64)
        control, coefficients = advance(control, step, sums, settings)
        rests = []
        for i, row in enumerate(zip(*(s.tolist() for s in sums), strict=True)):
            held, rest = advance_floats(floats[i], float(t), row, settings)
            floats[i] = [*held, *rest[:2]]
            rests.append((rest[0], *rest[2:]))
        expected = torch.tensor(floats, dtype=torch.float64).T
        torch.testing.assert_close(control, expected, rtol=1e-11, atol=1e-14)
        expected = torch.tensor(rests, dtype=torch.float64).T
        torch.testing.assert_close(torch.stack(coefficients), expected, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("x", [-800.0, -5.0, 0.0, 0.3, 800.0, math.nan])
def test_an_operation_gives_floats_what_it_gives_vectors(x):
    def same(name, *arguments, **options):
        vectors = [torch.tensor([a], dtype=torch.float64) for a in arguments]
        expected = getattr(torch, name)(*vectors, **options).item()
        computed = getattr(OnFloats, name)(*arguments, **options)
        assert computed == pytest.approx(expected, rel=1e-14, abs=0.0, nan_ok=True)

    same("sigmoid", x)
    same("addcmul", 2.0, x, -3.0, value=-1.0)
    for weight in (0.0, 0.1, 0.9, 1.0):
        same("lerp", x, 0.7, weight)
    for limit in (-1.0, 1.0):
        expected = torch.tensor([x], dtype=torch.float64)
        for name in ("clamp_min", "clamp_max"):
            computed = getattr(OnFloats, name)(x, limit)
            assert computed == pytest.approx(
                getattr(torch, name)(expected, limit).item(), nan_ok=True
            )
    assert OnFloats.clamp(x, -1.0, 1.0) == pytest.approx(
        torch.clamp(torch.tensor(x), -1.0, 1.0).item(), nan_ok=True
    )
