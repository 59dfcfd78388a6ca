import gc
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import permutation_test
from statsmodels.stats.multitest import multipletests

from afor.bench.stats.inference import paired_tests
from afor.bench.stats.inference.paired_tests import (
    GRID,
    INTERVAL_GRID,
    MEET_IN_THE_MIDDLE,
    _bounded_p,
    equivalence_p,
    exact_interval,
    holm,
    sign_flip_p,
    smallest_p,
    two_sided_p,
)


def scipy_p(differences, alternative):
    return permutation_test(
        (differences,),
        lambda x, axis: np.mean(x, axis=axis),
        permutation_type="samples",
        alternative=alternative,
        vectorized=True,
        n_resamples=np.inf,
    ).pvalue


def random_differences(rng, case):
    n = int(rng.integers(2, 13 if case % 25 else 15))
    kind = case % 4
    if kind == 0:
        return rng.normal(0.01, 0.03, n)
    if kind == 1:  # many ties and zeros
        return rng.integers(-3, 4, n) / 64
    if kind == 2:  # one size, both signs: every sum is a tie, and exact also in SciPy's arithmetic
        return rng.choice([-0.125, 0.125], n)
    values = rng.normal(0, 0.02, n)
    values[rng.random(n) < 0.4] = 0.0
    return values


def test_sign_flips_agree_with_scipy_in_500_random_cases_with_ties_and_zeros():
    rng = np.random.default_rng(7)
    for case in range(500):
        d = random_differences(rng, case)
        assert sign_flip_p(d) == pytest.approx(scipy_p(d, "greater"), abs=1e-15), d
        assert two_sided_p(d) == pytest.approx(scipy_p(d, "two-sided"), abs=1e-15), d


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=9))
def test_sign_flips_agree_with_counting_in_whole_numbers(values):
    total = sum(values)
    flips = [
        sum(s * v for s, v in zip(signs, values, strict=True))
        for signs in product((1, -1), repeat=len(values))
    ]
    exact = Fraction(sum(flip >= total for flip in flips), len(flips))
    assert sign_flip_p([v / 1000 for v in values]) == float(exact)


def test_differences_that_tie_only_on_paper_count_as_ties():
    # 0.1 + 0.2 - 0.3 is 5.6e-17 in floating point, and zero in truth.
    assert sign_flip_p([0.1, 0.2, -0.3]) == sign_flip_p([1, 2, -3])


def test_thirty_two_folds_are_exact():
    d = [1.0] * 32
    assert sign_flip_p(d) == 2.0**-32 == smallest_p(32)
    d = [1.0] * 30 + [-1.0] * 2
    # The subset sums to zero or less: no more plus than minus signs in it.
    count = sum(
        math.comb(30, p) * math.comb(2, m) for p, m in product(range(3), repeat=2) if p <= m
    )
    assert sign_flip_p(d) == count / 2**32


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(8, 26))
def test_the_bound_for_many_folds_is_above_the_exact_value_and_close(seed, n):
    d = np.random.default_rng(seed).normal(0.2, 1.0, n)
    exact, bound = sign_flip_p(d), _bounded_p(d, GRID)
    assert exact <= bound <= exact * 1.01 + 2 * 2.0**-n


@pytest.mark.parametrize(
    "kind", ["heavy tails", "whole numbers", "one outlier", "one sign", "equal"]
)
@pytest.mark.parametrize("grid", [2**5, INTERVAL_GRID, GRID])
def test_the_bound_is_never_below_the_exact_value(kind, grid):
    rng = np.random.default_rng(11)
    for n in (3, 8, 17, 22):
        values = {
            "heavy tails": rng.standard_t(1.5, n),
            "whole numbers": rng.integers(-4, 6, n) / 240,
            "one outlier": np.append(rng.normal(0.1, 1, n - 1), 1e4),
            "one sign": np.abs(rng.normal(0, 1, n)),
            "equal": np.full(n, 0.3),
        }[kind]
        if values.any():
            assert sign_flip_p(values) <= _bounded_p(values, grid) * (1 + 1e-12)


@pytest.mark.parametrize(("n", "tolerance"), [(100, 0.01), (400, 0.02)])
def test_the_bound_for_hundreds_of_folds_is_as_close_as_stated(n, tolerance):
    rng = np.random.default_rng(n)
    for _ in range(5):
        values = rng.standard_t(5, n)
        values += 1.96 / math.sqrt(n) * values.std(ddof=1) - values.mean()
        fine = _bounded_p(values, 16 * GRID)
        assert fine == pytest.approx(0.025, rel=0.1)
        assert fine <= sign_flip_p(values) <= fine * (1 + tolerance)


def test_the_smallest_p_of_many_folds_and_extreme_levels():
    values = np.random.default_rng(3).uniform(0.5, 1.5, 60)
    assert smallest_p(60) <= sign_flip_p(values) <= 1e-12
    low, high = exact_interval(values, 1 - 1e-9)
    assert values.min() - 1 < low < values.mean() < high < values.max() + 1


def test_an_end_of_an_interval_takes_few_tests(monkeypatch):
    tests = []
    bound = paired_tests._bounded_p
    monkeypatch.setattr(
        paired_tests, "_bounded_p", lambda values, grid: tests.append(grid) or bound(values, grid)
    )
    rng = np.random.default_rng(5)
    for n in (30, 100, 400):
        exact_interval(rng.standard_t(4, n), 0.95, margin=5.0)
    assert len(tests) <= 3 * 2 * 3


def test_more_folds_than_two_halves_can_hold_give_the_bound():
    d = np.random.default_rng(1).normal(0.2, 1.0, 109)
    assert len(d) > MEET_IN_THE_MIDDLE
    p = sign_flip_p(d)
    z = d.sum() / np.sqrt((d**2).sum())  # the normal limit of the same distribution
    assert p == pytest.approx(0.5 * math.erfc(z / math.sqrt(2)), rel=0.1)


def test_no_difference_at_all_gives_one():
    assert sign_flip_p([0.0] * 9) == two_sided_p([0.0] * 9) == 1.0
    assert sign_flip_p([0.0] * 60) == 1.0


@pytest.mark.parametrize("wrong", [[], [float("nan")], [[1.0, 2.0]], [float("inf")]])
def test_what_is_not_one_finite_number_per_fold_is_refused(wrong):
    with pytest.raises(ValueError, match="one finite difference per fold"):
        sign_flip_p(wrong)


@pytest.fixture(scope="module")
def without_collections():
    """Let statsmodels correct p-values without a garbage collection in every call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda: 0)
        yield


@pytest.mark.usefixtures("without_collections")
@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_agrees_with_statsmodels(p_values):
    expected = multipletests(p_values, method="holm")[1]
    np.testing.assert_allclose(holm(p_values), expected, rtol=0, atol=1e-15)


@pytest.mark.usefixtures("without_collections")
@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_comparisons_still_to_come_count_in_the_family_as_if_they_had_failed(p_values):
    padded = multipletests([*p_values, *[1.0] * (6 - len(p_values))], method="holm")[1]
    np.testing.assert_allclose(holm(p_values, 6), padded[: len(p_values)], rtol=0, atol=1e-15)


@pytest.mark.parametrize(("n", "slack"), [(6, 1e-9), (9, 1e-9), (16, 1e-9), (20, 0.01), (45, 0.03)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_exact_interval_holds_what_the_test_does_not_reject(n, slack, level):
    values = np.random.default_rng(n).normal(0.3, 1, n)
    alpha, scale = (1 - level) / 2, values.std(ddof=1) / math.sqrt(n)
    low, high = exact_interval(values, level)
    assert low < values.mean() < high
    for towards_zero, end in ((values, low), (-values, -high)):
        assert sign_flip_p(towards_zero - (end - 1e-6)) <= alpha  # rejected just outside
        assert sign_flip_p(towards_zero - (end + slack * scale)) > alpha  # accepted inside


def test_exact_interval_with_ties_and_with_too_few_folds():
    assert exact_interval([1.0, 2.0, 3.0, 2.0, 1.0]) == (-math.inf, math.inf)
    assert exact_interval([1.0, 2.0, 3.0, 2.0, 1.0], level=0.9) == (1.0, 3.0)
    assert exact_interval([0.5] * 8) == (0.5, 0.5)
    assert exact_interval([0.5] * 50) == pytest.approx((0.5, 0.5))
    assert exact_interval([0.0] * 50) == (0.0, 0.0)


def test_equivalence_is_the_larger_of_two_one_sided_tests():
    values = np.array([0.4, 0.1, 0.6, 0.3, 0.2, 0.5])
    assert equivalence_p(values, 1.0) == max(sign_flip_p(1 - values), sign_flip_p(1 + values))
    assert equivalence_p(values, 0.35) > 0.4
    assert equivalence_p(values, 1.0) == equivalence_p(-values, 1.0) == smallest_p(6)


@settings(deadline=None)
@given(st.lists(st.integers(-20, 20), min_size=6, max_size=10), st.sampled_from([1, 5, 12]))
def test_equivalence_and_interval_agree(values, margin):
    low, high = exact_interval(values, 0.9)
    p = equivalence_p(values, margin)
    if -margin < low - 1e-9 and high + 1e-9 < margin:
        assert p <= 0.05
    if low + 1e-9 < -margin or margin < high - 1e-9:
        assert p > 0.05


@pytest.mark.parametrize("n", [20, 25, 32, 45])
def test_an_interval_excludes_zero_exactly_when_the_test_rejects_it(n):
    rng = np.random.default_rng(n)
    near = 0
    for _ in range(40):
        values = rng.normal(size=n)
        values += 2.05 / math.sqrt(n) * values.std(ddof=1) - values.mean()  # p close to 0.05
        values *= rng.choice([-1, 1])
        p = two_sided_p(values)
        low, high = exact_interval(values)
        near += abs(p - 0.05) < 0.005
        assert (low > 0 or high < 0) == (p < 0.05)
        margin = abs(values.mean()) + 1.72 * values.std(ddof=1) / math.sqrt(n)
        low, high = exact_interval(values, 0.9, margin=margin)
        assert (-margin < low and high < margin) == (equivalence_p(values, margin) < 0.05)
    assert near > 10
