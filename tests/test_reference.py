"""The paper's equations, one test each, with numbers worked by hand."""

import math

import pytest
import torch

from afor.reference import (
    ReferenceState,
    beta2_raw,
    cosine,
    direction,
    gate,
    magnitude_ratio,
    noise_dual,
    noise_inst,
    reference_step,
    score,
    sigmoid,
)


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_algorithm_1_line_1_gives_the_initial_values():
    state = ReferenceState.start(vector(1.0, 2.0))
    assert state.exp_avg.tolist() == state.exp_avg_sq.tolist() == [0.0, 0.0]
    assert (state.noise_fast, state.noise_slow, state.agreement) == (0.0, 0.0, 1.0)
    assert (state.score_mean, state.score_var, state.decay_product) == (0.0, 1.0, 1.0)


def test_eq_noise_inst_is_the_mean_absolute_deviation_from_the_momentum():
    # (|1 - 0.5| + |-2 - 0| + |3 - 3| + |0 - 1|) / 4 = 3.5 / 4
    assert noise_inst(vector(1, -2, 3, 0), vector(0.5, 0, 3, 1)) == 0.875


def test_eq_noise_inst_of_an_empty_tensor_is_zero():
    assert noise_inst(vector(), vector()) == 0.0


def test_eq_noise_dual_keeps_nine_tenths_in_the_fast_and_999_thousandths_in_the_slow_channel():
    assert noise_dual(2.0, 1.0, 0.9) == pytest.approx(1.9, rel=1e-15)
    assert noise_dual(2.0, 1.0, 0.999) == pytest.approx(1.999, rel=1e-15)


def test_eq_magnitude_ratio_is_the_mean_momentum_over_noise_plus_eps():
    # mean |m| = 2; 2 / (0.3 + 0.1) = 5
    assert magnitude_ratio(vector(1, -3), 0.3, 0.1) == pytest.approx(5.0, rel=1e-15)


@pytest.mark.parametrize(
    ("grad", "momentum", "expected"),
    [
        ((3, 4), (4, 3), 24 / (25 + 0.5)),  # <g, m> = 24, norms 5 and 5
        ((1, 0), (0, 1), 0.0),  # at right angles
        ((3, 4), (-3, -4), 0.0),  # against: cut at zero
        ((0, 0), (3, 4), 0.0),  # 0 / (0 + eps), not one
    ],
)
def test_eq_dir_second_line_is_the_cosine_cut_at_zero(grad, momentum, expected):
    assert cosine(vector(*grad), vector(*momentum), eps=0.5) == pytest.approx(expected, rel=1e-15)


def test_eq_dir_first_line_averages_the_cosine_with_nine_tenths():
    assert direction(1.0, 0.0, 0.9) == pytest.approx(0.9, rel=1e-15)
    assert direction(0.5, 1.0, 0.9) == pytest.approx(0.55, rel=1e-15)


@pytest.mark.parametrize(
    ("weight", "expected"),
    [(0.0, 4.0), (1.0, 1.0), (0.5, 2.5), (2.0, 0.0)],  # 4 (1 + w (0.25 - 1)), never below zero
)
def test_eq_score_discounts_the_ratio_by_disagreement(weight, expected):
    assert score(4.0, 0.25, weight) == expected


def test_eq_zscore_stats_and_zscore_follow_the_printed_order():
    # One element, g = 1 from zero momentum, eps = 0, w = 0: e = 1, m = 0.1, n^f = 0.1, ratio = 1.
    state = ReferenceState.start(vector(0.0))
    _, seen = reference_step(vector(0.0), vector(1.0), state, direction_weight=0.0, eps=0.0)
    assert seen.score == pytest.approx(1.0, rel=1e-14)
    assert state.score_mean == pytest.approx(0.001, rel=1e-12)  # the mean moves first
    assert state.score_var == pytest.approx(0.999 + 0.001 * 0.999**2, rel=1e-14)
    assert seen.zscore == pytest.approx(0.999 / math.sqrt(0.999 + 0.001 * 0.999**2), rel=1e-12)


def test_eq_zscore_is_clipped_at_five():
    state = ReferenceState.start(vector(0.0))
    state.score_mean, state.score_var = -100.0, 1.0
    _, seen = reference_step(vector(0.0), vector(1.0), state, zscore_clip=5.0)
    assert seen.zscore == 5.0
    state.score_mean, state.score_var = 100.0, 1e-6
    _, seen = reference_step(vector(0.0), vector(1.0), state, zscore_clip=5.0)
    assert seen.zscore == -5.0


def test_eq_beta2_raw_maps_zero_to_the_middle_and_the_ends_to_the_ends():
    assert beta2_raw(0.0, 0.99, 0.999) == pytest.approx(0.9945, rel=1e-15)
    assert beta2_raw(math.log(3), 0.99, 0.999) == pytest.approx(0.99 + 0.009 * 0.75, rel=1e-15)
    assert beta2_raw(-800.0, 0.99, 0.999) == 0.99
    assert beta2_raw(800.0, 0.99, 0.999) == pytest.approx(0.999, rel=1e-15)


@pytest.mark.parametrize("x", [-1e4, -1.0, 0.0, 1.0, 1e4])
def test_the_sigmoid_neither_overflows_nor_leaves_its_symmetry(x):
    assert 0.0 <= sigmoid(x) <= 1.0
    assert sigmoid(x) + sigmoid(-x) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize(
    ("step", "warmup", "expected"), [(1, 100, 0.01), (50, 100, 0.5), (100, 100, 1), (999, 100, 1)]
)
def test_eq_gate_rises_linearly_and_stays_open(step, warmup, expected):
    assert gate(step, warmup) == expected
    assert gate(step, 0) == 1.0


def test_eq_gate_mixes_the_raw_and_the_initial_coefficient():
    state = ReferenceState.start(vector(0.0))
    _, seen = reference_step(vector(0.0), vector(1.0), state, warmup_steps=4)
    raw = beta2_raw(seen.zscore, 0.99, 0.999)
    assert seen.beta2 == pytest.approx(0.25 * raw + 0.75 * 0.999, rel=1e-15)


def test_eqs_v_adaptive_and_cumprod_use_the_coefficient_of_this_step():
    state = ReferenceState.start(vector(0.0))
    product, second = 1.0, 0.0
    for g in (1.0, -2.0, 0.5, 3.0):
        _, seen = reference_step(vector(0.0), vector(g), state, warmup_steps=2)
        second = seen.beta2 * second + (1 - seen.beta2) * g * g
        product *= seen.beta2
        assert state.exp_avg_sq.item() == pytest.approx(second, rel=1e-15)
        assert state.decay_product == pytest.approx(product, rel=1e-15)


def test_eq_update_moves_the_first_step_by_lr_and_decays_the_weight_separately():
    # m_hat = g, v_hat = g^2: theta = 2 - 0.1 * 0.5 * 2 - 0.1 * 4 / (4 + 1)
    state = ReferenceState.start(vector(2.0))
    theta, _ = reference_step(vector(2.0), vector(4.0), state, lr=0.1, weight_decay=0.5, eps=1.0)
    assert theta.item() == pytest.approx(2 - 0.1 - 0.08, rel=1e-14)


def test_two_steps_worked_by_hand():
    # eps = 0, no warm-up, theta = 0, g = (1, 0) and then (0, 1).
    state = ReferenceState.start(vector(0, 0))
    options = {"eps": 0.0, "warmup_steps": 0, "lr": 1.0}
    _, first = reference_step(vector(0, 0), vector(1, 0), state, **options)
    # e = 1/2, n^f = 0.05, n^s = 0.0005, cos = 0 (no momentum yet), c = 0.9, m = (0.1, 0)
    assert (first.residual, first.cosine) == (0.5, 0.0)
    assert first.ratio == pytest.approx(0.05 / 0.05, rel=1e-14)
    assert first.score == pytest.approx(0.9, rel=1e-14)
    theta, second = reference_step(vector(0, 0), vector(0, 1), state, **options)
    # against m = (0.1, 0): e = (0.1 + 1) / 2, cos = 0, c = 0.81; n^f = 0.045 + 0.055 = 0.1
    assert second.residual == pytest.approx(0.55, rel=1e-15)
    assert state.agreement == pytest.approx(0.81, rel=1e-15)
    # m = (0.09, 0.1): ratio = 0.095 / 0.1
    assert second.ratio == pytest.approx(0.95, rel=1e-14)
    assert second.score == pytest.approx(0.95 * 0.81, rel=1e-14)
    # v = ((1 - b1) b2, 1 - b2); m_hat = m / 0.19; v_hat = v / (1 - b1 b2)
    b1, b2 = first.beta2, second.beta2
    norm = 1 - b1 * b2
    expected = [-(0.09 / 0.19) / math.sqrt((1 - b1) * b2 / norm)]
    expected.append(-(0.1 / 0.19) / math.sqrt((1 - b2) / norm))
    assert theta.tolist() == pytest.approx(expected, rel=1e-12)


def test_calibrated_statistics_divide_by_the_weight_they_have_gathered():
    state = ReferenceState.start(vector(0.0), statistics="calibrated")
    assert state.score_var == 0.0
    _, seen = reference_step(vector(0.0), vector(1.0), state, statistics="calibrated")
    # After one step the corrected mean is the score itself, so there is nothing to standardise.
    assert seen.zscore == pytest.approx(0.0, abs=1e-9)


def test_the_fixed_sigmoid_uses_mean_one_and_scale_two():
    state = ReferenceState.start(vector(0.0))
    _, seen = reference_step(vector(0.0), vector(1.0), state, normalization="fixed")
    assert seen.zscore == pytest.approx((seen.score - 1.0) / 2.0, rel=1e-15)


def test_the_fixed_correction_ignores_the_adaptive_product():
    kept = ReferenceState.start(vector(0.0))
    fixed = ReferenceState.start(vector(0.0))
    for _ in range(3):
        a, _ = reference_step(vector(0.0), vector(1.0), kept, warmup_steps=0, eps=0.0)
        b, _ = reference_step(
            vector(0.0), vector(1.0), fixed, warmup_steps=0, eps=0.0, correction="fixed"
        )
    # the same second moment, divided by 1 - C or by 1 - 0.999^3
    expected = math.sqrt((1 - 0.999**3) / (1 - kept.decay_product))
    assert (b / a).item() == pytest.approx(expected, rel=1e-12)
