import math
from dataclasses import replace

import numpy as np
import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.optimizers.registry import PAPER_OPTIMIZERS
from afor.bench.report.tables.comparisons import comparison_table
from afor.bench.report.tables.formats import to_markdown
from afor.bench.report.tables.main import main_table
from afor.bench.stats.comparisons import (
    compare,
    control_methods,
    main_methods,
    mean_ranks,
)
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.groups import collect_conditions, default_metrics
from afor.bench.stats.inference.decisions import Decision
from afor.bench.stats.results import Results
from afor.bench.study.roles import Role

GAINS = dict.fromkeys(PAPER_OPTIMIZERS, 0.0) | {"afor": 0.05, "sophia": -0.05}


@pytest.fixture(scope="module")
def simulated():
    return simulate_results(GAINS | {"adam_again": 0.0}, datasets=["bci2a", "deap"])


def of(comparisons, optimizer):
    return next(c for c in comparisons if c.method == optimizer)


def test_a_known_gain_is_found_better_and_a_known_loss_worse(simulated):
    conditions = collect_conditions(*simulated)
    found = compare(conditions, "bci2a", "eegnet", "accuracy")
    afor = of(found, "afor")
    assert (afor.family, afor.folds) == (6, 9)
    assert afor.gain == pytest.approx(0.05, abs=0.015)
    assert afor.interval[0] < afor.gain < afor.interval[1]
    assert afor.won_tied_lost == (9, 0, 0)
    assert afor.evidence.p_better == 2**-9
    assert afor.p_holm == pytest.approx(6 / 512)
    assert afor.significant
    assert afor.decision is Decision.BETTER
    sophia = of(found, "sophia")
    assert sophia.evidence.p_better > 0.99
    assert sophia.evidence.p_two_sided < 0.01
    assert sophia.decision is Decision.WORSE
    assert sophia.evidence.p_different_holm == pytest.approx(6 / 256)


def test_an_incomplete_cell_is_never_significant(simulated):
    results, expected = simulated
    lacking = [r for r in results if (r.method, r.fold, r.repetition) != ("afor", 8, 4)]
    afor = of(compare(collect_conditions(lacking, expected), "bci2a", "eegnet", "accuracy"), "afor")
    assert afor.p_holm < 0.05
    assert not afor.complete
    assert not afor.significant
    assert afor.decision is None
    assert (afor.done, afor.expected) == (89, 90)


def test_an_incomplete_baseline_makes_all_comparisons_incomplete(simulated):
    results, expected = simulated
    lacking = [r for r in results if (r.method, r.fold) != ("adam", 8)]
    found = compare(collect_conditions(lacking, expected), "bci2a", "eegnet", "accuracy")
    assert not any(c.significant for c in found)
    assert {c.folds for c in found} == {8}


def test_optimizers_without_runs_keep_their_place_in_the_family(simulated):
    results, expected = simulated
    few = [r for r in results if r.method in ("adam", "afor")]
    afor = of(compare(collect_conditions(few, expected), "bci2a", "eegnet", "accuracy"), "afor")
    assert afor.family == 6
    assert afor.p_holm == pytest.approx(6 / 512)


def test_few_folds_can_never_be_significant():
    results, _ = simulate_results(GAINS, datasets=["bci2a"])
    few = [r for r in results if r.fold < 4]
    afor = of(compare(collect_conditions(few), "bci2a", "eegnet", "accuracy"), "afor")
    assert afor.complete
    assert afor.evidence.p_better == 1 / 16
    assert not afor.can_be_significant
    assert not afor.significant


def test_everything_but_copies_and_marked_controls_is_compared():
    names = [*GAINS, "adam_again", "afor_no_dc", "adamw_09945", "mine"]
    results, expected = simulate_results(dict.fromkeys(names, 0.0), datasets=["bci2a"])
    conditions = collect_conditions(results, expected)
    listed = [*PAPER_OPTIMIZERS, "afor_no_dc", "adamw_09945", "mine"]
    assert main_methods(conditions) == listed
    assert control_methods(conditions) == ["adam_again"]
    marked = collect_conditions(
        [replace(r, role=Role(control=r.method == "mine")) for r in results]
    )
    assert "mine" not in main_methods(marked)
    assert control_methods(marked) == ["mine"]


def test_where_all_but_one_are_controls_they_are_compared():
    results, _ = simulate_results({"adam": 0, "afor": 0}, datasets=["bci2a"])
    marked = [replace(r, role=Role(control=r.method == "afor")) for r in results]
    assert main_methods(collect_conditions(marked)) == ["adam", "afor"]


def test_nothing_to_compare_is_an_error_that_names_what_is_there(simulated):
    with pytest.raises(ConfigError, match=r"baseline 'lion'.*Methods here: adam, "):
        Results.of(*simulated, baseline="lion").needed_comparisons()


def test_ranks_average_over_complete_blocks_and_share_ties(simulated):
    ranks = mean_ranks(collect_conditions(*simulated), "accuracy")
    by_name = dict(zip(ranks.methods, ranks.mean_ranks, strict=True))
    assert (by_name["afor"], by_name["sophia"]) == (1.0, 7.0)
    assert len(ranks.tasks) == 2
    assert sum(ranks.mean_ranks) == pytest.approx(28)
    # Demšar 2006, Table 5: q at 5 % for seven methods is 2.949.
    assert ranks.critical_difference == pytest.approx(2.949 * math.sqrt(7 * 8 / 12), abs=0.002)
    results, expected = simulated
    lacking = [r for r in results if r.dataset == "deap" or r.method != "mars"]
    ranks = mean_ranks(collect_conditions(lacking, expected), "accuracy")
    assert ranks.tasks == (("deap", "eegnet"),)
    same = [replace(r, metrics={"accuracy": 0.5}) for r in results]
    ranks = mean_ranks(collect_conditions(same, expected), "accuracy")
    assert set(ranks.mean_ranks) == {4.0}


def test_less_is_better_for_the_likelihood_and_the_gain_says_so(simulated):
    results, expected = simulated
    losses = [
        replace(run, metrics={**run.metrics, "nll": 1 - run.metrics["accuracy"]}) for run in results
    ]
    conditions = collect_conditions(losses, expected)
    for mirrored in ("afor", "sophia"):
        nll, accuracy = (
            of(compare(conditions, "bci2a", "eegnet", metric), mirrored)
            for metric in ("nll", "accuracy")
        )
        assert nll.gain == pytest.approx(accuracy.gain)
        assert nll.won_tied_lost == accuracy.won_tied_lost
        assert nll.evidence.p_better == accuracy.evidence.p_better
    ranks = [mean_ranks(conditions, metric).mean_ranks for metric in ("nll", "accuracy")]
    assert ranks[0] == ranks[1]
    assert default_metrics(conditions) == ["accuracy", "weighted_f1", "nll"]
    assert default_metrics(collect_conditions(*simulated)) == ["accuracy", "weighted_f1"]
    by_nll = Results.of(losses, expected, metrics=["nll"])
    table = to_markdown(main_table(by_nll))
    best = next(line for line in table.splitlines() if line.startswith("| AFOR"))
    assert "**0.3" in best
    text = to_markdown(comparison_table(by_nll))
    assert "10⁻³ nats" in text
    gain = of(compare(conditions, "bci2a", "eegnet", "nll"), "afor").gain
    assert f"+{1000 * gain:.2f}" in text


def test_means_that_are_equal_but_for_rounding_are_ties():
    results, expected = simulate_results({"adam": 0, "afor": 0}, datasets=["bci2a"], repetitions=2)
    hits = {"adam": (235, 240), "afor": (237, 238)}  # of 240: both means are 237.5 of 240
    equal = [replace(r, metrics={"accuracy": hits[r.method][r.repetition] / 240}) for r in results]
    assert 235 / 240 + 240 / 240 != 237 / 240 + 238 / 240
    (found,) = compare(collect_conditions(equal, expected), "bci2a", "eegnet", "accuracy")
    assert found.won_tied_lost == (0, 9, 0)
    assert (found.gain, found.evidence.p_two_sided) == (0.0, 1.0)
    assert found.decision is Decision.EQUIVALENT


def test_the_effect_size_is_mean_over_sd_and_undefined_without_spread(simulated):
    found = compare(collect_conditions(*simulated), "bci2a", "eegnet", "accuracy")[0]
    gains = np.array([pair.gain for pair in found.pairs])
    assert found.effect == pytest.approx(gains.mean() / gains.std(ddof=1))
    equal = [replace(pair, gain=0.1) for pair in found.pairs]
    flat = replace(found.evidence, mean=0.1, sd=1e-17)
    assert math.isnan(replace(found, pairs=tuple(equal), evidence=flat).effect)


def test_a_value_that_cannot_be_squared_counts_as_not_finite():
    results, expected = simulate_results(
        {"adam": 0, "afor": 0.05}, datasets=["bci2a"], repetitions=2
    )
    huge = [replace(r, metrics={**r.metrics, "nll": 1e200}) for r in results]
    conditions = collect_conditions(huge, expected)
    assert not conditions["bci2a", "eegnet", "afor"].has("nll")
    assert compare(conditions, "bci2a", "eegnet", "nll") == []
    assert len(compare(conditions, "bci2a", "eegnet", "accuracy")) == 1
