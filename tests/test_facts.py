"""Each property that docs/figures/facts.py states, checked on its own numbers."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from afor.reference import ReferenceState, reference_step


@pytest.fixture(scope="module")
def facts(load_script):
    return load_script("docs/figures/facts.py")


def test_the_released_nsal_dgat_is_nan_at_six_channels_for_every_seed(facts):
    before = torch.get_rng_state()
    values = facts.nsal_dgat_fact(seeds=200).values
    assert torch.equal(torch.get_rng_state(), before)
    shares = values["share of NaN by channels"]
    assert (shares[6], shares[11]) == (1.0, 1.0)
    assert shares[12] < 0.02
    assert shares[22] == shares[32] == 0.0
    assert 0.04 < values["share of NaN with one unit at 6 channels"] < 0.16


def test_mean_beta2_lies_in_a_narrow_range_whatever_the_scores(facts):
    low, high = facts.mean_beta2_range()
    assert low == pytest.approx(0.99423, abs=5e-6)
    assert high == pytest.approx(0.99477, abs=5e-6)
    assert low + high == pytest.approx(2 * 0.9945, abs=1e-7)  # the sigmoid is odd about 1/2


def test_series_of_scores_made_to_reach_the_ends_of_the_range_stay_in_it(facts):
    fact = facts.mean_beta2_fact(steps=8000)
    low, high = fact.values["range"]
    means = fact.values["mean beta2 of score series"]
    assert all(low - 2e-5 < mean < high + 2e-5 for mean in means.values())
    assert means["mostly low, one in 16 high"] < 0.9943
    assert means["mostly high, one in 16 low"] > 0.9947
    assert "0.99423, 0.99477" in fact.statement


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0, 4.0])
def test_scores_with_heavy_tails_stay_in_the_range_too(facts, spread):
    scores = np.exp(spread * np.random.default_rng(1).standard_normal(20_000))
    low, high = facts.mean_beta2_range()
    assert low - 5e-5 < facts.steady_mean_beta2(scores) < high + 5e-5


def test_a_burst_of_the_gradient_raises_beta2(facts):
    values = facts.burst_fact(steps=14_000).values
    assert values["beta2 in bursts"] == pytest.approx(0.9976, abs=4e-4)
    assert values["beta2 elsewhere"] == pytest.approx(0.9944, abs=2e-4)


def test_without_the_fast_channel_the_first_score_is_ninety():
    theta, grad = torch.zeros(8), torch.randn(8, generator=torch.Generator().manual_seed(0))
    for fast_channel, expected in ((True, 0.9), (False, 90.0)):
        state = ReferenceState.start(theta)
        _, seen = reference_step(theta, grad, state, fast_channel=fast_channel)
        assert seen.score == pytest.approx(expected, rel=1e-4)


def test_without_the_fast_channel_the_controller_stays_inactive_thousands_of_steps_longer(facts):
    fact = facts.no_fast_channel_fact(steps=16_000)
    values = fact.values
    assert values["first score w/o FC"] == pytest.approx(90, rel=1e-3)
    later = values["active from step w/o FC"] - values["active from step"]
    assert 1500 < later < 5000
    assert f"about {later:,} steps longer" in fact.statement


def test_a_controller_that_never_moves_has_no_step_of_becoming_active(facts):
    still = np.zeros(3000)
    assert facts.Trace(still, still, still, still.astype(bool)).active_step() is None
    moving = np.where(np.arange(3000) < 2000, 0.0, 1.0)
    assert facts.Trace(still, still, moving, still.astype(bool)).active_step() == 2000


def test_a_trace_repeats_and_counts_its_bursts(facts):
    first, second = (facts.trace(300, burst_share=0.1, burst_scale=5.0) for _ in range(2))
    assert np.array_equal(first.beta2, second.beta2)
    assert 10 < first.burst.sum() < 60
    assert all(math.isfinite(value) for value in first.zscore)


def test_the_paper_prints_one_method_twice_with_a_difference_beyond_its_margin(facts):
    made = facts.same_method_twice()
    twice = [row for row in made if row.label.endswith(", Acc")]
    assert [row.apart for row in twice] == [2.25, 2.14, 0.15, 3.06]
    assert [row.margin for row in twice] == [0.61, 0.91, 0.65, 0.85]
    fact = facts.same_method_fact()
    assert "in 6 of 8 tasks" in fact.statement
    page = Path(__file__).parents[1] / "docs" / "explanation" / "paper-tables.md"
    (table,) = fact.values.values()
    assert table.strip() in page.read_text("utf-8")
