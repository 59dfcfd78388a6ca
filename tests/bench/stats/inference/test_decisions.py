import math

import numpy as np
import pytest

from afor.bench.stats.inference.decisions import (
    Decision,
    choose_decision,
    decide,
    decide_family,
)

CLEAR = np.array([2.0, 3.0, 2.5, 1.0, 2.0, 3.5, 1.5, 2.2])
SMALL = np.array([0.1, -0.1, 0.05, 0.0, -0.2, 0.15, 0.1, -0.05])
WIDE = np.array([4.0, -3.0, 2.5, -1.0, 5.0, -3.5, 1.5, 0.0])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (CLEAR, Decision.BETTER),
        (-CLEAR, Decision.WORSE),
        (SMALL, Decision.EQUIVALENT),
        (WIDE, Decision.UNDECIDED),
        (np.zeros(8), Decision.EQUIVALENT),
        (CLEAR[:5], Decision.UNDECIDED),  # two-sided p cannot fall below 1/16
    ],
)
def test_decisions(values, expected):
    assert decide(values, margin=1.0).decision is expected


def test_a_small_shown_difference_keeps_its_sign_and_is_within_the_margin():
    made = decide(CLEAR / 10, margin=1.0)
    assert made.decision is Decision.BETTER
    assert made.within_margin
    assert not decide(CLEAR, margin=1.0).within_margin


def test_without_a_margin_nothing_is_equivalent():
    made = decide(SMALL)
    assert made.decision is Decision.UNDECIDED
    assert math.isnan(made.p_equivalent)
    assert not made.within_margin


def test_decision_shows_the_intervals_of_its_tests():
    made = decide(CLEAR, margin=1.0)
    assert made.interval[0] > 0
    assert made.interval[0] <= made.inner_interval[0] <= made.mean <= made.inner_interval[1]
    equal = decide(SMALL, margin=1.0)
    assert -1 < equal.inner_interval[0] < equal.inner_interval[1] < 1


def test_family_is_corrected_for_both_kinds_of_claims():
    alone = decide(CLEAR, margin=1.0)
    together = decide_family([CLEAR, SMALL], margin=1.0, family=6)
    assert together[0].p_two_sided == alone.p_two_sided
    assert together[0].p_different_holm == pytest.approx(6 * alone.p_two_sided)
    assert together[1].p_equivalent_holm == pytest.approx(6 * together[1].p_equivalent)
    too_many = decide_family([CLEAR, SMALL], margin=1.0, family=20)
    assert [made.decision for made in too_many] == [Decision.UNDECIDED, Decision.UNDECIDED]


def test_level_is_not_included():
    assert choose_decision(1.0, 0.05, 1.0) is Decision.UNDECIDED
    assert choose_decision(1.0, 0.0499, 1.0) is Decision.BETTER
