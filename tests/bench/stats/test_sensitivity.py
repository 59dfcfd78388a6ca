import pytest

from afor.bench.common.errors import ConfigError
from afor.bench.stats.comparisons import main_methods
from afor.bench.stats.design.simulated import simulate_results
from afor.bench.stats.groups import collect_conditions
from afor.bench.stats.sensitivity import default_of, varied_conditions

NAMES = [
    "adam",
    "afor",
    "afor_beta2_min_0.9",
    "afor_beta2_min_0.995",
    "afor_w_0.0",
    "afor_warmup_50",
]


def conditions():
    return collect_conditions(*simulate_results(dict.fromkeys(NAMES, 0.0), datasets=["deap"]))


def test_the_design_has_a_default_for_every_setting_that_the_paper_varies():
    assert [default_of(name) for name in ("beta2_min", "w", "warmup")] == [0.99, 1.0, 100.0]


def test_an_unfinished_study_compares_the_folds_that_all_values_have():
    results, expected = simulate_results({"afor": 0, "afor_w_0.5": 0}, datasets=["bci2a"])
    left = [r for r in results if (r.method, r.fold) not in (("afor_w_0.5", 3), ("afor", 4))]
    found = varied_conditions(collect_conditions(left, expected), "accuracy")
    assert len(found) == 2
    for condition in found.values():
        assert {fold for fold, _ in condition.runs} == set(range(9)) - {3, 4}
    apart = [r for r in results if (r.method == "afor") == (r.fold < 4)]
    with pytest.raises(ConfigError, match="no fold is finished for every value"):
        varied_conditions(collect_conditions(apart, expected), "accuracy")


def test_varied_settings_are_compared_like_all_that_a_study_lists():
    assert main_methods(conditions()) == NAMES


def test_a_store_without_varied_settings_says_how_to_run_them():
    other = collect_conditions(*simulate_results({"adam": 0, "afor": 0}))
    with pytest.raises(ConfigError, match="preset `sensitivity`"):
        varied_conditions(other, "accuracy")
